#include "viz/model/stage_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/viz/small_step.h"

namespace gradloom {
namespace {

CompileOptions options_of(const std::string& passes) {
  CompileOptions options;
  options.train.loss = "mse:y,target";
  options.train.optimizer = std::move(parse_optimizer("adamw{lr=1e-3}")).value();
  options.pipeline = std::move(parse_pipeline(passes)).value();
  return options;
}

class Travel : public ::testing::Test {
 protected:
  Compiled step_ = test::small_step("default");
  StagedModel staged_ = build_stage_model(
      std::move(stage_history(test::small_forward(), options_of("default"))).value(), step_.plan);
};

TEST_F(Travel, EveryStepIsTheGraphAsItWasThen) {
  const StageModel& stages = staged_.stages;
  ASSERT_GT(stages.last(), 3);
  ASSERT_EQ(stages.boxes.size(), staged_.model.boxes.size());
  ASSERT_EQ(stages.links.size(), staged_.model.links.size());
  for (int32_t s = 0; s <= stages.last(); ++s) {
    int64_t there = 0;
    for (size_t b = 0; b < stages.boxes.size(); ++b)
      there += staged_.model.boxes[b].node != kNone && stages.boxes[b].holds(s) ? 1 : 0;
    EXPECT_EQ(there, stages.steps[static_cast<size_t>(s)].nodes) << stages.label(s);
    for (size_t l = 0; l < stages.links.size(); ++l) {  // no line without both ends
      if (!stages.links[l].holds(s)) continue;
      EXPECT_TRUE(stages.boxes[staged_.model.links[l].src].holds(s)) << stages.label(s);
      EXPECT_TRUE(stages.boxes[staged_.model.links[l].dst].holds(s)) << stages.label(s);
    }
  }
  // The last is what runs: the same nodes under the same names, with the same links.
  const GraphModel final = build_graph_model(step_.train.graph, &step_.plan);
  for (const GraphBox& box : final.boxes) {
    const int32_t known = staged_.model.find(box.name);
    ASSERT_GE(known, 0) << box.name;
    EXPECT_TRUE(stages.boxes[static_cast<size_t>(known)].holds(stages.last()));
    EXPECT_EQ(staged_.model.boxes[static_cast<size_t>(known)].kernel, box.kernel);
  }
  EXPECT_EQ(static_cast<size_t>(std::count_if(stages.links.begin(), stages.links.end(),
                                              [&](const StageSpan& l) { return l.holds(stages.last()); })),
            final.links.size());
}

TEST_F(Travel, ShapesComeAndGoOnOneLayout) {
  const StageModel& stages = staged_.stages;
  const auto model = std::make_shared<const GraphModel>(staged_.model);
  const auto scene = build_scene(model, std::vector<bool>(model->scopes.size(), false));
  ASSERT_TRUE(scene);
  for (int32_t s = 1; s <= stages.last(); ++s) {
    const StageShapes now = shapes_at(*scene, stages, s);
    const StageStep& step = stages.steps[static_cast<size_t>(s)];
    for (const int32_t box : step.added)
      EXPECT_EQ(now.shapes[static_cast<size_t>(box)], StageShown::kAdded) << stages.label(s);
    for (const int32_t box : step.removed)
      EXPECT_EQ(now.shapes[static_cast<size_t>(box)], StageShown::kGhost) << stages.label(s);
    if (s == stages.last()) continue;
    const StageShapes next = shapes_at(*scene, stages, s + 1);
    for (const int32_t box : step.removed)
      EXPECT_EQ(next.shapes[static_cast<size_t>(box)], StageShown::kHidden) << "a ghost of one step";
  }
  const StageShapes start = shapes_at(*scene, stages, 0);
  for (size_t b = 0; b < model->boxes.size(); ++b)
    if (model->boxes[b].phase == Phase::backward) {
      EXPECT_EQ(start.shapes[b], StageShown::kHidden);
    }
}

TEST_F(Travel, StepsByPassAndTellsWhatItDid) {
  const StageModel& stages = staged_.stages;
  EXPECT_EQ(stages.label(0).find("before all passes: "), 0u);
  const int32_t end = stages.step_by_run(0, 1);
  EXPECT_EQ(stages.runs[1].last, end);
  EXPECT_EQ(stages.step_by_run(end, -1), 0);
  EXPECT_EQ(stages.step_by_run(stages.last(), 1), stages.last());
  const std::string last = stages.label(stages.last());
  const std::string of = std::to_string(stages.runs.size() - 1);
  EXPECT_NE(last.find("(" + of + " of " + of + ")"), std::string::npos) << last;
  const auto autodiff = std::find_if(stages.runs.begin(), stages.runs.end(),
                                     [](const StageRun& run) { return run.pass == kAutodiffStage; });
  ASSERT_NE(autodiff, stages.runs.end());
  EXPECT_GT(autodiff->node_change, 5);
}

TEST_F(Travel, EveryNodeKnowsWhoMadeIt) {
  const StageModel& stages = staged_.stages;
  for (size_t b = 0; b < stages.boxes.size(); ++b) {
    if (staged_.model.boxes[b].node == kNone) continue;
    const std::vector<int32_t>& steps = stages.touched[b];
    ASSERT_FALSE(steps.empty()) << staged_.model.boxes[b].name;
    EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
    EXPECT_NE(std::find(steps.begin(), steps.end(), stages.boxes[b].from), steps.end());
  }
}

}  // namespace
}  // namespace gradloom
