// The order of a comparison's rows, and the nodes that a row stands for.
#include "viz/model/compare_table.h"

#include <gtest/gtest.h>

#include "tests/viz/small_step.h"

namespace gradloom {
namespace {

const std::vector<ComparedRow> kRows{{"b", "forward", 2, 1, 300, 100, 0.2, {}},
                                     {"a", "backward", 1, 0, 150, 0, 1, {}},
                                     {"c", "forward", 1, 1, 50, 60, 0.001, {}}};

std::vector<int32_t> order(CompareColumn by, bool descending) { return order_of_rows(kRows, by, descending); }

TEST(CompareTable, EveryColumnOrders) {
  using Order = std::vector<int32_t>;
  EXPECT_EQ(order(CompareColumn::kName, false), (Order{1, 0, 2}));
  EXPECT_EQ(order(CompareColumn::kName, true), (Order{2, 0, 1}));
  EXPECT_EQ(order(CompareColumn::kPhase, false), (Order{1, 0, 2}));
  EXPECT_EQ(order(CompareColumn::kA, true), (Order{0, 1, 2}));
  EXPECT_EQ(order(CompareColumn::kB, true), (Order{0, 2, 1})) << "B has no kernel in the second row: last";
  EXPECT_EQ(order(CompareColumn::kB, false), (Order{2, 0, 1}));
  EXPECT_EQ(order(CompareColumn::kChange, true), (Order{2, 1, 0}));
  EXPECT_EQ(order(CompareColumn::kChange, false), (Order{0, 1, 2}));
  EXPECT_EQ(order(CompareColumn::kKernels, true), (Order{2, 0, 1}));
  EXPECT_EQ(order(CompareColumn::kP, false), (Order{2, 0, 1})) << "what was not tested comes last";
}

TEST(CompareTable, ARowFindsItsNodesInAnotherPlan) {
  const Compiled step = test::small_step("default");
  const GraphModel model = build_graph_model(step.train.graph, &step.plan);
  const auto names = [&](const ComparedRow& row) {
    std::vector<std::string> found;
    for (const int32_t box : boxes_of_row(model, row)) found.push_back(model.boxes[box].name);
    return found;
  };
  ComparedRow fused;  // the label of the row is cut; its nodes are whole
  fused.name = "/layers.0/linear/MatMul + 2 more";
  fused.phase = "forward";
  fused.nodes = {"/layers.0/linear/MatMul", "/layers.0/linear/Add", "/layers.0/Tanh"};
  const auto forward = boxes_of_row(model, fused);
  ASSERT_FALSE(forward.empty());
  for (const int32_t box : forward) {
    EXPECT_EQ(model.boxes[box].phase, Phase::forward);
    EXPECT_EQ(model.boxes[box].name.find("layers.1"), std::string::npos);
  }
  ComparedRow scope = fused;  // of every phase
  scope.name = "layers.0";
  scope.phase.clear();
  EXPECT_GT(boxes_of_row(model, scope).size(), forward.size());
  ComparedRow optimizer;  // kernels without an ONNX node go by their own names
  optimizer.name = "(optimizer)";
  optimizer.phase = "optimizer";
  for (const GraphBox& box : model.boxes)
    if (box.phase == Phase::optimizer) optimizer.nodes.push_back(box.name);
  EXPECT_EQ(names(optimizer), optimizer.nodes);
  ComparedRow phase;
  phase.name = phase.phase = "backward";
  for (const std::string& name : names(phase))
    EXPECT_EQ(model.boxes[model.find(name)].phase, Phase::backward);
  EXPECT_GT(names(phase).size(), 2u);
}

}  // namespace
}  // namespace gradloom
