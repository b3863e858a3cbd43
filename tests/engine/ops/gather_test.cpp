// Gather, its gradient and OneHot: shapes, repeated and negative indices, errors.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

Attrs axis(std::int64_t a) { return {{"axis", a}}; }

TEST(Gather, Shapes) {
  EXPECT_EQ(shape_of(infer("Gather", {f32({7, 5}), i64({2, 3})})), (Shape{2, 3, 5}));
  EXPECT_EQ(shape_of(infer("Gather", {f32({7, 5}), i64({-1})}, axis(1))), (Shape{7, -1}));
  EXPECT_EQ(shape_of(infer("Gather", {f32({7, 5}), i64({})}, axis(-1))), (Shape{7}));
}

TEST(Gather, ChecksWhatIsKnown) {
  EXPECT_TRUE(mentions(error_of("Gather", {f32({3}), ints({3})}), "index 3"));
  EXPECT_TRUE(mentions(error_of("Gather", {f32({3}), ints({-4})}), "index -4"));
  EXPECT_TRUE(mentions(error_of("Gather", {f32({}), ints({0})}), "out of range"));
  EXPECT_TRUE(mentions(error_of("Gather", {f32({3}), ints({0})}, axis(1)), "out of range"));
  EXPECT_TRUE(mentions(error_of("Gather", {f32({3}), f32({1})}), "indices"));
}

TEST(Gather, PicksDimensionsOfShapes) {
  EXPECT_EQ(run("Gather", {ints({8, 16, 32}), scalar(-1)}), (std::vector<double>{32}));
  EXPECT_EQ(run("Gather", {ints({8, 16, 32}), ints({2, 0})}), (std::vector<double>{32, 8}));
}

TEST(GatherGrad, AddsRepeatedRows) {
  EXPECT_EQ(run("GatherGrad", {tensor({4}, {1, 2, 4, 8}), ints({0, 2, 0, -1}), ints({3})}, axis(0)), (std::vector<double>{5, 0, 10}));
  // 33 copies of one row and none of the other.
  const auto rows = run("GatherGrad", {tensor({33, 2}, std::vector<double>(66, 0.5)), Tensor(DType::i64, {33}), ints({2, 2})}, axis(0));
  EXPECT_EQ(rows, (std::vector<double>{16.5, 16.5, 0, 0}));
}

TEST(GatherGrad, ChecksTheGradientsShape) {
  EXPECT_TRUE(mentions(error_of("GatherGrad", {f32({4, 5}), i64({4}), ints({3, 6})}, axis(0)), "gradient is"));
  EXPECT_TRUE(mentions(error_of("GatherGrad", {f32({4}), i64({4}), ints({3, 6})}, axis(0)), "rank"));
  EXPECT_TRUE(mentions(error_of("GatherGrad", {f32({4}), i64({4}), i64({1})}, axis(0)), "known"));
  EXPECT_TRUE(mentions(error_of("GatherGrad", {f32({1}), ints({7}), ints({3})}, axis(0)), "index 7"));
}

TEST(OneHot, IgnoresIndicesOutside) {
  EXPECT_EQ(run("OneHot", {ints({1, -1, 5}), scalar(3), tensor({2}, {0, 1})}), (std::vector<double>{0, 1, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(run("OneHot", {ints({1, 0}), scalar(2), tensor({2}, {-1, 1})}, axis(0)), (std::vector<double>{-1, 1, 1, -1}));
  EXPECT_TRUE(mentions(error_of("OneHot", {i64({2}), scalar(-1), f32({2})}), "depth"));
  EXPECT_TRUE(mentions(error_of("OneHot", {i64({2}), scalar(3), f32({3})}), "off, on"));
  EXPECT_TRUE(mentions(error_of("OneHot", {i64({2}), scalar(3), f32({2})}, axis(2)), "out of range"));
}

}  // namespace
}  // namespace gradloom
