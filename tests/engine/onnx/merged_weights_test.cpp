// Equal weights that an exporter keeps once are named; tied ones are not.
#include "engine/onnx/merged_weights.h"

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using testing::add_floats;
using testing::import_model;
using testing::model_from_text;

// Two modules that use the weight w, with an Identity in between or without.
ImportedModel imported(const std::vector<float>& contents, bool identity,
                       const std::vector<std::string>& modules) {
  onnx::ModelProto model = model_from_text(
      std::string("g (float[2, 3] x) => (float[2, 3] y) { ") +
      (identity ? "v = Identity(w) h = Mul(x, w) y = Mul(h, v) }" : "h = Mul(x, w) y = Mul(h, w) }"));
  add_floats(model, "w", {3}, contents);
  int next = 0;
  for (auto& node : *model.mutable_graph()->mutable_node())
    if (node.op_type() == "Mul") node.set_name("/" + modules[static_cast<std::size_t>(next++)] + "/Mul");
  Result<ImportedModel> result = import_model(model);
  if (!result.ok()) {
    ADD_FAILURE() << result.error().message;
    return {};
  }
  return std::move(*result);
}

using Names = std::vector<std::string>;

TEST(MergedWeights, OneNumberInSeveralModules) {
  for (const bool identity : {false, true}) {
    const ImportedModel model = imported({1, 1, 1}, identity, {"norm1", "norm2"});
    EXPECT_EQ(merged_parameters(model.graph), Names{"w"}) << identity;
    ASSERT_FALSE(model.notes.empty());
    EXPECT_NE(model.notes.back().find("1 weight of equal numbers serves several"), std::string::npos)
        << model.notes.back();
  }
}

TEST(MergedWeights, NotOneModuleAndNotTiedWeights) {
  EXPECT_EQ(merged_parameters(imported({1, 1, 1}, false, {"norm", "norm"}).graph), Names{});
  EXPECT_EQ(merged_parameters(imported({1, 2, 1}, false, {"embedding", "head"}).graph), Names{});
}

TEST(MergedWeights, NotOneModuleCalledTwice) {
  EXPECT_EQ(merged_parameters(imported({1, 1, 1}, false, {"d/norm", "d/norm_1"}).graph), Names{});
  EXPECT_EQ(merged_parameters(imported({1, 1, 1}, false, {"d/norm", "d_12/norm_1"}).graph), Names{});
  for (const char* other : {"d/norm_", "d/norm_x", "d/norm1", "e/norm", "d", "d/norm_1/scale"})
    EXPECT_EQ(merged_parameters(imported({1, 1, 1}, false, {"d/norm", other}).graph), Names{"w"}) << other;
  EXPECT_EQ(merged_parameters(imported({1, 1, 1}, false, {"norm_1", "norm_2"}).graph), Names{"w"});
}

TEST(MergedWeights, CopiesUnderMadeUpNames) {
  onnx::ModelProto model =
      model_from_text("g (float[2, 3] x) => (float[2, 3] y) { h = MatMul(x, val_7) y = MatMul(h, w) }");
  add_floats(model, "w", {2, 3}, {1, 2, 3, 4, 5, 6});
  auto* copy = add_floats(model, "val_7", {3, 2}, {1, 4, 2, 5, 3, 6});
  EXPECT_EQ(copied_parameters(import_model(model)->graph), Names{"val_7 of w"});
  copy->set_float_data(5, 7);
  EXPECT_EQ(copied_parameters(import_model(model)->graph), Names{});
}

}  // namespace
}  // namespace gradloom
