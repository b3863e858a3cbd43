// Shape inference of views: computed and copied dims, symbolic dims, errors.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

Shape reshaped(const Shape& in, const List& to, bool allow_zero = false) {
  Attrs attrs;
  if (allow_zero) attrs.set("allowzero", std::int64_t{1});
  return shape_of(infer("Reshape", {f32(in), ints(to)}, attrs));
}

TEST(Reshape, ComputesAndCopies) {
  EXPECT_EQ(reshaped({3, 4, 5}, {0, -1}), (Shape{3, 20}));
  EXPECT_EQ(reshaped({2, 6}, {-1, 3, 2}), (Shape{2, 3, 2}));
  EXPECT_EQ(reshaped({0, 3}, {0, -1}), (Shape{-999})) << "0 elements: -1 could be anything";
  EXPECT_EQ(reshaped({0, 3}, {3, 0}, true), (Shape{3, 0}));
  EXPECT_EQ(reshaped({0, 3}, {-1, 3}), (Shape{0, 3}));
  EXPECT_EQ(reshaped({1}, {}), (Shape{}));
}

TEST(Reshape, CarriesSymbolicDims) {
  EXPECT_EQ(reshaped({-1, 4, 5}, {0, -1}), (Shape{-1, 20}));
  EXPECT_EQ(reshaped({-1, 4, 5}, {-1, 20}), (Shape{-1, 20}));
  EXPECT_EQ(reshaped({-1, -2, 8}, {0, 0, 2, 4}), (Shape{-1, -2, 2, 4}));
  const Shape merged = reshaped({-1, -2, 8}, {-1, 8});
  EXPECT_LT(merged[0], -2) << "a dimension of its own";
  EXPECT_EQ(merged, reshaped({-1, -2, 8}, {-1, 8})) << "inference is repeatable";
  EXPECT_EQ(reshaped({-1, -2, 8}, {-1, 4})[0], reshaped({-2, -1, 8}, {-1, 4})[0]) << "the same product";
}

TEST(Reshape, WithUnknownContentsKnowsTheRank) {
  const auto types = infer("Reshape", {f32({2, 3}), i64({3})});
  ASSERT_TRUE(types.ok());
  ASSERT_EQ((*types)[0].shape.size(), 3u);
  EXPECT_FALSE(is_static((*types)[0].shape));
}

TEST(Reshape, RefusesImpossibleShapes) {
  EXPECT_TRUE(mentions(error_of("Reshape", {f32({2, 3}), ints({7})}), "element counts differ"));
  EXPECT_TRUE(mentions(error_of("Reshape", {f32({2, 3}), ints({-1, 4})}), "do not divide"));
  EXPECT_TRUE(mentions(error_of("Reshape", {f32({2, 3}), ints({-1, -1})}), "twice"));
  EXPECT_TRUE(mentions(error_of("Reshape", {f32({2, 3}), ints({-2, 3})}), "-2"));
  EXPECT_TRUE(mentions(error_of("Reshape", {f32({2, 3}), ints({2, 3, 0})}), "lacks"));
  EXPECT_TRUE(mentions(error_of("Reshape", {f32({2, 3}), i64({-1})}), "rank"));
  EXPECT_TRUE(mentions(error_of("Reshape", {f32({2, 3}), scalar(6)}), "vector"));
  EXPECT_TRUE(mentions(error_of("Reshape", {f32({2, 3})}), "needs a shape"));
  EXPECT_TRUE(mentions(error_of("Reshape", {f32({INT64_MAX, 2}), ints({1, -1})}), "63 bits"));
  EXPECT_TRUE(mentions(error_of("Reshape", {f32({2}), i64({1000})}), "rank"));
}

TEST(Flatten, MultipliesDims) {
  EXPECT_EQ(shape_of(infer("Flatten", {f32({3, 4, 5})}, {{"axis", std::int64_t{2}}})), (Shape{12, 5}));
  EXPECT_EQ(shape_of(infer("Flatten", {f32({3, 4})}, {{"axis", std::int64_t{2}}})), (Shape{12, 1}));
  EXPECT_EQ(shape_of(infer("Flatten", {f32({-1, 4, 5})})), (Shape{-1, 20}));
  EXPECT_EQ(shape_of(infer("Flatten", {f32({})}, {{"axis", std::int64_t{0}}})), (Shape{1, 1}));
  EXPECT_TRUE(mentions(error_of("Flatten", {f32({3})}, {{"axis", std::int64_t{2}}}), "out of range"));
}

TEST(Squeeze, DropsOnes) {
  EXPECT_EQ(shape_of(infer("Squeeze", {f32({1, 3, 1}), ints({-1, 0})})), (Shape{3}));
  EXPECT_EQ(shape_of(infer("Squeeze", {f32({-1, 3, 1})})), (Shape{-1, 3}));
  EXPECT_EQ(shape_of(infer("Squeeze", {f32({-1, 3}), ints({0})})), (Shape{3}))
      << "a symbolic dim is trusted to be 1";
  EXPECT_TRUE(mentions(error_of("Squeeze", {f32({2, 3}), ints({0})}), "is not 1"));
  EXPECT_TRUE(mentions(error_of("Squeeze", {f32({1, 3}), ints({0, -2})}), "twice"));
  EXPECT_TRUE(mentions(error_of("Squeeze", {f32({1, 3}), i64({1})}), "known"));
}

TEST(Unsqueeze, AddsOnes) {
  EXPECT_EQ(shape_of(infer("Unsqueeze", {f32({-1, 3}), ints({0, 3})})), (Shape{1, -1, 3, 1}));
  EXPECT_TRUE(mentions(error_of("Unsqueeze", {f32({3}), ints({2})}), "out of range"));
  EXPECT_TRUE(mentions(error_of("Unsqueeze", {f32({3}), ints({2, -1})}), "twice"))
      << "both are the last axis";
  EXPECT_TRUE(mentions(error_of("Unsqueeze", {f32({3})}), "needs axes"));
}

}  // namespace
}  // namespace gradloom
