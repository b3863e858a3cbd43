#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::op_counts;
using test::run_and_compare;
using test::why_nots;

Graph cross_entropy(Shape logits, Shape labels, std::int64_t axis, bool weighted, const char* reduction,
                    int opset = 13) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f64, logits}), y = b.input("y", {DType::i64, labels});
  const ValueId p = b.op(*find_op("LogSoftmax", "", opset), {x}, {{"axis", axis}});
  std::vector<ValueId> inputs = {p, y};
  if (weighted) inputs.push_back(b.input("weight", {DType::f64, {logits[1]}}));
  graph.outputs = {b.op("NegativeLogLikelihoodLoss", inputs, {{"reduction", std::string(reduction)}})};
  return graph;
}

TEST(FuseSoftmaxCrossEntropy, EveryFormBecomesOneNode) {
  for (bool weighted : {false, true}) {
    for (const char* reduction : {"mean", "sum", "none"}) {
      Graph graph = cross_entropy({4, 5}, {4}, -1, weighted, reduction);
      EXPECT_EQ(run_and_compare(graph, "fuse-softmax-cross-entropy", 1e-12).matched, 1);
      EXPECT_EQ(op_counts(graph), (std::map<std::string, int>{{"SoftmaxCrossEntropyLoss", 1}}));
    }
  }
  Graph graph = cross_entropy({2, 5, 3}, {2, 3}, 1, false, "mean");
  EXPECT_EQ(run_and_compare(graph, "fuse-softmax-cross-entropy", 1e-12).matched, 1);
}

TEST(FuseSoftmaxCrossEntropy, ASoftmaxOverAnotherAxisStays) {
  Graph graph = cross_entropy({2, 5, 3}, {2, 3}, 2, false, "mean");
  const PassReport report = run_and_compare(graph, "fuse-softmax-cross-entropy", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("over axis 2"), std::string::npos) << why_nots(report);
}

TEST(FuseSoftmaxCrossEntropy, AnOldLogSoftmaxThatFlattensStays) {
  Graph graph = cross_entropy({2, 5, 3}, {2, 3}, 1, false, "mean", 12);
  const PassReport report = run_and_compare(graph, "fuse-softmax-cross-entropy", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("flattens"), std::string::npos) << why_nots(report);
  Graph flat = cross_entropy({4, 5}, {4}, 1, false, "mean", 12);
  EXPECT_EQ(run_and_compare(flat, "fuse-softmax-cross-entropy", 1e-12).matched, 1);
}

TEST(FuseSoftmaxCrossEntropy, LogProbabilitiesReadElsewhereStay) {
  Graph graph = cross_entropy({4, 5}, {4}, 1, false, "mean");
  graph.outputs.push_back(graph.nodes[0].outputs[0]);
  const PassReport report = run_and_compare(graph, "fuse-softmax-cross-entropy", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("also an output"), std::string::npos) << why_nots(report);
}

TEST(FuseSoftmaxCrossEntropy, ALossOverOtherProbabilitiesStays) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4, 5}}), y = b.input("y", {DType::i64, {4}});
  graph.outputs = {b.op("NegativeLogLikelihoodLoss", {b.op("Log", {b.op("Exp", {x})}), y})};
  const PassReport report = run_and_compare(graph, "fuse-softmax-cross-entropy", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("node Log is not LogSoftmax"), std::string::npos) << why_nots(report);
}

}  // namespace
}  // namespace gradloom
