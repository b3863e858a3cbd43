// Lookup by opset, broadcasting with symbolic dims, evaluation, and the helpers of gradient rules.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

TEST(Registry, FindsTheRowOfAnOpset) {
  EXPECT_STREQ(find_op("Add", "", 13)->name, "Add");
  EXPECT_EQ(find_op("Add", "ai.onnx", 13), find_op("Add", "", 13));
  EXPECT_EQ(find_op("Add", "somewhere.else", 13), nullptr);
  EXPECT_EQ(find_op("NoSuchOperator", "", 13), nullptr);
  EXPECT_NE(find_op("Softmax", "", 12), find_op("Softmax", "", 13));
  EXPECT_EQ(find_op("Gelu", "", 19), nullptr);
  ASSERT_NE(find_op("Gelu", "", 20), nullptr);
  // Our own code means the elementwise one.
  EXPECT_TRUE(op_by_name("Gelu").has(kElementwise));
}

TEST(Registry, RowsOfOneNameDoNotOverlap) {
  for (const OpDef* a : all_ops()) {
    EXPECT_LE(a->since, a->until);
    for (const OpDef* b : all_ops()) {
      if (a == b || std::string(a->name) != b->name || std::string(a->domain) != b->domain) continue;
      EXPECT_TRUE(a->until < b->since || b->until < a->since) << a->name;
    }
  }
}

TEST(Broadcast, StaticShapes) {
  EXPECT_EQ(*broadcast_shapes({4, 1, 3}, {5, 1}), (Shape{4, 5, 3}));
  EXPECT_EQ(*broadcast_shapes({}, {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(*broadcast_shapes({0, 3}, {1}), (Shape{0, 3}));
  EXPECT_EQ(*broadcast_shapes({1}, {0}), (Shape{0}));
  EXPECT_FALSE(broadcast_shapes({2}, {3}).ok());
  EXPECT_FALSE(broadcast_shapes({0}, {3}).ok());
}

TEST(Broadcast, SymbolicDims) {
  EXPECT_EQ(*broadcast_shapes({-1, 3}, {-1, 3}), (Shape{-1, 3}));
  EXPECT_EQ(*broadcast_shapes({-1, 3}, {3}), (Shape{-1, 3}));
  EXPECT_EQ(*broadcast_shapes({-1}, {7}), (Shape{7}));
  const Shape derived = *broadcast_shapes({-1}, {-2});
  EXPECT_LT(derived[0], -2);
  EXPECT_EQ(derived, *broadcast_shapes({-2}, {-1})) << "the same formula is the same dimension";
  EXPECT_NE(derived, *broadcast_shapes({-1}, {-3}));
}

TEST(Axis, IsNormalized) {
  EXPECT_EQ(*normalized_axis(-1, 3), 2);
  EXPECT_EQ(*normalized_axis(0, 1), 0);
  for (std::int64_t axis : {std::int64_t{3}, std::int64_t{-4}, INT64_MIN, INT64_MAX})
    EXPECT_FALSE(normalized_axis(axis, 3).ok());
  EXPECT_FALSE(normalized_axis(0, 0).ok());
}

TEST(Evaluate, RunsIndexArithmetic) {
  EXPECT_EQ(run("Add", {ints({1, 2}), ints({10})}), (std::vector<double>{11, 12}));
  EXPECT_EQ(run("Div", {ints({7, -7, 5}), ints({2, 2, 0})}), (std::vector<double>{3, -3, 0}));
  EXPECT_EQ(run("ReduceProd", {ints({2, 3, 4})}, {{"keepdims", std::int64_t{0}}}), (std::vector<double>{24}));
  EXPECT_EQ(run("Where", {tensor({2}, {1, 0}, DType::boolean), ints({5, 6}), ints({-1})}),
            (std::vector<double>{5, -1}));
  EXPECT_EQ(run("Reshape", {ints({1, 2, 3, 4}), ints({2, -1})}), (std::vector<double>{1, 2, 3, 4}));
}

TEST(Evaluate, LargeIntegersStayExact) {
  const std::int64_t big = (std::int64_t{1} << 60) + 1;
  auto sum = evaluate(op_by_name("Add"), {}, {ints({1, 2}), scalar(big)});
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ((*sum)[0].to_i64(), (List{big + 1, big + 2}));
}

TEST(Evaluate, ReportsErrors) {
  EXPECT_EQ(evaluate(op_by_name("Add"), {}, {ints({1, 2}), ints({1, 2, 3})}).error().code, Errc::bad_input);
  EXPECT_EQ(evaluate(op_by_name("Add"), {}, {ints({1}), Tensor()}).error().code, Errc::bad_input);
  // More elements than memory could hold: an error, not an allocation.
  const auto huge =
      evaluate(op_by_name("Expand"), {}, {scalar(1), ints({std::int64_t{1} << 40, std::int64_t{1} << 40})});
  EXPECT_EQ(huge.error().code, Errc::limit);
  const auto no_kernel = evaluate(op_by_name("MatMul"), {},
                                  {tensor({1, 1}, {1}, DType::boolean), tensor({1, 1}, {1}, DType::boolean)});
  ASSERT_FALSE(no_kernel.ok());
  EXPECT_EQ(no_kernel.error().code, Errc::device);
}

TEST(NodeTypes, TellWhatIsPresentAndKnown) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", f32({3, 4}));
  const ValueId y = b.op("Clip", {x, kNone, b.scalar(DType::f32, 2)});
  const NodeTypes types = node_types(graph, graph.nodes[graph.values[y].producer]);
  EXPECT_TRUE(types.has(0) && !types.has(1) && types.has(2) && !types.has(3));
  EXPECT_EQ(types.constants[0], nullptr);
  EXPECT_EQ(types.constants[2]->at(0), 2);
  EXPECT_EQ(types.outputs[0], f32({3, 4}));
  const Cost cost = default_cost(types);
  EXPECT_EQ(cost.flops, 12);
  EXPECT_EQ(cost.bytes_read, 12 * 4 + 4);
  EXPECT_EQ(cost.bytes_written, 12 * 4);
}

struct ReduceCase {
  Shape from, to;
};

// Reducing a gradient of ones counts how often each element was broadcast.
TEST(ReduceTo, CountsBroadcasts) {
  for (const ReduceCase& c : {ReduceCase{{4, 3, 5}, {3, 1}},
                              {{4, 3}, {4, 3}},
                              {{2, 3}, {}},
                              {{2, 3}, {1, 1}},
                              {{2, 3, 4}, {3, 4}},
                              {{0, 3}, {3}},
                              {{5}, {1}}}) {
    Graph graph;
    GraphBuilder b(graph);
    const ValueId like = b.input("x", {DType::f64, c.to});
    const ValueId ones = b.input("ones", {DType::f64, c.from});
    Node node;
    GradContext ctx{b, node, 0, {}, {}, {}};
    const ValueId reduced = ctx.reduce_to(ones, like);
    EXPECT_EQ(graph.type(reduced).shape, c.to);
    auto runner = reference::Runner::create(graph);
    ASSERT_TRUE(runner.ok());
    const auto n = static_cast<std::size_t>(element_count(c.from)),
               m = static_cast<std::size_t>(element_count(c.to));
    auto values = runner->run({{ones, tensor(c.from, std::vector<double>(n, 1.0))},
                               {like, tensor(c.to, std::vector<double>(m, 0.0))}});
    ASSERT_TRUE(values.ok());
    EXPECT_EQ((*values)[reduced].to_f64(),
              std::vector<double>(m, m == 0 ? 0 : static_cast<double>(n) / static_cast<double>(m)));
  }
}

TEST(RequireOut, AddsAnOmittedOutputOnce) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", f32({3, 6}));
  const auto parts = *b.add(op_by_name("Split"), {x}, {{"axis", std::int64_t{1}}}, 2, {"first", ""});
  const NodeId id = graph.values[parts[0]].producer;
  EXPECT_EQ(parts[1], kNone);
  GradContext ctx{b, graph.nodes[id], id, {}, {}, {}};
  const ValueId second = ctx.require_out(1);
  EXPECT_EQ(graph.type(second), f32({3, 3}));
  EXPECT_EQ(graph.nodes[id].outputs, (std::vector<ValueId>{parts[0], second}));
  EXPECT_EQ(ctx.require_out(1), second);
  EXPECT_TRUE(verify(graph).ok());
}

}  // namespace
}  // namespace gradloom
