#include <gtest/gtest.h>

#include <cmath>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::op_counts;
using test::run_and_compare;
using test::run_pass;

// As torch.onnx writes binary_cross_entropy_with_logits, for a target of 1 and of 0.
struct CrossEntropy {
  Graph graph;
  ValueId x, sigmoid;
  explicit CrossEntropy(DType dtype, double one = 1) {
    GraphBuilder b(graph);
    x = b.input("x", {dtype, {3, 5}});
    sigmoid = b.op("Sigmoid", {x});
    const ValueId rest = b.op("Sub", {b.scalar(dtype, one), sigmoid});
    graph.outputs = {b.op("Log", {sigmoid}), b.op("Log", {rest})};
  }
};

TEST(FuseLogSigmoid, BothLogarithmsBecomeSoftplus) {
  CrossEntropy loss(DType::f64);
  EXPECT_EQ(run_and_compare(loss.graph, "fuse-log-sigmoid", 1e-14).matched, 2);
  EXPECT_EQ(op_counts(loss.graph), (std::map<std::string, int>{{"Neg", 3}, {"Softplus", 2}}));
}

TEST(FuseLogSigmoid, TheSigmoidStaysForItsOtherReaders) {
  CrossEntropy loss(DType::f64);
  loss.graph.outputs.push_back(loss.sigmoid);
  EXPECT_EQ(run_and_compare(loss.graph, "fuse-log-sigmoid", 1e-14).matched, 2);
  EXPECT_EQ(op_counts(loss.graph), (std::map<std::string, int>{{"Neg", 3}, {"Sigmoid", 1}, {"Softplus", 2}}));
}

TEST(FuseLogSigmoid, LargeLogitsStayFinite) {
  for (const bool fused : {false, true}) {
    CrossEntropy loss(DType::f32);
    if (fused) {
      EXPECT_EQ(run_pass(loss.graph, "fuse-log-sigmoid").matched, 2);
    }
    test::Contents contents = test::random_inputs(loss.graph, 1);  // and constants
    contents[loss.x] = Tensor::from_f64(DType::f32, {3, 5}, std::vector<double>(15, 40));
    const auto y = test::evaluate_graph(loss.graph, contents);
    ASSERT_OK(y);
    EXPECT_EQ(y->at(loss.graph.outputs[1]).at(0), fused ? -40 : -HUGE_VAL);
  }
}

TEST(FuseLogSigmoid, AnotherConstantKeepsThePieces) {
  CrossEntropy loss(DType::f64, 2);
  EXPECT_EQ(run_and_compare(loss.graph, "fuse-log-sigmoid", 1e-14).matched, 1);
}

// log(1 + 1e-7 - p) is how scripts keep a loss finite: with 1 it would grow without end.
TEST(FuseLogSigmoid, AOneThatClampsKeepsThePieces) {
  CrossEntropy loss(DType::f32, 1 + 1e-7);
  EXPECT_EQ(run_pass(loss.graph, "fuse-log-sigmoid").matched, 1);
  EXPECT_EQ(op_counts(loss.graph)["Sub"], 1);
}

TEST(FuseLogSigmoid, ASiteSwitchedOffStays) {
  CrossEntropy loss(DType::f32);
  const std::string site = loss.graph.nodes[loss.graph.values[loss.graph.outputs[0]].producer].name;
  EXPECT_EQ(run_pass(loss.graph, "fuse-log-sigmoid{except=" + site + "}").matched, 1);
}

}  // namespace
}  // namespace gradloom
