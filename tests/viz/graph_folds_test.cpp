// Layers that are alike as one box of the graph, one of them beside it, or all; chains of scopes as one.
#include "viz/model/graph_folds.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/viz/small_step.h"
#include "viz/model/graph_heat.h"
#include "viz/model/scene.h"

namespace gradloom {
namespace {

class GraphFolds : public ::testing::Test {
 protected:
  int32_t scope(const std::string& path) const {
    for (size_t s = 0; s < model_.scopes.size(); ++s)
      if (model_.scopes[s].path == path) return static_cast<int32_t>(s);
    return -1;
  }
  GraphScene scene(const std::vector<int32_t>& layers) const {
    return *build_scene(std::make_shared<GraphModel>(model_), std::vector<bool>(model_.scopes.size(), false),
                        {}, layers);
  }
  int32_t hidden_in(const GraphScene& scene, const std::string& node) const {
    return scene.layout.hidden_in[static_cast<size_t>(model_.find(node))];
  }

  Compiled step_ = test::layered_step();
  GraphModel model_ = build_graph_model(step_.train.graph, &step_.plan);
};

TEST_F(GraphFolds, SiblingsThatAreAlikeAreOneFold) {
  ASSERT_EQ(model_.folds.size(), 1u);
  const GraphFold& fold = model_.folds[0];
  EXPECT_EQ(model_.scopes[static_cast<size_t>(fold.box)].name, "5 x h.*");
  ASSERT_EQ(fold.layers.size(), 5u);
  for (size_t i = 0; i < fold.layers.size(); ++i)
    EXPECT_EQ(model_.scopes[static_cast<size_t>(fold.layers[i])].path, "net/encoder/h." + std::to_string(i));
  EXPECT_EQ(model_.scopes[static_cast<size_t>(scope("net/encoder/h.5"))].layer_of, -1) << "it has a Sigmoid";
  const ScopeInfo& box = model_.scopes[static_cast<size_t>(fold.box)];
  EXPECT_EQ(box.boxes[0], 10u);
  EXPECT_TRUE(build_graph_model(test::small_step().train.graph, nullptr).folds.empty()) << "two are no crowd";
}

TEST_F(GraphFolds, ChainsAreOneScope) {
  EXPECT_EQ(scope("net"), -1);
  const int32_t encoder = scope("net/encoder");
  ASSERT_GE(encoder, 0);
  EXPECT_EQ(model_.scopes[static_cast<size_t>(encoder)].name, "net/encoder");
  EXPECT_EQ(model_.scopes[static_cast<size_t>(encoder)].parent, -1);
  EXPECT_EQ(model_.scopes[static_cast<size_t>(encoder)].depth, 0);
  for (size_t s = 0; s < model_.scopes.size(); ++s)
    EXPECT_LT(model_.scopes[s].parent, static_cast<int32_t>(s)) << "parents come first";
  for (const GraphBox& box : model_.boxes) EXPECT_LT(box.scope, static_cast<int32_t>(model_.scopes.size()));
}

TEST_F(GraphFolds, OneLayerIsShownBesideTheOthersOrAllAre) {
  const int32_t box = model_.folds[0].box;
  const GraphScene folded = scene({}), third = scene({2}), all = scene({kUnfolded});
  for (int layer = 0; layer < 6; ++layer) {
    const std::string node = "/net/encoder/h." + std::to_string(layer) + "/linear/MatMul";
    EXPECT_EQ(hidden_in(folded, node), layer == 5 ? -1 : box) << layer;
    EXPECT_EQ(hidden_in(third, node), layer == 2 || layer == 5 ? -1 : box) << layer;
    EXPECT_EQ(hidden_in(all, node), -1) << layer;
  }
  EXPECT_GE(folded.group_of(box, LayoutColumn::kForward), 0);
  EXPECT_GE(folded.group_of(box, LayoutColumn::kBackward), 0) << "backward nodes fold with their layers";
  EXPECT_LT(all.group_of(box, LayoutColumn::kForward), 0);
  EXPECT_LT(folded.group_of(scope("net/encoder/h.2"), LayoutColumn::kForward), 0);
  EXPECT_GE(third.group_of(scope("net/encoder/h.2"), LayoutColumn::kForward), 0);
  EXPECT_LT(folded.layout.height, all.layout.height / 2);
  // A layer that there is not is none.
  EXPECT_EQ(hidden_in(scene({17}), "/net/encoder/h.0/linear/MatMul"), box);
}

TEST_F(GraphFolds, TheBoxHasTheSumsAndTheSpreadOfItsLayers) {
  std::vector<KernelRow> rows = test::timed_rows(step_);
  for (KernelRow& row : rows)
    if (row.info.node == "/net/encoder/h.3/linear/MatMul")
      row.step_ns = row.total_ns = row.median_ns = 1'000'000;
  apply_times(model_, rows);
  const GraphFold& fold = model_.folds[0];
  for (int c = 0; c < kLayoutColumns; ++c) {
    double ns = 0;
    for (const int32_t layer : fold.layers)
      ns += model_.scopes[static_cast<size_t>(layer)].time_ns[static_cast<size_t>(c)];
    EXPECT_NEAR(model_.scopes[static_cast<size_t>(fold.box)].time_ns[static_cast<size_t>(c)], ns, 1e-6);
  }
  const LayerSpread spread = spread_of(model_, fold, LayoutColumn::kForward, ColorBy::kTime);
  EXPECT_EQ(spread.longest, scope("net/encoder/h.3"));
  EXPECT_GE(spread.most, 1e6);
  const int32_t usual = scope("net/encoder/h.0");
  EXPECT_DOUBLE_EQ(spread.median, model_.value_of_scope(usual, LayoutColumn::kForward, ColorBy::kTime));
}

}  // namespace
}  // namespace gradloom
