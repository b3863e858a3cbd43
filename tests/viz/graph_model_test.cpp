#include "viz/model/graph_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/viz/small_step.h"
#include "viz/model/scene.h"

namespace gradloom {
namespace {

class SmallModel : public ::testing::Test {
 protected:
  Compiled step_ = test::small_step();
  GraphModel model_ = build_graph_model(step_.train.graph, &step_.plan);
};

TEST_F(SmallModel, EveryLiveNodeAndInputIsABox) {
  size_t inputs = 0, kernels = 0;
  for (const GraphBox& box : model_.boxes) {
    inputs += box.node == kNone ? 1 : 0;
    kernels += box.plan_step >= 0 ? 1 : 0;
    EXPECT_FALSE(box.op.empty());
    EXPECT_EQ(model_.boxes[model_.find(box.name)].name, box.name);
  }
  EXPECT_EQ(inputs, 2u);
  EXPECT_EQ(model_.boxes.size() - inputs, live_node_count(step_.train.graph));
  EXPECT_EQ(kernels, step_.plan.steps.size());
}

TEST_F(SmallModel, BackwardNodesSitOnTheirForwardNodesRow) {
  const int32_t forward = model_.find("/layers.0/linear/MatMul");
  ASSERT_GE(forward, 0);
  std::set<LayoutColumn> columns;
  for (int32_t b : model_.boxes[forward].related) {
    EXPECT_EQ(model_.boxes[b].partner, forward);
    EXPECT_EQ(model_.boxes[b].scope, model_.boxes[forward].scope);
    columns.insert(model_.boxes[b].column);
  }
  EXPECT_EQ(columns.count(LayoutColumn::kBackward), 1u);
  EXPECT_EQ(columns.count(LayoutColumn::kOptimizer), 1u) << "the update of the weight that the node reads";
  size_t backward = 0;
  for (const GraphBox& box : model_.boxes) {
    if (box.column == LayoutColumn::kBackward && box.partner >= 0) ++backward;
  }
  EXPECT_GE(backward, 6u);
}

TEST_F(SmallModel, InitializersSayWhetherTheyAreTrained) {
  std::set<std::string> read;
  for (const GraphBox& box : model_.boxes)
    for (const PortInfo& port : box.inputs)
      if (port.role == "parameter") read.insert(port.value);
  ASSERT_GE(read.size(), 2u);
  NameMap<TrainingOf> known;
  known[*read.begin()] = {true, "read by MatMul"};
  known[*read.rbegin()] = {false, "frozen by name"};
  apply_training(model_, known);
  std::set<std::string> trained, frozen;
  for (const GraphBox& box : model_.boxes)
    for (const PortInfo& port : box.inputs)
      if (!port.why.empty()) (port.trained ? trained : frozen).insert(port.value + ": " + port.why);
  EXPECT_EQ(trained, std::set<std::string>{*read.begin() + ": read by MatMul"});
  EXPECT_EQ(frozen, std::set<std::string>{*read.rbegin() + ": frozen by name"});
}

// The whole of a graph with thousands of boxes is drawn from few, each where its column has shapes.
TEST(Scene, TheOverviewOfALongGraphIsShortAndTrue) {
  constexpr int kBoxes = 4000;
  auto model = std::make_shared<GraphModel>();
  for (int i = 0; i <= kBoxes; ++i) {
    GraphBox box;
    box.node = static_cast<NodeId>(i);
    box.name = "node" + std::to_string(i);
    box.op = "Tanh";
    if (i == kBoxes) box.column = LayoutColumn::kBackward, box.partner = kBoxes - 1;
    model->by_name.emplace(box.name, i);
    model->boxes.push_back(box);
    if (i > 0) model->links.push_back({static_cast<uint32_t>(i - 1), static_cast<uint32_t>(i), kNone, false});
  }
  const auto scene = build_scene(model, {});
  ASSERT_TRUE(scene);
  const auto& forward = scene->overview[static_cast<size_t>(LayoutColumn::kForward)];
  const auto& backward = scene->overview[static_cast<size_t>(LayoutColumn::kBackward)];
  EXPECT_LE(forward.size(), 300u);
  for (int i = 0; i < kBoxes; ++i) {
    const LayoutBox& box = scene->layout.node_boxes[static_cast<size_t>(i)];
    EXPECT_TRUE(std::any_of(forward.begin(), forward.end(), [&](const LayoutBox& part) {
      return part.overlaps(box);
    })) << i;
  }
  ASSERT_EQ(backward.size(), 1u);
  EXPECT_LT(backward[0].height, scene->layout.height / 100);
}

TEST_F(SmallModel, ScopesFormATreeWithTotals) {
  std::set<std::string> paths;
  for (const ScopeInfo& scope : model_.scopes) {
    paths.insert(scope.path);
    if (scope.parent >= 0) {
      EXPECT_EQ(scope.path, model_.scopes[scope.parent].path + "/" + scope.name);
    }
  }
  EXPECT_EQ(paths.count("layers.1/linear"), 1u);
  for (const ScopeInfo& scope : model_.scopes) {
    if (scope.path != "layers.0/linear") continue;
    EXPECT_EQ(scope.boxes[0], 2u);
    EXPECT_GE(scope.boxes[1], 2u);
    EXPECT_GT(scope.flops[0], 0);
  }
}

TEST_F(SmallModel, LinksCarryShapesAndSavedValues) {
  bool saved = false, shaped = false;
  for (const GraphLink& link : model_.links) {
    EXPECT_LT(link.src, model_.boxes.size());
    EXPECT_LT(link.dst, model_.boxes.size());
    saved |= link.saved;
    shaped |= model_.value_labels[link.value] == "f32 8\u00d716";
  }
  EXPECT_TRUE(saved);
  EXPECT_TRUE(shaped);
}

TEST_F(SmallModel, TimesAndHeat) {
  EXPECT_TRUE(std::isnan(model_.boxes[model_.find("/layers.0/Tanh")].time_ns));
  EXPECT_TRUE(std::isnan(model_.heat_of(0, ColorBy::kTime)));
  apply_times(model_, test::timed_rows(step_));
  double total = 0, hottest = 0;
  for (int32_t b = 0; b < static_cast<int32_t>(model_.boxes.size()); ++b) {
    if (model_.boxes[b].plan_step < 0) continue;
    total += model_.boxes[b].time_ns;
    hottest = std::max(hottest, model_.heat_of(b, ColorBy::kTime));
  }
  EXPECT_DOUBLE_EQ(total, model_.total_time_ns);
  EXPECT_DOUBLE_EQ(hottest, 1);
  apply_times(model_, {});
  EXPECT_FALSE(model_.timed);
}

TEST_F(SmallModel, SearchFindsBoxes) {
  const auto hits = model_.search(*Query::parse("op:MatMul phase:fwd"));
  ASSERT_EQ(hits.size(), 2u);
  EXPECT_EQ(model_.boxes[hits[0]].name, "/layers.0/linear/MatMul");
  EXPECT_TRUE(model_.search(Query()).empty());
}

TEST_F(SmallModel, DefaultCollapseRespectsTheLimit) {
  for (size_t limit : {1u, 12u, 1000u}) {
    const auto scene = build_scene(std::make_shared<GraphModel>(model_), model_.default_collapsed(limit));
    size_t shown = 0;
    for (const GraphBox& box : model_.boxes)
      shown += scene->layout.hidden_in[&box - model_.boxes.data()] < 0 ? 1 : 0;
    if (limit == 1000) {
      EXPECT_EQ(shown, model_.boxes.size());
    } else {
      EXPECT_LT(shown, model_.boxes.size());
    }
  }
}

TEST_F(SmallModel, SceneShapesAndHitTest) {
  auto shared = std::make_shared<const GraphModel>(model_);
  std::vector<bool> collapsed(model_.scopes.size(), false);
  for (size_t s = 0; s < collapsed.size(); ++s) collapsed[s] = model_.scopes[s].path == "layers.1";
  const auto scene = build_scene(shared, collapsed);
  const int32_t open = model_.find("/layers.0/Tanh"), hidden = model_.find("/layers.1/Tanh");
  EXPECT_EQ(scene->shape_of_box(open), open);
  EXPECT_GE(scene->shape_of_box(hidden), static_cast<int32_t>(model_.boxes.size()));
  for (int32_t box : {open, hidden}) {
    const LayoutBox bounds = scene->bounds(scene->shape_of_box(box));
    EXPECT_EQ(scene->shape_at(bounds.centre_x(), bounds.centre_y(), 26), scene->shape_of_box(box));
  }
  EXPECT_EQ(scene->shape_at(-1000, -1000, 26), -1);
  EXPECT_GT(scene->saved[open], 0) << "Tanh's output is read by its gradient";
  size_t incident = 0;
  for (size_t s = 0; s < scene->shape_count(); ++s)
    incident += scene->route_first[s + 1] - scene->route_first[s];
  EXPECT_EQ(incident, 2 * scene->layout.routes.size());
}

TEST_F(SmallModel, SceneBuilderKeepsTheNewestRequest) {
  std::atomic<int> ready{0};
  SceneBuilder builder([&] { ++ready; });
  auto first = std::make_shared<const GraphModel>(model_),
       second = std::make_shared<const GraphModel>(model_);
  for (int i = 0; i < 50; ++i) builder.request(first, {});
  builder.request(second, {});
  std::shared_ptr<const GraphScene> scene;
  for (int i = 0; i < 2000 && !(scene && scene->model == second); ++i) {
    if (auto taken = builder.take()) scene = taken;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(scene);
  EXPECT_EQ(scene->model, second);
  EXPECT_GT(ready.load(), 0);
}

// A view that follows a node waits for the scene that shows it, also once that is built and nobody has it yet.
TEST_F(SmallModel, ABuiltSceneIsNotTakenUntilSomebodyTakesIt) {
  SceneBuilder builder;
  EXPECT_TRUE(builder.is_taken());
  builder.request(std::make_shared<const GraphModel>(model_), {});
  EXPECT_FALSE(builder.is_taken());
  for (int i = 0; i < 2000 && builder.busy(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_FALSE(builder.busy());
  EXPECT_FALSE(builder.is_taken());
  EXPECT_TRUE(builder.take());
  EXPECT_TRUE(builder.is_taken());
}

TEST(GraphDiff, NamesWhatAPassChanged) {
  const Compiled before = test::small_step("none"), after = test::small_step("default");
  const GraphModel a = build_graph_model(before.train.graph, &before.plan),
                   b = build_graph_model(after.train.graph, &after.plan);
  const GraphDiff diff = diff_graphs(a, b);
  EXPECT_FALSE(diff.added.empty());
  EXPECT_FALSE(diff.removed.empty());
  EXPECT_EQ(diff.common + diff.added.size(), b.boxes.size());
  const GraphDiff none = diff_graphs(a, a);
  EXPECT_TRUE(none.added.empty());
  EXPECT_TRUE(none.removed.empty());
}

TEST(GraphModelForViewing, WorksWithoutAPlan) {
  const Graph forward = test::small_forward();
  const GraphModel model = build_graph_model(forward, nullptr);
  EXPECT_EQ(model.boxes.size(), live_node_count(forward) + 2);
  EXPECT_EQ(model.most[static_cast<std::size_t>(ColorBy::kBytes)], 0);
}

}  // namespace
}  // namespace gradloom
