#include "engine/autodiff/autodiff.h"

#include <gtest/gtest.h>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

ValueId scalar_sum(GraphBuilder& b, ValueId v) {
  std::vector<std::int64_t> axes;
  for (std::size_t i = 0; i < b.shape(v).size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  return b.op("ReduceSum", {v, b.i64s(axes)}, {{"keepdims", std::int64_t{0}}});
}

int count_ops(const Graph& graph, const std::string& op, Phase phase) {
  int n = 0;
  for (const Node& node : graph.nodes) n += node.alive() && op == node.op->name && node.origin.phase == phase;
  return n;
}

TEST(Autodiff, SecondUseAccumulates) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId w = b.parameter("w", Tensor::from_f64(DType::f64, {3}, {1, 2, 3}));
  const ValueId loss = scalar_sum(b, b.op("Add", {b.op("Mul", {w, w}), w}));
  const auto grads = add_gradients(graph, loss, {w});
  ASSERT_TRUE(grads.ok()) << grads.error().message;
  ASSERT_NE(grads->at(w), kNone);
  EXPECT_EQ(graph.type(grads->at(w)), graph.type(w));
  EXPECT_GE(count_ops(graph, "Add", Phase::backward), 2);  // three paths to w
  EXPECT_TRUE(verify(graph).ok());
}

TEST(Autodiff, NoPathGivesNoGradient) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId w = b.parameter("w", Tensor(DType::f32, {3}));
  const ValueId unused = b.parameter("unused", Tensor(DType::f32, {3}));
  const ValueId loss = scalar_sum(b, b.op("Exp", {w}));
  const auto grads = add_gradients(graph, loss, {w, unused});
  ASSERT_TRUE(grads.ok());
  EXPECT_NE(grads->at(w), kNone);
  EXPECT_EQ(grads->at(unused), kNone);
}

TEST(Autodiff, StopsAtIntegersAndComparisons) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId w = b.parameter("w", Tensor(DType::f32, {3}));
  const ValueId mask = b.op("Greater", {w, b.scalar(DType::f32, 0)});
  const ValueId picked = b.op("Where", {mask, w, b.scalar(DType::f32, 0)});
  const auto grads = add_gradients(graph, scalar_sum(b, picked), {w});
  ASSERT_TRUE(grads.ok()) << grads.error().message;
  EXPECT_NE(grads->at(w), kNone);
}

TEST(Autodiff, EveryMissingGradientIsNamedAtOnce) {
  Graph graph;
  GraphBuilder b(graph);
  static OpDef no_gradient = op_by_name("Exp");
  no_gradient.name = "NoGrad";
  no_gradient.grad = nullptr;
  const ValueId w = b.parameter("w", Tensor(DType::f32, {3}));
  const ValueId first = b.op(no_gradient, {w});
  const ValueId second = b.op(no_gradient, {first});
  const ValueId loss = scalar_sum(b, second);
  EXPECT_EQ(missing_gradients(graph, {loss}, {w}).size(), 2u);
  const auto grads = add_gradients(graph, loss, {w});
  ASSERT_FALSE(grads.ok());
  EXPECT_EQ(grads.error().code, Errc::bad_input);
  EXPECT_NE(grads.error().message.find("NoGrad, NoGrad_1"), std::string::npos) << grads.error().message;
}

TEST(Autodiff, LossMustBeAFloatScalar) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId w = b.parameter("w", Tensor(DType::f32, {3}));
  const ValueId e = b.op("Exp", {w});
  const auto grads = add_gradients(graph, e, {w});
  ASSERT_FALSE(grads.ok());
  EXPECT_NE(grads.error().message.find("scalar"), std::string::npos);
}

TEST(Autodiff, BackwardNodesNameTheirForwardSource) {
  Graph graph;
  graph.sources = {{"/mlp/act/Exp", "Exp", "", "mlp/act"}};
  GraphBuilder b(graph);
  const ValueId w = b.parameter("w", Tensor(DType::f32, {3}));
  ValueId e = kNone;
  {
    const BuildScope from_model(b, {.origin = {{0}}});
    e = b.op("Exp", {w});
  }
  ASSERT_TRUE(add_gradients(graph, scalar_sum(b, e), {w}).ok());
  int found = 0;
  for (const Node& n : graph.nodes)
    if (n.alive() && n.origin.phase == Phase::backward && n.origin.sources == std::vector<std::uint32_t>{0})
      ++found;
  EXPECT_GE(found, 1);
}

}  // namespace
}  // namespace gradloom
