#include "profiler/trace.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/ir/op.h"

namespace gradloom {
namespace {

TEST(Trace, KernelsKnowTheirOnnxNodes) {
  static const OpDef gelu{.name = "Gelu"};
  Graph graph;
  graph.sources = {{"/a/Erf", "Erf", "", "a"}, {"/a/Mul", "Mul", "", "a"}};
  Node node;
  node.op = &gelu;
  node.name = "gelu";
  graph.passes = {"fuse-gelu", "cse", "fuse-elementwise"};
  node.origin = {{0, 1}, Phase::backward, {0, 2}};
  graph.nodes.push_back(node);
  Plan plan;
  plan.steps.resize(2);
  plan.steps[0].node = 0;
  plan.steps[0].kernel = "gelu avx512";
  plan.steps[0].bytes_read = 100;
  plan.steps[0].bytes_written = 28;
  plan.steps[0].stream = 1;
  const std::vector<KernelInfo> infos = kernel_infos(graph, plan);
  ASSERT_EQ(infos.size(), 2u);
  EXPECT_EQ(infos[0].op, "Gelu");
  EXPECT_EQ(infos[0].phase, "backward");
  EXPECT_EQ(infos[0].scope, "a");
  EXPECT_EQ(infos[0].passes, "fuse-gelu,fuse-elementwise");
  EXPECT_EQ(infos[0].onnx_nodes, (std::vector<std::string>{"/a/Erf", "/a/Mul"}));
  EXPECT_EQ(infos[1].node, "") << "a step without a node";

  std::vector<TraceRow> rows;
  append_samples({{0, 0, 10, 5}, {1, 0, 20, 6}}, infos, 7, rows);
  append_samples({{0, 1, 30, 5}, {9, 0, 40, 1}}, infos, 8, rows);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].bytes, 128);
  EXPECT_EQ(rows[0].stream, 1);
  EXPECT_EQ(rows[0].step, 7);
  EXPECT_EQ(rows[2].micro, 1);
  EXPECT_EQ(rows[3].bytes, 0) << "an unknown plan step is kept";
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].correlation, static_cast<std::int64_t>(i));
}

TEST(Trace, RowsAreNotCopiedForEachStep) {
  std::vector<TraceRow> rows;
  const TraceRow* place = nullptr;
  int moves = 0;
  for (std::int64_t step = 1; step <= 10'000; ++step) {
    append_samples({{0, 0, step, 1}, {1, 0, step, 1}}, {}, step, rows);
    moves += rows.data() != place ? 1 : 0;
    place = rows.data();
  }
  EXPECT_LE(moves, 30) << "each time all rows are copied";
}

TEST(Trace, BytesOfAFileMayBeAnyNumber) {
  std::vector<KernelInfo> infos(3);
  infos[0].bytes_read = HUGE_VAL;
  infos[1].bytes_read = -1;
  infos[2].bytes_read = std::nan("");
  std::vector<TraceRow> rows;
  append_samples({{0, 0, 1, 1}, {1, 0, 1, 1}, {2, 0, 1, 1}}, infos, 1, rows);
  for (const TraceRow& row : rows) EXPECT_EQ(row.bytes, 0);
}

}  // namespace
}  // namespace gradloom
