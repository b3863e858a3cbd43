#include "app/output.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gradloom {
namespace {

TEST(Output, TablesAreAligned) {
  EXPECT_EQ(table_text({"name", "time"}, {{"Gelu", "1.2 ms"}, {"µ", "10 us"}}),
            "name    time\n"
            "Gelu  1.2 ms\n"
            "µ      10 us");
  EXPECT_EQ(table_text({"a", "b"}, {{"x", "left"}}, {1}), "a  b\nx  left");
}

TEST(Output, NumbersThatJsonLacksBecomeText) {
  EXPECT_EQ(json_number(1.5), Json(1.5));
  EXPECT_EQ(json_number(std::nan("")), Json("NaN"));
  EXPECT_EQ(json_number(-std::numeric_limits<double>::infinity()), Json("-Infinity"));
}

TEST(Output, WhatACommandMissedToEscapeReachesNoTerminal) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Output out;
  out.text("a\x1b[31m\tb\nc\xff");
  out.note("x\ny\x07");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a\\x1b[31m\\x09b\nc\\xff\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "note: x\\x0ay\\x07\n");
}

}  // namespace
}  // namespace gradloom
