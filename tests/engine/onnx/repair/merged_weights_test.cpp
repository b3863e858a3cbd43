// Equal weights that an exporter keeps once are named; tied ones are not.
#include "engine/base/input_file.h"
#include "engine/onnx/export.h"
#include "engine/onnx/repair/merged_weights.h"

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::add_floats;
using test::import_model;
using test::model_from_text;

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
    EXPECT_EQ(*merged_parameters(model.graph), Names{"w"}) << identity;
    ASSERT_FALSE(model.notes.empty());
    EXPECT_NE(model.notes.back().find("1 weight of equal numbers serves several"), std::string::npos)
        << model.notes.back();
  }
}

TEST(MergedWeights, NotOneModuleAndNotTiedWeights) {
  EXPECT_EQ(*merged_parameters(imported({1, 1, 1}, false, {"norm", "norm"}).graph), Names{});
  EXPECT_EQ(*merged_parameters(imported({1, 2, 1}, false, {"embedding", "head"}).graph), Names{});
}

TEST(MergedWeights, NotOneModuleCalledTwice) {
  EXPECT_EQ(*merged_parameters(imported({1, 1, 1}, false, {"d/norm", "d/norm_1"}).graph), Names{});
  EXPECT_EQ(*merged_parameters(imported({1, 1, 1}, false, {"d/norm", "d_12/norm_1"}).graph), Names{});
  for (const char* other : {"d/norm_", "d/norm_x", "d/norm1", "e/norm", "d", "d/norm_1/scale"})
    EXPECT_EQ(*merged_parameters(imported({1, 1, 1}, false, {"d/norm", other}).graph), Names{"w"}) << other;
  EXPECT_EQ(*merged_parameters(imported({1, 1, 1}, false, {"norm_1", "norm_2"}).graph), Names{"w"});
}

onnx::ModelProto tied_model(const char* copy, const std::vector<float>& contents) {
  onnx::ModelProto model = model_from_text(
      "g (float[2, 3] x) => (float[2, 3] y, float[2, 2] h) { h = MatMul(x, copy) y = MatMul(h, w) }");
  model.mutable_graph()->mutable_node(0)->set_input(1, copy);
  add_floats(model, "w", {2, 3}, {1, 2, 3, 4, 5, 6});
  add_floats(model, copy, {3, 2}, contents);
  return model;
}

TEST(MergedWeights, CopiesUnderMadeUpNamesAreTiedAgain) {
  for (const char* name : {"val_7", "onnx::MatMul_12"}) {
    const ImportedModel model = test::imported_or_fail(tied_model(name, {1, 4, 2, 5, 3, 6}));
    ASSERT_EQ(model.tied_copies.size(), 1u) << name;
    EXPECT_EQ(model.tied_copies[0].original, "w");
    EXPECT_TRUE(model.tied_copies[0].transposed);
    ASSERT_EQ(model.graph.parameters.size(), 1u);
    const Value& tied = test::value_of(model.graph, name);
    ASSERT_NE(tied.producer, kNone);
    const Node& node = model.graph.nodes[tied.producer];
    EXPECT_STREQ(node.op->name, "Transpose");
    EXPECT_EQ(node.inputs, std::vector<ValueId>{model.graph.parameters[0]});
  }
}

TEST(MergedWeights, CopiesOfWhatTheFileHasNoMoreAreOne) {
  onnx::ModelProto model =
      model_from_text("g (float[2, 2] x) => (float[2, 2] y) { h = MatMul(x, val_1) y = MatMul(h, val_2) }");
  add_floats(model, "val_1", {2, 2}, {1, 2, 3, 4});
  add_floats(model, "val_2", {2, 2}, {1, 2, 3, 4});
  const ImportedModel imported = test::imported_or_fail(model);
  ASSERT_EQ(imported.tied_copies.size(), 1u);
  EXPECT_EQ(imported.tied_copies[0].copy, "val_2");
  EXPECT_FALSE(imported.tied_copies[0].transposed);
  EXPECT_EQ(imported.graph.parameters.size(), 1u);
}

// Weights that stay in the file, which are compared tile by tile; and the last of the numbers counts.
TEST(MergedWeights, LargeCopiesAreTiedAgain) {
  constexpr std::int64_t kRows = 300, kColumns = 5000;  // two tiles
  for (const bool equal : {true, false}) {
    onnx::ModelProto model = model_from_text(
        "g (float[2, 5000] x) => (float[2, 5000] y) { h = MatMul(x, val_7) y = MatMul(h, w) }");
    std::vector<float> w(kRows * kColumns), copy(w.size());
    for (std::int64_t i = 0; i < kRows; ++i)
      for (std::int64_t j = 0; j < kColumns; ++j)
        copy[static_cast<std::size_t>(j * kRows + i)] = w[static_cast<std::size_t>(i * kColumns + j)] =
            static_cast<float>(i * kColumns + j);
    if (!equal) std::swap(copy[copy.size() - 1], copy[copy.size() - 2]);
    const auto add = [&](const char* name, std::int64_t rows, std::int64_t columns,
                         const std::vector<float>& numbers) {
      onnx::TensorProto* tensor = add_floats(model, name, {rows, columns}, {});
      tensor->set_raw_data(numbers.data(), numbers.size() * sizeof(float));
    };
    add("w", kRows, kColumns, w);
    add("val_7", kColumns, kRows, copy);
    const ImportedModel imported = test::imported_or_fail(model);
    ASSERT_EQ(imported.tied_copies.size(), equal ? 1u : 0u);
    EXPECT_FALSE(test::value_of(imported.graph, "w").data.in_memory());
    if (equal) {
      EXPECT_TRUE(imported.tied_copies[0].transposed);
    }
  }
}

TEST(MergedWeights, OneNumberInAllOfALargeWeight) {
  Tensor ones = Tensor::from_f64(DType::f32, {600'000}, std::vector<double>(600'000, 1.0));
  const auto in_file = [](const Tensor& tensor, const std::string& path) {
    test::write_bytes(path, std::string(static_cast<const char*>(tensor.data()), tensor.bytes()));
    return Tensor::in_file(tensor.type(), std::make_shared<const InputFile>(*InputFile::open(path)), 0);
  };
  const TemporaryFolder folder;
  EXPECT_TRUE(*is_uniform(in_file(ones, folder / "ones")));
  ones.mutable_as<float>()[599'999] = 2;
  EXPECT_FALSE(*is_uniform(in_file(ones, folder / "others")));
  EXPECT_FALSE(*is_uniform(ones));
}

TEST(MergedWeights, OtherNumbersAndOtherNamesStayParameters) {
  EXPECT_EQ(test::imported_or_fail(tied_model("val_7", {1, 4, 2, 5, 3, 7})).graph.parameters.size(), 2u);
  EXPECT_EQ(test::imported_or_fail(tied_model("val_7", {4, 1, 2, 5, 3, 6})).graph.parameters.size(), 2u)
      << "the same elements in another order";
  EXPECT_EQ(test::imported_or_fail(tied_model("head", {1, 4, 2, 5, 3, 6})).graph.parameters.size(), 2u);
}

TEST(MergedWeights, TiedCopiesAreExportedWithTheirOriginals) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "in.onnx", tied_model("val_7", {1, 4, 2, 5, 3, 6}).SerializeAsString());
  const Result<ImportedModel> model = import_onnx(folder / "in.onnx", {});
  ASSERT_TRUE(model.ok());
  const std::map<std::string, Tensor> trained = {
      {"w", Tensor::from_f64(DType::f32, {2, 3}, {10, 20, 30, 40, 50, 60})}};
  ASSERT_TRUE(export_onnx(folder / "in.onnx", trained, folder / "out.onnx", model->tied_copies).ok());
  onnx::ModelProto written;
  ASSERT_TRUE(written.ParseFromString(test::read_bytes(folder / "out.onnx")));
  EXPECT_EQ(test::imported_or_fail(written).tied_copies.size(), 1u) << "they hold the same numbers";
}

}  // namespace
}  // namespace gradloom
