// What colours the boxes of a graph: the numbers are those of plan and run, scopes have the sums of their boxes.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/viz/small_step.h"
#include "viz/model/graph_model.h"

namespace gradloom {
namespace {

class GraphHeat : public ::testing::Test {
 protected:
  GraphHeat() { apply_times(model_, test::timed_rows(step_)); }

  Compiled step_ = test::small_step();
  GraphModel model_ = build_graph_model(step_.train.graph, &step_.plan);
};

// Of every scope and column the sum over the boxes in it, for what adds up.
void expect_scope_sums(const GraphModel& model) {
  for (const ColorBy by : {ColorBy::kTime, ColorBy::kBytes, ColorBy::kLive, ColorBy::kLaunches})
    for (int32_t s = 0; s < static_cast<int32_t>(model.scopes.size()); ++s)
      for (int c = 0; c < kLayoutColumns; ++c) {
        double sum = 0;
        for (int32_t b = 0; b < static_cast<int32_t>(model.boxes.size()); ++b) {
          int32_t up = model.boxes[static_cast<std::size_t>(b)].scope;
          while (up >= 0 && up != s) up = model.scopes[static_cast<std::size_t>(up)].parent;
          const double value = model.value_of(b, by);
          if (up == s && static_cast<int>(model.boxes[static_cast<std::size_t>(b)].column) == c &&
              !std::isnan(value))
            sum += value;
        }
        EXPECT_NEAR(model.value_of_scope(s, static_cast<LayoutColumn>(c), by), sum, 1e-6 * sum)
            << model.scopes[static_cast<std::size_t>(s)].path << " column " << c << " by "
            << kColorKinds[static_cast<std::size_t>(by)].name;
      }
}

TEST_F(GraphHeat, BytesLiveAtThePeakAreTheMemoryViews) {
  const MemoryModel memory = build_memory_model(step_.train.graph, step_.plan);
  apply_memory(model_, memory);
  double sum = 0;
  for (int32_t b = 0; b < static_cast<int32_t>(model_.boxes.size()); ++b)
    sum += model_.boxes[static_cast<std::size_t>(b)].live_bytes;
  EXPECT_GT(sum, 0);
  EXPECT_EQ(sum, static_cast<double>(memory.live[static_cast<std::size_t>(memory.peak_step)]));
  expect_scope_sums(model_);
  double hottest = 0;
  for (int32_t b = 0; b < static_cast<int32_t>(model_.boxes.size()); ++b)
    if (const double heat = model_.heat_of(b, ColorBy::kLive); !std::isnan(heat))
      hottest = std::max(hottest, heat);
  EXPECT_DOUBLE_EQ(hottest, 1);
}

TEST_F(GraphHeat, RatesAreWorkByTime) {
  for (int32_t b = 0; b < static_cast<int32_t>(model_.boxes.size()); ++b) {
    const GraphBox& box = model_.boxes[static_cast<std::size_t>(b)];
    const double rate = model_.value_of(b, ColorBy::kRate);
    if (box.flops <= 0 || std::isnan(box.time_ns))
      EXPECT_TRUE(std::isnan(rate)) << box.name;
    else
      EXPECT_DOUBLE_EQ(rate, box.flops / box.time_ns * 1e9) << box.name;
  }
  EXPECT_EQ(model_.value_text(2.5e9, ColorBy::kRate), "2.50 GFLOP/s");
}

// Two micro-batches: a step's time is that of twice the work.
TEST_F(GraphHeat, RatesCountEveryMicroBatch) {
  std::vector<KernelRow> rows = test::timed_rows(step_);
  for (KernelRow& row : rows) row.steps = row.samples / 2;
  apply_times(model_, rows);
  for (int32_t b = 0; b < static_cast<int32_t>(model_.boxes.size()); ++b) {
    const GraphBox& box = model_.boxes[static_cast<std::size_t>(b)];
    if (box.flops <= 0 || std::isnan(box.time_ns)) continue;
    EXPECT_DOUBLE_EQ(model_.value_of(b, ColorBy::kRate), 2 * box.flops / box.time_ns * 1e9) << box.name;
  }
  int scopes = 0;
  for (int32_t s = 0; s < static_cast<int32_t>(model_.scopes.size()); ++s) {
    const ScopeInfo& scope = model_.scopes[static_cast<std::size_t>(s)];
    if (scope.flops[0] <= 0) continue;
    ++scopes;
    EXPECT_DOUBLE_EQ(model_.value_of_scope(s, LayoutColumn::kForward, ColorBy::kRate),
                     2 * scope.flops[0] / scope.time_ns[0] * 1e9)
        << scope.path;
  }
  EXPECT_GT(scopes, 1);
}

TEST_F(GraphHeat, LaunchesAreThePlansSteps) {
  double launches = 0;
  for (const GraphBox& box : model_.boxes) launches += box.launches;
  EXPECT_EQ(launches, static_cast<double>(step_.plan.steps.size()));
}

// A row as the comparison of a run with the model's own would have it.
ComparedRow row_of(const GraphBox& box, double a_ns, double b_ns) {
  ComparedRow row;
  row.phase = phase_name(box.phase == Phase::loss ? Phase::forward : box.phase);
  row.nodes = box.onnx_nodes.empty() ? std::vector<std::string>{box.name} : box.onnx_nodes;
  row.a_ns = a_ns;
  row.b_ns = b_ns;
  return row;
}

TEST_F(GraphHeat, ChangeIsTheRatioOfTimes) {
  const int32_t twice = model_.find("/layers.0/Tanh"), fresh = model_.find("/layers.1/Tanh");
  const GraphBox &a = model_.boxes[static_cast<std::size_t>(twice)],
                 &b = model_.boxes[static_cast<std::size_t>(fresh)];
  EXPECT_TRUE(std::isnan(model_.value_of(twice, ColorBy::kChange))) << "nothing is compared";
  apply_other(model_, {row_of(a, a.time_ns / 2, a.time_ns), row_of(b, 0, b.time_ns)}, "run 2");
  EXPECT_DOUBLE_EQ(model_.value_of(twice, ColorBy::kChange), 2);
  EXPECT_DOUBLE_EQ(model_.heat_of(twice, ColorBy::kChange), 1);
  EXPECT_EQ(model_.value_text(2, ColorBy::kChange), "+100 %");
  EXPECT_EQ(model_.value_text(0.7, ColorBy::kChange), "\u221230 %");
  EXPECT_EQ(model_.value_text(1.001, ColorBy::kChange), "\u00b10 %");
  EXPECT_EQ(model_.value_text(model_.value_of(fresh, ColorBy::kChange), ColorBy::kChange), "new");
  EXPECT_DOUBLE_EQ(GraphModel::heat(0.5, 0, ColorBy::kChange), -1);
  EXPECT_DOUBLE_EQ(GraphModel::heat(1, 0, ColorBy::kChange), 0);
  // Layer 0 has other kernels too, which the other run did not have: its time against that of the one.
  int32_t layer = 0;
  while (model_.scopes[static_cast<std::size_t>(layer)].path != "layers.0") ++layer;
  const ScopeInfo& scope = model_.scopes[static_cast<std::size_t>(layer)];
  EXPECT_DOUBLE_EQ(model_.value_of_scope(layer, LayoutColumn::kForward, ColorBy::kChange),
                   scope.time_ns[0] / (a.time_ns / 2));
  apply_times(model_, test::timed_rows(step_));
  EXPECT_TRUE(std::isnan(model_.value_of(twice, ColorBy::kChange))) << "new times are compared anew";
}

// One kernel for two nodes in the other run: both boxes share its time by their own, so that sums stay.
TEST_F(GraphHeat, ARowOfSeveralBoxesIsSpreadByTheirTimes) {
  const int32_t first = model_.find("/layers.0/linear/Add"), second = model_.find("/layers.0/Tanh");
  const GraphBox &a = model_.boxes[static_cast<std::size_t>(first)],
                 &b = model_.boxes[static_cast<std::size_t>(second)];
  ComparedRow row = row_of(a, 3 * (a.time_ns + b.time_ns), a.time_ns + b.time_ns);
  row.nodes.insert(row.nodes.end(), b.onnx_nodes.begin(), b.onnx_nodes.end());
  apply_other(model_, {row}, "run 2");
  EXPECT_NEAR(model_.value_of(first, ColorBy::kChange), 1.0 / 3, 1e-12);
  EXPECT_NEAR(model_.value_of(second, ColorBy::kChange), 1.0 / 3, 1e-12);
  EXPECT_NEAR(a.other_ns + b.other_ns, row.a_ns, 1e-9);
}

}  // namespace
}  // namespace gradloom
