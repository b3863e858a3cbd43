#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::run_and_compare;
using test::why_nots;

struct RmsNormForm {
  std::string inverse = "reciprocal";  // or quotient, one-over, power
  bool square_by_power = true;
  int opset = 13;
  std::vector<std::int64_t> axes = {-1};
  Shape scale = {8};
  double epsilon = 1e-5;
  Shape epsilon_shape = {};
};

struct Built {
  Graph graph;
  ValueId mean = kNone;
};

Built rmsnorm(const RmsNormForm& form) {
  Built built;
  Graph& graph = built.graph;
  GraphBuilder b(graph);
  const DType f64 = DType::f64;
  const ValueId x = b.input("x", {f64, {2, 3, 8}}), w = b.input("w", {f64, form.scale});
  Attrs attrs{{"keepdims", std::int64_t{1}}};
  std::vector<ValueId> inputs = {form.square_by_power ? b.op("Pow", {x, b.scalar(f64, 2)})
                                                      : b.op("Mul", {x, x})};
  if (form.opset < 18)
    attrs.set("axes", form.axes);
  else
    inputs.push_back(b.i64s(form.axes));
  built.mean = b.op(*find_op("ReduceMean", "", form.opset), inputs, attrs);
  const ValueId shifted =
      b.op("Add", {built.mean, b.constant(Tensor::from_f64(f64, form.epsilon_shape, {form.epsilon}))});
  if (form.inverse == "power") {
    graph.outputs = {b.op("Mul", {b.op("Mul", {x, b.op("Pow", {shifted, b.scalar(f64, -0.5)})}), w})};
    return built;
  }
  const ValueId root = b.op("Sqrt", {shifted});
  ValueId normalized = kNone;
  if (form.inverse == "quotient")
    normalized = b.op("Div", {x, root});
  else
    normalized = b.op(
        "Mul",
        {form.inverse == "one-over" ? b.op("Div", {b.scalar(f64, 1), root}) : b.op("Reciprocal", {root}), x});
  graph.outputs = {b.op("Mul", {w, normalized})};
  return built;
}

TEST(FuseRmsNorm, EveryFormBecomesOneNode) {
  for (const std::string inverse : {"reciprocal", "quotient", "one-over", "power"}) {
    for (bool power : {true, false}) {
      for (int opset : {13, 18}) {
        Graph graph = rmsnorm({inverse, power, opset}).graph;
        EXPECT_EQ(run_and_compare(graph, "fuse-rmsnorm", 1e-12).matched, 1) << inverse << power << opset;
        EXPECT_EQ(op_counts(graph), (Counts{{"RMSNormalization", 1}})) << inverse << power << opset;
      }
    }
  }
}

TEST(FuseRmsNorm, OverTheLastTwoAxes) {
  Graph graph = rmsnorm({.axes = {1, -1}, .scale = {3, 8}}).graph;
  EXPECT_EQ(run_and_compare(graph, "fuse-rmsnorm", 1e-12).matched, 1);
  EXPECT_EQ(graph.nodes.back().attrs.integer("axis"), 1);
}

void expect_kept(Graph graph, const std::string& reason) {
  const PassReport report = run_and_compare(graph, "fuse-rmsnorm", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find(reason), std::string::npos) << why_nots(report);
}

TEST(FuseRmsNorm, AxesThatAreNotTheLastStay) { expect_kept(rmsnorm({.axes = {1}}).graph, "not the last"); }

TEST(FuseRmsNorm, AScaleOfAnotherShapeStays) {
  expect_kept(rmsnorm({.scale = {3, 8}}).graph, "scale is f64[3, 8]");
}

TEST(FuseRmsNorm, ANegativeEpsilonStays) {
  expect_kept(rmsnorm({.epsilon = -1e-5}).graph, "epsilon is negative");
}

TEST(FuseRmsNorm, AnEpsilonOfMoreDimsStays) {
  expect_kept(rmsnorm({.epsilon_shape = {1, 1, 1, 1}}).graph, "the result has another type than the input");
}

TEST(FuseRmsNorm, APieceReadElsewhereStays) {
  Built built = rmsnorm({});
  built.graph.outputs.push_back(built.mean);
  expect_kept(built.graph, "is also an output of the graph");
}

TEST(FuseRmsNorm, TheSquareOfSomethingElseStays) {
  Graph graph;
  GraphBuilder b(graph);
  const Type type{DType::f32, {4, 8}};
  const ValueId x = b.input("x", type), z = b.input("z", type), w = b.input("w", {DType::f32, {8}});
  const ValueId mean = b.op(*find_op("ReduceMean", "", 13), {b.op("Mul", {z, z})},
                            {{"axes", std::vector<std::int64_t>{-1}}, {"keepdims", std::int64_t{1}}});
  const ValueId root = b.op("Sqrt", {b.op("Add", {mean, b.scalar(DType::f32, 1e-5)})});
  graph.outputs = {b.op("Mul", {b.op("Div", {x, root}), w})};
  EXPECT_EQ(run_and_compare(graph, "fuse-rmsnorm", 0).matched, 0);
}

}  // namespace
}  // namespace gradloom
