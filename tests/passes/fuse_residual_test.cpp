#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::op_counts;
using test::run_and_compare;
using test::run_pass;
using test::why_nots;

constexpr const char* kOnCpu = "fuse-residual{devices=all}";

// x + (x w + bias), and the gradient of a LayerNormalization of it beside what goes around that.
struct Layer {
  bool bias = true, relu = false, product_read = false, broadcast = false, waits = false;
};
Graph layer(const Layer& l) {
  Graph graph;
  GraphBuilder b(graph);
  const Type x_type{DType::f64, {3, 4, 6}}, w_type{DType::f64, {6, 6}}, p_type{DType::f64, {6}},
      row_type{DType::f64, {3, 4, 1}};
  const ValueId x = b.input("x", x_type), w = b.input("w", w_type), bias = b.input("bias", p_type),
                dy = b.input("dy", x_type), scale = b.input("scale", p_type),
                mean = b.input("mean", row_type), inv = b.input("inv_std", row_type);
  std::vector<ValueId> operands = {x, w};
  if (l.bias) operands.push_back(bias);
  const Attrs attrs = l.relu ? Attrs{{"activation", std::string("relu")}} : Attrs{};
  const ValueId product = b.op("FusedMatMul", operands, attrs);
  const ValueId sum = b.op("Add", {l.broadcast ? bias : x, product});
  const auto norm =
      b.ops(op_by_name("LayerNormGrad"), {dy, x, scale, mean, inv}, {{"axis", std::int64_t{-1}}}, 3);
  const ValueId around = l.waits ? b.op("Mul", {dy, norm[1]}) : dy;
  graph.outputs = {sum, b.op("Add", {norm[0], around}), norm[1], norm[2]};
  if (l.product_read) graph.outputs.push_back(b.op("Neg", {product}));
  return graph;
}

TEST(FuseResidual, AddsInTheKernelsBesideIt) {
  for (const bool bias : {true, false}) {
    Graph graph = layer({.bias = bias});
    const PassReport report = run_and_compare(graph, kOnCpu, 1e-13);
    EXPECT_EQ(report.matched, 2);
    EXPECT_EQ(op_counts(graph), (std::map<std::string, int>{{"FusedMatMul", 1}, {"LayerNormGrad", 1}}));
  }
}

void expect_left(const Layer& l, const std::string& why, int matched, const std::string& pass = kOnCpu) {
  Graph graph = layer(l);
  const PassReport report = run_pass(graph, pass, kernels::Target::cpu);
  EXPECT_EQ(report.matched, matched) << why;
  EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
}

TEST(FuseResidual, SaysWhatItLeavesAlone) {
  expect_left({.relu = true}, "the product has an activation", 1);
  expect_left({.product_read = true}, "is also read by", 1);
  expect_left({.broadcast = true}, "", 1);  // a bias is no residual
  expect_left({.waits = true}, "the other gradient waits for this one", 1);
  expect_left({}, "for GPUs", 0, "fuse-residual");
}

}  // namespace
}  // namespace gradloom
