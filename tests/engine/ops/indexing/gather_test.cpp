// Gather, its gradient and OneHot: shapes, repeated and negative indices, errors.
#include <cmath>

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
  EXPECT_EQ(run("GatherGrad", {tensor({4}, {1, 2, 4, 8}), ints({0, 2, 0, -1}), ints({3})}, axis(0)),
            (std::vector<double>{5, 0, 10}));
  // 33 copies of one row and none of the other.
  const auto rows =
      run("GatherGrad",
          {tensor({33, 2}, std::vector<double>(66, 0.5)), Tensor(DType::i64, {33}), ints({2, 2})}, axis(0));
  EXPECT_EQ(rows, (std::vector<double>{16.5, 16.5, 0, 0}));
}

TEST(GatherGrad, ChecksTheGradientsShape) {
  EXPECT_TRUE(
      mentions(error_of("GatherGrad", {f32({4, 5}), i64({4}), ints({3, 6})}, axis(0)), "gradient is"));
  EXPECT_TRUE(mentions(error_of("GatherGrad", {f32({4}), i64({4}), ints({3, 6})}, axis(0)), "rank"));
  EXPECT_TRUE(mentions(error_of("GatherGrad", {f32({4}), i64({4}), i64({1})}, axis(0)), "known"));
  EXPECT_TRUE(mentions(error_of("GatherGrad", {f32({1}), ints({7}), ints({3})}, axis(0)), "index 7"));
}

TEST(GatherGrad, AddsToABase) {
  EXPECT_EQ(
      run("GatherGrad",
          {tensor({4}, {1, 2, 4, 8}), ints({0, 2, 0, -1}), ints({3}), tensor({3}, {100, 200, 300})}, axis(0)),
      (std::vector<double>{105, 200, 310}));
  EXPECT_TRUE(mentions(error_of("GatherGrad", {f32({4}), i64({4}), ints({3}), f32({2})}, axis(0)), "base"));
}

// In the first micro-batch the accumulator may hold anything.
TEST(AccumulateRows, AddsSharesOfRows) {
  Attrs attrs = axis(0);
  attrs.set("count", std::int64_t{2});
  const Tensor dy = tensor({4}, {1, 2, 4, 8}), rows = ints({0, 2, 0, -1}),
               nan = tensor({3}, {1, std::nan(""), 1});
  EXPECT_EQ(run("AccumulateRows", {nan, ints({0}).reshaped({}), dy, rows}, attrs),
            (std::vector<double>{2.5, 0, 5}));
  const Tensor acc = tensor({3}, {10, 20, 30});
  EXPECT_EQ(run("AccumulateRows", {acc, ints({3}).reshaped({}), dy, rows}, attrs),
            (std::vector<double>{12.5, 20, 35}));
  EXPECT_EQ(run("AccumulateRows", {acc, Tensor(), dy, rows}, attrs), (std::vector<double>{12.5, 20, 35}));
  EXPECT_TRUE(mentions(error_of("AccumulateRows", {f32({3, 5}), i64({}), f32({4, 6}), i64({4})}, axis(0)),
                       "gradient is"));
  EXPECT_TRUE(
      mentions(error_of("AccumulateRows", {f32({3}), f32({}), f32({4}), i64({4})}, axis(0)), "micro"));
}

TEST(GatherElements, ChecksShapesAndIndices) {
  EXPECT_EQ(run("GatherElements", {ints({1, 2, 3, 4}).reshaped({2, 2}), ints({0, 0, 1, -2}).reshaped({2, 2})},
                axis(1)),
            (std::vector<double>{1, 1, 4, 3}));
  EXPECT_EQ(shape_of(infer("GatherElements", {f32({-1, 7}), i64({5, 1})}, axis(1))), (Shape{5, 1}));
  EXPECT_TRUE(mentions(error_of("GatherElements", {f32({3, 4}), i64({3})}), "rank"));
  EXPECT_TRUE(mentions(error_of("GatherElements", {f32({3, 4}), i64({4, 4})}, axis(1)), "beyond"));
  EXPECT_TRUE(mentions(error_of("GatherElements", {f32({3}), ints({3})}), "index 3"));
  EXPECT_TRUE(mentions(error_of("GatherElements", {f32({3}), f32({3})}), "indices"));
  EXPECT_TRUE(
      mentions(error_of("GatherElementsGrad", {f32({3}), i64({2}), ints({3})}), "shape of the indices"));
}

// What only turns up when running cannot be an error there: it reads zeros and adds nothing.
TEST(GatherElements, IndicesOutsideReadZeros) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f64, {3}}), indices = b.input("indices", i64({3}));
  const ValueId y = b.op("GatherElements", {x, indices});
  const ValueId dx = b.op("GatherElementsGrad", {y, indices, b.i64s({3})});
  auto values =
      reference::Runner::create(graph)->run({{x, tensor({3}, {5, 6, 7})}, {indices, ints({3, -1, -4})}});
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[y].to_f64(), (std::vector<double>{0, 7, 0}));
  EXPECT_EQ((*values)[dx].to_f64(), (std::vector<double>{0, 0, 7}));
}

TEST(OneHot, IgnoresIndicesOutside) {
  EXPECT_EQ(run("OneHot", {ints({1, -1, 5}), scalar(3), tensor({2}, {0, 1})}),
            (std::vector<double>{0, 1, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(run("OneHot", {ints({1, 0}), scalar(2), tensor({2}, {-1, 1})}, axis(0)),
            (std::vector<double>{-1, 1, 1, -1}));
  EXPECT_TRUE(mentions(error_of("OneHot", {i64({2}), scalar(-1), f32({2})}), "depth"));
  EXPECT_TRUE(mentions(error_of("OneHot", {i64({2}), scalar(3), f32({3})}), "off, on"));
  EXPECT_TRUE(mentions(error_of("OneHot", {i64({2}), scalar(3), f32({2})}, axis(2)), "out of range"));
}

}  // namespace
}  // namespace gradloom
