#include <gtest/gtest.h>

#include "passes/compile.h"
#include "tests/passes/matmul_support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::f64;
using test::Perm;
using test::run_pass;
using FuseMatMulEpilogue = test::MatMulTest;

constexpr const char* kPass = "fuse-matmul-epilogue";

// x [2, 3, 4] through a layer of `columns` columns.
struct Layer {
  ValueId x, w, bias, before;
  Layer(GraphBuilder& b, std::int64_t columns = 8)
      : x(b.input("x", {f64, {2, 3, 4}})),
        w(b.input("w", {f64, {4, columns}})),
        bias(b.input("bias", {f64, {columns}})),
        before(b.op("FusedMatMul", {x, w, bias})) {}
};

// dY of a layer's result, and what the products of a backward pass read of it.
struct Rows {
  ValueId x, dy;
  explicit Rows(GraphBuilder& b) : x(b.input("x", {f64, {6, 4}})), dy(b.input("dy", {f64, {2, 3, 5}})) {}
  static ValueId sum(GraphBuilder& b, ValueId of, const std::vector<std::int64_t>& axes, bool keep = false) {
    return b.op("ReduceSum", {of, b.i64s(axes)}, {{"keepdims", std::int64_t{keep}}});
  }
  ValueId flat(GraphBuilder& b) const { return b.op("Reshape", {dy, b.i64s({-1, 5})}); }
};

TEST_F(FuseMatMulEpilogue, GeluGivesOneResultOrTwo) {
  const Layer layer(b);
  const ValueId other = b.op("MatMul", {layer.x, layer.w});
  graph.outputs = {b.op("GeluTanh", {layer.before}), b.op("Exp", {layer.before}), b.op("GeluTanh", {other})};
  expect_matched(kPass, {{"FusedMatMul", 2}, {"Exp", 1}});
  for (const Node& node : graph.nodes) {
    if (!node.alive() || std::string(node.op->name) != "FusedMatMul") continue;
    EXPECT_EQ(node.outputs.size(), node.inputs.size() == 3 ? 2u : 1u);
    EXPECT_EQ(node.attrs.text("activation", ""), "gelu_tanh");
  }
}

TEST_F(FuseMatMulEpilogue, TheNewerGeluOperatorToo) {
  graph.opset = 20;
  const Layer layer(b);
  const OpDef* gelu = find_op("Gelu", "", 20);
  ASSERT_NE(gelu, nullptr);
  graph.outputs = {b.op(*gelu, {layer.before}, {{"approximate", std::string("tanh")}})};
  expect_matched(kPass, {{"FusedMatMul", 1}});
}

TEST_F(FuseMatMulEpilogue, TheSlopeJoinsTheProductOfItsGradient) {
  const ValueId dy = b.input("dy", {f64, {2, 3, 5}}), v = b.input("v", {f64, {8, 5}}),
                x = b.input("x", {f64, {2, 3, 8}});
  const Attrs turned{{"perm_b", Perm{1, 0}}, {"alpha", 0.5}};
  graph.outputs = {b.op("GeluTanhGrad", {b.op("FusedMatMul", {dy, v}, turned), x})};
  expect_matched(kPass, {{"FusedMatMulGrad", 1}});
}

TEST_F(FuseMatMulEpilogue, TheErfFormStaysAndSaysWhy) {
  const Layer layer(b);
  const ValueId dy = b.input("dy", {f64, {2, 3, 8}}), v = b.input("v", {f64, {8, 8}});
  graph.outputs = {b.op("Gelu", {layer.before}),
                   b.op("GeluGrad", {b.op("MatMul", {dy, v}), b.op("Neg", {dy})})};
  const PassReport report = run_pass(graph, kPass);
  EXPECT_EQ(report.matched, 0);
  const std::string why = test::why_nots(report);
  EXPECT_NE(why.find("gelu at "), std::string::npos) << why;
  EXPECT_NE(why.find("gelu-gradient at "), std::string::npos) << why;
  EXPECT_NE(why.find("the erf form"), std::string::npos) << why;
}

TEST_F(FuseMatMulEpilogue, ColumnsThatTheLibrariesDoNotTakeStay) {
  const Layer layer(b, 12);
  graph.outputs = {b.op("GeluTanh", {layer.before})};
  expect_rejected(kPass, "12 columns");
}

TEST_F(FuseMatMulEpilogue, AProductOfBatchesOrWithAnActivationStays) {
  const ValueId x = b.input("x", {f64, {2, 3, 4}}), y = b.input("y", {f64, {2, 4, 8}}),
                w = b.input("w", {f64, {4, 8}}), t = b.input("t", {f64, {8, 4}});
  graph.outputs = {b.op("GeluTanh", {b.op("MatMul", {x, y})})};
  expect_rejected(kPass, "a product of batches");
  graph.outputs = {b.op("GeluTanh", {b.op("FusedMatMul", {x, w}, {{"activation", std::string("relu")}})})};
  expect_rejected(kPass, "the product has an activation already");
  graph.outputs = {b.op("GeluTanh", {b.op("FusedMatMul", {t, w}, {{"perm_y", Perm{1, 0}}})})};
  expect_rejected(kPass, "the product writes its result transposed");
}

TEST_F(FuseMatMulEpilogue, AGradientReadElsewhereStays) {
  const ValueId dy = b.input("dy", {f64, {2, 3, 5}}), v = b.input("v", {f64, {5, 8}}),
                x = b.input("x", {f64, {2, 3, 8}});
  const ValueId product = b.op("MatMul", {dy, v});
  graph.outputs = {b.op("GeluTanhGrad", {product, x}), b.op("Exp", {product})};
  expect_rejected(kPass, "is also read by node Exp");
}

TEST_F(FuseMatMulEpilogue, SumsOfRowsJoinTheProductThatSumsThem) {
  const Rows rows(b);
  const Attrs turned{{"perm_a", Perm{1, 0}}};
  graph.outputs = {b.op("FusedMatMul", {rows.x, rows.flat(b)}, turned), Rows::sum(b, rows.dy, {0, 1})};
  expect_matched(kPass, {{"FusedMatMulGrad", 1}, {"Reshape", 1}});
}

// The gradient of a weight that is stored as its transpose: dY is the left operand,
// and Gemm is a product too.
TEST_F(FuseMatMulEpilogue, OnEitherSide) {
  const ValueId x = b.input("x", {f64, {6, 4}}), dy = b.input("dy", {f64, {6, 5}});
  graph.outputs = {b.op("Gemm", {dy, x}, {{"transA", std::int64_t{1}}}), Rows::sum(b, dy, {-2})};
  expect_matched(kPass, {{"FusedMatMulGrad", 1}});
}

TEST_F(FuseMatMulEpilogue, OtherSumsStay) {
  const Rows rows(b);
  const Attrs turned{{"perm_a", Perm{1, 0}}};
  const ValueId square = b.input("square", {f64, {6, 6}});
  graph.outputs = {b.op("FusedMatMul", {rows.x, rows.flat(b)}, turned),
                   Rows::sum(b, rows.dy, {0, 1}, true),  // of another shape
                   Rows::sum(b, rows.dy, {0, 2}), Rows::sum(b, rows.dy, {2}),
                   // summed over the other axis by the product
                   b.op("MatMul", {square, rows.x}), Rows::sum(b, square, {0})};
  const PassReport report = run_pass(graph, kPass);
  EXPECT_TRUE(report.log.empty()) << test::why_nots(report);
}

TEST_F(FuseMatMulEpilogue, AScaledProductStays) {
  const Rows rows(b);
  const Attrs scaled{{"perm_a", Perm{1, 0}}, {"alpha", 2.0}};
  graph.outputs = {b.op("FusedMatMul", {rows.x, rows.flat(b)}, scaled), Rows::sum(b, rows.dy, {0, 1})};
  expect_rejected(kPass, "the product has a scale");
}

TEST_F(FuseMatMulEpilogue, AProductThatWaitsForTheSumsStays) {
  const Rows rows(b);
  const ValueId sums = Rows::sum(b, rows.dy, {0, 1});
  const ValueId x = b.op("Mul", {rows.x, b.op("ReduceSum", {sums})});
  graph.outputs = {b.op("FusedMatMul", {x, rows.flat(b)}, {{"perm_a", Perm{1, 0}}}), sums};
  expect_rejected(kPass, "the product waits for the sums");
}

TEST_F(FuseMatMulEpilogue, OnTheCpuOnlyWhenAsked) {
  const Layer layer(b);
  graph.outputs = {b.op("GeluTanh", {layer.before})};
  Graph asked = graph;
  const PassReport report = run_pass(graph, kPass, kernels::Target::cpu);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(test::why_nots(report).find("for GPUs"), std::string::npos) << test::why_nots(report);
  EXPECT_EQ(run_pass(asked, std::string(kPass) + "{devices=all}", kernels::Target::cpu).matched, 1);
}

// compile() tells passes what the plan is for.
TEST_F(FuseMatMulEpilogue, TheDeviceOfThePlanDecides) {
  const Layer layer(b);
  graph.outputs = {b.op("ReduceSum", {b.op("GeluTanh", {layer.before})}, {{"keepdims", std::int64_t{0}}})};
  for (const kernels::Target target : {kernels::Target::cpu, kernels::Target::gpu}) {
    CompileOptions options;
    options.gradients_only = true;
    options.target = target;
    options.pipeline = *parse_pipeline(kPass);
    const auto compiled = compile(graph, options);
    ASSERT_OK(compiled);
    const Counts counts = test::op_counts(compiled->train.graph);
    EXPECT_EQ(counts.count("GeluTanh"), target == kernels::Target::cpu ? 1u : 0u);
    EXPECT_EQ(counts.count("FusedMatMulGrad"), target == kernels::Target::cpu ? 0u : 1u);
  }
}

}  // namespace
}  // namespace gradloom
