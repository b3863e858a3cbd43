#include "app/parameter_file.h"

#include <gtest/gtest.h>

#include "engine/base/npz.h"
#include "tests/folder.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

ImportedModel imported(const std::string& path) {
  auto model = import_onnx(GRADLOOM_SOURCE_DIR "/tests/" + path + "/model.onnx", {});
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? std::move(model).value() : ImportedModel();
}

std::map<std::string, Tensor> parameters_of(const ImportedModel& model) {
  std::map<std::string, Tensor> all;
  for (const Value& v : model.graph.values)
    if (v.role == Role::parameter || v.role == Role::state) all[v.name] = *v.data.loaded();
  return all;
}

// A number more everywhere.
std::map<std::string, Tensor> raised(std::map<std::string, Tensor> all) {
  for (auto& [name, tensor] : all) {
    std::vector<double> numbers = tensor.to_f64();
    for (double& n : numbers) n += 1;
    tensor = Tensor::from_f64(tensor.dtype(), tensor.shape(), numbers);
  }
  return all;
}

void expect_parameters(const ImportedModel& model, const std::map<std::string, Tensor>& expected) {
  const auto got = parameters_of(model);
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(bit_equal(got.at(name), tensor)) << name;
}

void expect_refused(ImportedModel& model, const ParameterFile& file, const std::string& text,
                    bool exact = false) {
  const Status set = set_parameters(model, file, exact);
  ASSERT_FALSE(set.ok()) << text;
  EXPECT_EQ(set.error().code, Errc::bad_input);
  EXPECT_NE(set.error().message.find(text), std::string::npos) << set.error().message;
}

TEST(ParameterFile, BothFormatsComeBack) {
  const TemporaryFolder folder;
  const ImportedModel original = imported("models/cnn-digits");
  const auto wanted = raised(parameters_of(original));
  ASSERT_TRUE(write_npz(folder / "p.npz", wanted).ok());
  ASSERT_TRUE(write_safetensors(folder / "p.safetensors", with_buffers(wanted, original)).ok());
  for (const char* name : {"p.npz", "p.safetensors"}) {
    const auto file = read_parameter_file(folder / name);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ImportedModel model = original;
    const std::size_t notes = model.notes.size();
    const Status set = set_parameters(model, *file, true);
    ASSERT_TRUE(set.ok()) << set.error().message;
    expect_parameters(model, wanted);
    EXPECT_EQ(model.notes.size(), notes);
  }
}

// A module's buffer is in its state_dict, and the model keeps its own.
TEST(ParameterFile, BuffersAreSavedAndDifferencesTold) {
  ImportedModel model = imported("models/gpt-char");
  Safetensors saved = with_buffers(parameters_of(model), model);
  ASSERT_TRUE(saved.tensors.count("future"));
  saved.tensors["future"] = Tensor(DType::boolean, saved.tensors.at("future").shape());
  const Status set = set_parameters(model, parameter_file("p", saved), true);
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_NE(model.notes.back().find("buffers that stay as the model has them"), std::string::npos);
  EXPECT_NE(model.notes.back().find("'future'"), std::string::npos);
}

// One tensor with two names, as safetensors.torch.save_model and as torch.save keep it.
TEST(ParameterFile, TiedWeightsAreFoundByEitherName) {
  const ImportedModel original = imported("modules/gpt-tied-dynamo");
  const auto wanted = raised(parameters_of(original));
  const std::string name = wanted.begin()->first;
  std::map<std::string, Tensor> renamed = wanted;
  renamed.erase(name);
  renamed["other.name"] = wanted.at(name);
  ImportedModel model = original;
  ASSERT_TRUE(
      set_parameters(model, parameter_file("p", {renamed, {{name, "other.name"}, {"format", "pt"}}}), false)
          .ok());
  expect_parameters(model, wanted);
  model = original;
  model.tied_copies.push_back({"other.name", name});
  ASSERT_TRUE(set_parameters(model, parameter_file("p", {renamed, {}}), true).ok());
  expect_parameters(model, wanted);
  EXPECT_EQ(with_buffers(wanted, model).metadata.at("other.name"), name);
}

TEST(ParameterFile, OtherWidthsAreConverted) {
  const ImportedModel original = imported("models/mlp");
  std::map<std::string, Tensor> half;
  for (const auto& [name, tensor] : parameters_of(original)) half[name] = tensor.cast(DType::bf16);
  ImportedModel model = original;
  ASSERT_TRUE(set_parameters(model, parameter_file("p", {half, {}}), true).ok());
  for (const auto& [name, tensor] : parameters_of(model)) {
    EXPECT_EQ(tensor.dtype(), DType::f32);
    EXPECT_TRUE(bit_equal(tensor.cast(DType::bf16), half.at(name))) << name;
  }
}

TEST(ParameterFile, WhatDoesNotFitIsNamed) {
  const ImportedModel original = imported("models/mlp");
  const auto all = parameters_of(original);
  ImportedModel model = original;
  auto given = all;
  given.erase("layers.1.bias");
  given["module.layers.1.bias"] = all.at("layers.1.bias");
  expect_refused(model, {"p", given, {}}, "p: no tensor for parameter 'layers.1.bias'");
  expect_refused(model, {"p", {}, {}}, "it has none at all");
  given = all;
  given["layers.1.bias"] = Tensor(DType::f32, {3});
  expect_refused(model, {"p", given, {}}, "tensor 'layers.1.bias' is f32[3]; expected f32[64]");
  given["layers.1.bias"] = Tensor(DType::i64, {64});
  expect_refused(model, {"p", given, {}}, "is i64[64]; expected f32[64]");
  given = all;
  given["stranger"] = Tensor(DType::f32, {1});
  expect_refused(model, {"p", given, {}}, "no parameter 'stranger'", true);
  EXPECT_TRUE(set_parameters(model, {"p", given, {}}, false).ok());
  EXPECT_NE(model.notes.back().find("'stranger'"), std::string::npos);
}

TEST(ParameterFile, TypesThatTheFormatLacksComeBack) {
  const Tensor small = Tensor::from_f64(DType::i4, {2}, {-8, 7}),
               stored = small.cast(safetensors_type(DType::i4));
  const auto back = tensor_as(stored, small.type(), "t");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(bit_equal(*back, small));
  EXPECT_FALSE(tensor_as(Tensor(DType::i32, {2}), small.type(), "t").ok());
}

}  // namespace
}  // namespace gradloom
