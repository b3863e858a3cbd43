#include <gtest/gtest.h>

#include "app/desktop/suggest.h"
#include "passes/pass.h"
#include "sessions/find_model.h"

namespace gradloom {
namespace {

ValueId add_value(Graph& graph, const std::string& name, DType dtype, Shape shape) {
  Value v;
  v.name = name;
  v.type = {dtype, std::move(shape)};
  v.has_type = true;
  graph.values.push_back(v);
  return static_cast<ValueId>(graph.values.size() - 1);
}

TEST(LossChoices, PreferAScalarNamedLoss) {
  Graph g;
  g.outputs = {add_value(g, "logits", DType::f32, {8, 10}), add_value(g, "norm", DType::f32, {}),
               add_value(g, "total_loss", DType::f32, {})};
  EXPECT_EQ(loss_choices(g),
            (std::vector<std::string>{"total_loss", "norm", "ce:logits,labels", "mse:logits,target"}));
}

TEST(LossChoices, UseTheModelsOwnTargetInput) {
  Graph g;
  g.inputs = {add_value(g, "x", DType::f32, {8, 64}), add_value(g, "targets", DType::i64, {8})};
  g.outputs = {add_value(g, "logits", DType::f32, {-1, 10})};
  EXPECT_EQ(loss_choices(g).front(), "ce:logits,targets");
}

TEST(LossChoices, RegressionForOutputsWithoutClasses) {
  Graph g;
  g.outputs = {add_value(g, "y", DType::f32, {8, 1})};
  EXPECT_EQ(loss_choices(g), std::vector<std::string>{"mse:y,target"});
  g.outputs = {add_value(g, "index", DType::i64, {8})};
  EXPECT_TRUE(loss_choices(g).empty());
}

TEST(SuggestedDim, KnowsSequences) {
  EXPECT_EQ(suggested_dim("batch"), 8);
  EXPECT_EQ(suggested_dim("Sequence_Length"), 64);
}

TEST(FieldProblems, NameTheField) {
  Recipe r;
  r.loss = "loss";
  EXPECT_TRUE(field_problems(r, {}).empty());
  r.steps = 0;
  r.optimizer = "adamm{lr=1}";
  r.data = "npz:";
  r.dims["batch"] = 0;
  const auto problems = field_problems(r, {"batch", "seq"});
  for (const char* key : {"steps", "optimizer", "data", "dim.batch", "dim.seq"})
    EXPECT_EQ(problems.count(key), 1u) << key;
  EXPECT_EQ(problems.size(), 5u);
  r = Recipe();
  EXPECT_EQ(field_problems(r, {}).count("loss"), 1u);
}

TEST(ModelLabel, UsesTheFolderForModelOnnx) {
  EXPECT_EQ(model_label("/a/gpt-char/model.onnx"), "gpt-char");
  EXPECT_EQ(model_label("/a/resnet.onnx"), "resnet");
  EXPECT_EQ(model_label("model.onnx"), "model");
}

TEST(FileKind, FollowsTheExtension) {
  EXPECT_EQ(file_kind("a.ONNX"), FileKind::model);
  EXPECT_EQ(file_kind("s.db"), FileKind::session);
  EXPECT_EQ(file_kind("r.recipe.json"), FileKind::recipe);
  EXPECT_EQ(file_kind("x"), FileKind::unknown);
}

}  // namespace
}  // namespace gradloom
