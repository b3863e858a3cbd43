// Ranges of attributes: what is refused, what the error says, whose row counts.
#include "engine/onnx/read/attribute_ranges.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::import_model;
using test::model_from_text;

std::string problem(const char* op, const char* attribute, AttrValue value) {
  return attribute_out_of_range(op, attribute, value);
}

TEST(AttributeRanges, WordsAreThoseOfTheOperator) {
  EXPECT_EQ(problem("Conv", "auto_pad", std::string("SAME_LOWER")), "");
  EXPECT_EQ(problem("ConvTranspose", "auto_pad", std::string("nosuch")),
            "attribute 'auto_pad' is 'nosuch', it must be NOTSET, SAME_UPPER, SAME_LOWER or VALID");
  EXPECT_EQ(problem("RoiAlign", "mode", std::string("avg")), "");
  EXPECT_EQ(problem("Pad", "mode", std::string("avg")),
            "attribute 'mode' is 'avg', it must be constant, reflect, edge or wrap");
  EXPECT_EQ(problem("Pad", "mode", std::string("")),
            "attribute 'mode' is '', it must be constant, reflect, edge or wrap");
  EXPECT_EQ(problem("BitShift", "direction", std::string("UP\n")),
            "attribute 'direction' is 'UP\\x0a', it must be LEFT or RIGHT");
}

TEST(AttributeRanges, IntegersAndTheirLists) {
  using Ints = std::vector<std::int64_t>;
  EXPECT_EQ(problem("Conv", "group", std::int64_t{1}), "");
  EXPECT_EQ(problem("Conv", "group", std::int64_t{0}), "attribute 'group' is 0, it must be at least 1");
  EXPECT_EQ(problem("Gemm", "transA", std::int64_t{2}), "attribute 'transA' is 2, it must be 0 or 1");
  EXPECT_EQ(problem("Attention", "qk_matmul_output_mode", std::int64_t{9}),
            "attribute 'qk_matmul_output_mode' is 9, it must be 0 to 3");
  EXPECT_EQ(problem("Scan", "scan_input_directions", Ints{0, 1}), "");
  EXPECT_EQ(problem("Scan", "scan_input_directions", Ints{0, -1}),
            "attribute 'scan_input_directions' is -1, it must be 0 or 1");
  EXPECT_EQ(problem("MaxPool", "pads", Ints{0, -2}), "attribute 'pads' is -2, it must be at least 0");
  EXPECT_EQ(problem("Pad", "pads", Ints{0, -2}), "");  // crops
}

TEST(AttributeRanges, RealsAreFiniteAndWithin) {
  EXPECT_EQ(problem("BatchNormalization", "epsilon", 0.0), "");
  EXPECT_EQ(problem("BatchNormalization", "epsilon", static_cast<double>(NAN)),
            "attribute 'epsilon' is nan, it must be at least 0");
  EXPECT_EQ(problem("BatchNormalization", "momentum", static_cast<double>(INFINITY)),
            "attribute 'momentum' is inf, it must be a number");
  EXPECT_EQ(problem("Dropout", "ratio", 0.999), "");
  EXPECT_EQ(problem("Dropout", "ratio", 1.0), "attribute 'ratio' is 1, it must be at least 0 and below 1");
}

TEST(AttributeRanges, WhatHasNoRowMayBeAnything) {
  EXPECT_EQ(problem("Elu", "alpha", static_cast<double>(NAN)), "");
  EXPECT_EQ(problem("Gather", "axis", std::int64_t{-99}), "");  // inference knows the rank
}

TEST(AttributeRanges, ANodeOutOfRangeIsNamedAndOnlyViewed) {
  const auto model = model_from_text("g (float[2, 3] x) => (float[3, 2] y) { y = Gemm<transA = 2>(x, x) }");
  test::expect_refused(import_model(model), Errc::bad_input,
                       {"node 'Gemm_0' (Gemm): attribute 'transA' is 2, it must be 0 or 1"});
  ImportOptions view;
  view.allow_unknown = true;
  const auto viewed = import_model(model, view);
  ASSERT_TRUE(viewed.ok()) << viewed.error().message;
  ASSERT_EQ(viewed->untyped.size(), 1u);
  EXPECT_EQ(viewed->untyped[0].node, "Gemm_0");
}

}  // namespace
}  // namespace gradloom
