// Errors and edge cases of Transpose, Concat, Split, Expand, Tile and Pad.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

Attrs with(const char* name, AttrValue value) { return {{name, std::move(value)}}; }

TEST(Transpose, ChecksThePermutation) {
  EXPECT_EQ(shape_of(infer("Transpose", {f32({-1, 3, 5})})), (Shape{5, 3, -1}));
  EXPECT_EQ(run("Transpose", {ints({1, 2, 3, 4, 5, 6}).reshaped({2, 3})}),
            (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_TRUE(mentions(error_of("Transpose", {f32({2, 3})}, with("perm", List{0})), "entries"));
  EXPECT_TRUE(mentions(error_of("Transpose", {f32({2, 3})}, with("perm", List{0, 0})), "twice"));
  EXPECT_TRUE(mentions(error_of("Transpose", {f32({2, 3})}, with("perm", List{0, 2})), "out of range"));
}

TEST(Transpose, OfManyDimensions) {
  // Nine dimensions that merge into few are fine, nine that do not are refused.
  const Tensor x(DType::f32, Shape(9, 2));
  EXPECT_TRUE(evaluate(op_by_name("Transpose"), with("perm", List{1, 2, 3, 4, 5, 6, 7, 8, 0}), {x}).ok());
  EXPECT_EQ(evaluate(op_by_name("Transpose"), {}, {x}).error().code, Errc::device);
}

TEST(Concat, AddsSizes) {
  const Attrs axis0 = with("axis", std::int64_t{0});
  EXPECT_EQ(shape_of(infer("Concat", {f32({2, 3}), f32({4, 3})}, axis0)), (Shape{6, 3}));
  EXPECT_EQ(shape_of(infer("Concat", {f32({2, -1}), f32({4, 3})}, axis0)), (Shape{6, 3}))
      << "the symbolic dim must be 3";
  const Shape sum = shape_of(infer("Concat", {f32({-1}), f32({4})}, axis0));
  EXPECT_LT(sum[0], -1);
  EXPECT_EQ(sum, shape_of(infer("Concat", {f32({4}), f32({-1})}, axis0)));
  EXPECT_EQ(run("Concat", {ints({}), ints({5}), ints({6, 7})}, axis0), (std::vector<double>{5, 6, 7}));
  EXPECT_TRUE(mentions(error_of("Concat", {f32({2, 3}), f32({4, 5})}, axis0), "differ outside"));
  EXPECT_TRUE(mentions(error_of("Concat", {f32({2}), f32({2, 2})}, axis0), "ranks"));
  EXPECT_TRUE(mentions(error_of("Concat", {f32({2}), i64({2})}, axis0), "types"));
  EXPECT_TRUE(
      mentions(error_of("Concat", {f32({2}), f32({2})}, with("axis", std::int64_t{1})), "out of range"));
  EXPECT_TRUE(mentions(error_of("Concat", {f32({INT64_MAX}), f32({INT64_MAX})}, axis0), "63 bits"));
}

TEST(Split, ChecksSizes) {
  const auto parts = infer("Split", {f32({7, 2}), ints({3, 4})}, {}, 2);
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ((*parts)[1].shape, (Shape{4, 2}));
  EXPECT_TRUE(mentions(error_of("Split", {f32({7, 2}), ints({3, 3})}, {}, 2), "add up to 6"));
  EXPECT_TRUE(mentions(error_of("Split", {f32({7, 2}), ints({8, -1})}, {}, 2), "out of range"));
  EXPECT_TRUE(mentions(error_of("Split", {f32({7, 2}), ints({7})}, {}, 2), "1 sizes for 2 outputs"));
  EXPECT_TRUE(mentions(error_of("Split", {f32({7, 2})}, {}, 2), "equal parts"));
  EXPECT_TRUE(mentions(error_of("Split", {f32({1})}, with("num_outputs", std::int64_t{3}), 3), "too small"));
  EXPECT_TRUE(
      mentions(error_of("Split", {f32({6})}, with("num_outputs", std::int64_t{3}), 2), "num_outputs"));
  const auto symbolic = infer("Split", {f32({-1, 2})}, {}, 2);
  ASSERT_TRUE(symbolic.ok());
  EXPECT_LT((*symbolic)[0].shape[0], 0);
}

TEST(Split, GradientOfAnUnusedPartIsZero) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f64, {5}});
  const auto parts = *b.add(op_by_name("Split"), {x, b.i64s({2, 3})}, {}, 2, {"", "rest"});
  const ValueId loss = b.op("ReduceSum", {b.op("Square", {parts[1]})}, {{"keepdims", std::int64_t{0}}});
  auto grads = add_gradients(graph, loss, {x});
  ASSERT_TRUE(grads.ok());
  ASSERT_TRUE(verify(graph).ok());
  auto values = reference::Runner::create(graph)->run({{x, tensor({5}, {1, 2, 3, 4, 5})}});
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[grads->at(x)].to_f64(), (std::vector<double>{0, 0, 6, 8, 10}));
}

TEST(Expand, BroadcastsBothWays) {
  EXPECT_EQ(shape_of(infer("Expand", {f32({-1, 1}), ints({4, 1, 5})})), (Shape{4, -1, 5}));
  const auto unknown = infer("Expand", {f32({3, 1}), i64({3})});
  ASSERT_TRUE(unknown.ok());
  EXPECT_EQ((*unknown)[0].shape[1], 3);
  EXPECT_LT((*unknown)[0].shape[0], 0);
  EXPECT_TRUE(mentions(error_of("Expand", {f32({3}), ints({4})}), "broadcast"));
  EXPECT_TRUE(mentions(error_of("Expand", {f32({3}), ints({-1})}), "-1"));
  EXPECT_TRUE(mentions(error_of("Expand", {f32({3}), scalar(3)}), "vector"));
  EXPECT_TRUE(mentions(error_of("Expand", {f32({3}), i64({-1})}), "rank"));
}

TEST(Tile, MultipliesSizes) {
  EXPECT_EQ(run("Tile", {ints({1, 2}), ints({3})}), (std::vector<double>{1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(shape_of(infer("Tile", {f32({-1, 3}), ints({1, 2})})), (Shape{-1, 6}));
  EXPECT_TRUE(mentions(error_of("Tile", {f32({3}), ints({1, 2})}), "one repeat"));
  EXPECT_TRUE(mentions(error_of("Tile", {f32({3}), ints({-1})}), "negative"));
  EXPECT_TRUE(mentions(error_of("Tile", {f32({3}), ints({INT64_MAX})}), "63 bits"));
}

TEST(Pad, PadsAndCrops) {
  const Tensor x = ints({1, 2, 3});
  EXPECT_EQ(run("Pad", {x, ints({1, 2}), scalar(9)}), (std::vector<double>{9, 1, 2, 3, 9, 9}));
  EXPECT_EQ(run("Pad", {x, ints({-1, -1})}), (std::vector<double>{2}));
  EXPECT_EQ(run("Pad", {x, ints({-2, 1})}), (std::vector<double>{3, 0}));
  EXPECT_EQ(run("Pad", {x, ints({-3, 1})}), (std::vector<double>{0}));
  EXPECT_TRUE(run("Pad", {x, ints({-3, 0})}).empty());
  EXPECT_TRUE(mentions(error_of("Pad", {f32({3}), ints({-4, 0})}), "do not fit"));
  EXPECT_TRUE(mentions(error_of("Pad", {f32({3}), ints({-4, 4})}), "do not fit"))
      << "cropping may not pass the end";
  EXPECT_TRUE(mentions(error_of("Pad", {f32({3}), ints({INT64_MAX, 1})}), "do not fit"));
  EXPECT_TRUE(mentions(error_of("Pad", {f32({3}), ints({1})}), "two pads"));
  EXPECT_TRUE(mentions(error_of("Pad", {f32({3}), ints({1, 1}), scalar(0)}), "the input's type"));
  EXPECT_TRUE(
      mentions(error_of("Pad", {f32({3}), ints({1, 1})}, with("mode", std::string("mirror"))), "mirror"));
  EXPECT_TRUE(mentions(error_of("Pad", {f32({3}), i64({2})}), "known"));
  EXPECT_TRUE(mentions(error_of("Pad", {f32({3, 4}), ints({1, 1, 1, 1}), {}, ints({0, 0})}), "twice"));
}

}  // namespace
}  // namespace gradloom
