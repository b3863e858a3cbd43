#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::op_counts;
using test::run_and_compare;
using test::why_nots;

struct LayerNormForm {
  bool power = true, bias = true;
  int opset = 13;
  std::vector<std::int64_t> axes = {-1}, variance_axes = {-1};
  bool keepdims = true;
  Shape scale = {8};
  Shape epsilon = {};
};

struct Built {
  Graph graph;
  ValueId deviation = kNone;
};

Built layernorm(const LayerNormForm& form) {
  Built built;
  Graph& graph = built.graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f64, {2, 3, 8}}), w = b.input("w", {DType::f64, form.scale});
  const auto mean = [&](ValueId v, const std::vector<std::int64_t>& axes) {
    Attrs attrs{{"keepdims", std::int64_t{form.keepdims}}};
    std::vector<ValueId> inputs = {v};
    if (form.opset < 18)
      attrs.set("axes", axes);
    else
      inputs.push_back(b.i64s(axes));
    return b.op(*find_op("ReduceMean", "", form.opset), inputs, attrs);
  };
  const ValueId d = b.op("Sub", {x, mean(x, form.axes)});
  const ValueId square = form.power ? b.op("Pow", {d, b.scalar(DType::f64, 2)}) : b.op("Mul", {d, d});
  const ValueId epsilon = b.constant(Tensor::from_f64(DType::f64, form.epsilon, {1e-5}));
  built.deviation = b.op("Sqrt", {b.op("Add", {mean(square, form.variance_axes), epsilon})});
  ValueId y = b.op("Mul", {b.op("Div", {d, built.deviation}), w});
  if (form.bias) y = b.op("Add", {y, b.input("b", {DType::f64, form.scale})});
  graph.outputs = {y};
  return built;
}

TEST(FuseLayerNorm, EveryFormBecomesOneNode) {
  for (bool power : {true, false}) {
    for (bool bias : {true, false}) {
      for (int opset : {13, 18}) {
        Graph graph = layernorm({power, bias, opset}).graph;
        EXPECT_EQ(run_and_compare(graph, "fuse-layernorm", 1e-12).matched, 1) << power << bias << opset;
        EXPECT_EQ(op_counts(graph), (std::map<std::string, int>{{"LayerNormalization", 1}}))
            << power << bias << opset;
      }
    }
  }
}

TEST(FuseLayerNorm, OverTheLastTwoAxes) {
  Graph graph = layernorm({.axes = {1, 2}, .variance_axes = {-2, -1}, .scale = {3, 8}}).graph;
  EXPECT_EQ(run_and_compare(graph, "fuse-layernorm", 1e-12).matched, 1);
  for (const Node& node : graph.nodes) {
    if (node.alive()) {
      EXPECT_EQ(node.attrs.integer("axis"), 1);
    }
  }
}

void expect_kept(Graph graph, const std::string& reason) {
  const PassReport report = run_and_compare(graph, "fuse-layernorm", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find(reason), std::string::npos) << why_nots(report);
}

TEST(FuseLayerNorm, DifferentAxesStay) {
  expect_kept(layernorm({.axes = {2}, .variance_axes = {1}, .scale = {8}}).graph, "over different axes");
}

TEST(FuseLayerNorm, AxesThatAreNotTheLastStay) {
  expect_kept(layernorm({.axes = {1}, .variance_axes = {1}, .scale = {8}}).graph, "not the last");
}

TEST(FuseLayerNorm, AScaleOfAnotherShapeStays) {
  expect_kept(layernorm({.scale = {3, 8}}).graph, "scale is f64[3, 8]");
}

TEST(FuseLayerNorm, AnEpsilonOfMoreDimsStays) {
  expect_kept(layernorm({.epsilon = {1, 1, 1, 1}}).graph, "the result has another type than the input");
}

TEST(FuseLayerNorm, APieceReadElsewhereStays) {
  Built built = layernorm({});
  built.graph.outputs.push_back(built.deviation);
  expect_kept(built.graph, "is also an output of the graph");
}

TEST(FuseLayerNorm, AStandardDeviationAloneIsNotReportedAsMatched) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4}});
  graph.outputs = {b.op("Add", {b.op("Sqrt", {b.op("Abs", {x})}), x})};
  EXPECT_EQ(run_and_compare(graph, "fuse-layernorm", 0).matched, 0);
}

}  // namespace
}  // namespace gradloom
