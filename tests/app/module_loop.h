// Modules of the folders of tests/modules and tests/models in memory that the test brings.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/module.h"
#include "engine/onnx/file/tensor_file.h"
#include "engine/onnx/import.h"
#include "tests/paths.h"

namespace gradloom {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

inline std::string folder_of_module(const std::string& name) {
  const std::string models = GRADLOOM_SOURCE_DIR "/tests/models/" + name;
  return fs::exists(models) ? models : GRADLOOM_SOURCE_DIR "/tests/modules/" + name;
}

// How large tensors are there the edges of a graph say: a plan needs to know them before running.
inline bool sized_by_data(const std::string& name) { return name.rfind("graph-self-loops", 0) == 0; }

inline std::vector<std::string> folder_names() {
  std::vector<std::string> names;
  std::error_code code;  // a folder that is missing is a failure of the tests, not of their listing
  for (const char* group : {"modules", "models"})
    for (const auto& entry : fs::directory_iterator(std::string(GRADLOOM_SOURCE_DIR "/tests/") + group, code))
      if (fs::exists(entry.path() / "test_data_set_0")) names.push_back(entry.path().filename().string());
  std::erase_if(names, sized_by_data);
  std::sort(names.begin(), names.end());
  return names;
}

inline std::vector<NamedTensor> read_all(const std::string& name, const std::string& prefix) {
  std::vector<NamedTensor> tensors;
  for (int i = 0;; ++i) {
    const std::string file =
        folder_of_module(name) + "/test_data_set_0/" + prefix + "_" + std::to_string(i) + ".pb";
    if (!fs::exists(file)) return tensors;
    auto tensor = read_tensor_file(file);
    EXPECT_TRUE(tensor.ok()) << file;
    if (tensor.ok()) tensors.push_back(std::move(tensor).value());
  }
}

// Numbers that no kernel leaves by chance, where results are expected.
inline Tensor unwritten(const Type& type) {
  Tensor t(type.dtype, type.shape);
  if (t.bytes() > 0) std::memset(t.mutable_data(), 0xff, t.bytes());
  return t;
}

// The memory that a training loop has for a module: all of it the test's.
class Loop {
 public:
  // What the folder's file holds and what its data set says is in `module`'s memory.
  Loop(ModelModule& module, const ImportedModel& model, const std::vector<NamedTensor>& given)
      : module_(module) {
    for (const ModuleValue& v : module.values(ModuleKind::input)) {
      const auto at =
          std::find_if(given.begin(), given.end(), [&](const NamedTensor& t) { return t.name == v.name; });
      EXPECT_NE(at, given.end()) << v.name;
      inputs.push_back(at == given.end() ? Tensor(v.type.dtype, v.type.shape)
                                         : at->tensor.cast(v.type.dtype));
      EXPECT_EQ(inputs.back().type(), v.type) << v.name;
      input_gradients.push_back(unwritten(v.type));
    }
    const auto contents = [&](const std::string& name) {
      return copy_of(*model.graph.value(find_value(model.graph, name)).data.loaded());
    };
    for (const ModuleValue& v : module.values(ModuleKind::parameter)) {
      parameters.push_back(contents(v.name));
      EXPECT_EQ(parameters.back().type(), v.type) << v.name;
      parameter_gradients.push_back(unwritten(v.type));
    }
    for (const ModuleValue& v : module.values(ModuleKind::statistic)) statistics.push_back(contents(v.name));
    for (const ModuleValue& v : module.values(ModuleKind::output)) {
      outputs.push_back(unwritten(v.type));
      output_gradients.emplace_back(v.type.dtype, v.type.shape);
    }
  }

  Status forward(bool no_grad = false) {
    const std::int64_t bytes = *module_.arena_bytes(no_grad);
    arena.assign(static_cast<std::size_t>(bytes) + 64, std::byte{0xff});
    return module_.forward(call(no_grad));
  }
  // What it could read without being allowed to is not a number any more.
  Status backward() {
    for (Tensor& t : outputs) t = unwritten(t.type());
    return module_.backward(call(false));
  }
  ModuleCall call(bool no_grad) {
    fill(in_, inputs);
    fill(parameters_, parameters);
    fill(statistics_, statistics);
    fill(out_, outputs);
    fill(given_, output_gradients);
    fill(input_made_, input_gradients);
    fill(made_, parameter_gradients);
    const auto at = reinterpret_cast<std::uintptr_t>(arena.data());
    return {.no_grad = no_grad,
            .inputs = in_.data(),
            .parameters = parameters_.data(),
            .statistics = statistics_.data(),
            .outputs = out_.data(),
            .arena = arena.data() + (64 - at % 64) % 64,
            .seed = seed,
            .step = step,
            .output_gradients = given_.data(),
            .input_gradients = input_made_.data(),
            .parameter_gradients = made_.data()};
  }

  // Of a parameter or input by name; null: it has none.
  const Tensor* gradient(const std::string& name) const {
    for (const auto& [kind, tensors] : {std::pair{ModuleKind::parameter, &parameter_gradients},
                                        std::pair{ModuleKind::input, &input_gradients}}) {
      const auto& values = module_.values(kind);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i].name == name && values[i].gradient) return &(*tensors)[i];
    }
    return nullptr;
  }

  static Tensor copy_of(const Tensor& t) {
    Tensor copy(t.dtype(), t.shape());
    if (t.bytes() > 0) std::memcpy(copy.mutable_data(), t.data(), t.bytes());
    return copy;
  }

  std::vector<Tensor> inputs, parameters, statistics, outputs, output_gradients, input_gradients,
      parameter_gradients;
  std::vector<std::byte> arena;
  std::uint64_t seed = 0, step = 0;  // those of the references

 private:
  static void fill(std::vector<void*>& to, std::vector<Tensor>& tensors) {
    to.clear();
    for (Tensor& t : tensors) to.push_back(t.mutable_data());
  }
  ModelModule& module_;
  std::vector<void*> in_, parameters_, statistics_, out_, given_, input_made_, made_;
};

// A folder's module with the gradient of its first output, a scalar loss.
struct Opened {
  ImportedModel model;
  std::unique_ptr<ModelModule> module;
  std::vector<NamedTensor> inputs, references, gradients;
  std::string loss;

  Loop loop() const {
    Loop loop(*module, model, inputs);
    Tensor& gradient = loop.output_gradients[0];
    gradient = Tensor::scalar(gradient.dtype(), 1).reshaped(gradient.shape());
    return loop;
  }
};

inline std::unique_ptr<Opened> open_folder(const std::string& name, const Words& more) {
  auto o = std::make_unique<Opened>();
  const std::string path = folder_of_module(name) + "/model.onnx";
  o->inputs = read_all(name, "input");
  o->references = read_all(name, "output");
  o->gradients = read_all(name, "grad");
  ImportOptions options;
  const bool f64 = std::find(more.begin(), more.end(), "f64") != more.end();
  if (f64) options.float_type = DType::f64;
  for (const NamedTensor& g : o->gradients) options.train.push_back(g.name);
  const auto viewed = import_onnx(path, options);
  EXPECT_TRUE(viewed.ok()) << viewed.error().message;
  if (!viewed.ok()) return nullptr;
  Words words = more;
  const auto add = [&](const std::string& flag, const std::string& value) {
    words.push_back(flag);
    words.push_back(value);
  };
  std::vector<std::string> inputs;
  for (std::size_t i = 0; i < viewed->graph.inputs.size(); ++i) {
    const Value& v = viewed->graph.value(viewed->graph.inputs[i]);
    inputs.push_back(v.name);
    if (i < o->inputs.size() && o->inputs[i].name.empty()) o->inputs[i].name = v.name;
    const auto given = std::find_if(o->inputs.begin(), o->inputs.end(),
                                    [&](const NamedTensor& t) { return t.name == v.name; });
    for (std::size_t d = 0; given != o->inputs.end() && d < v.type.shape.size(); ++d)
      if (v.type.shape[d] < 0) {
        const std::string& dim = viewed->graph.symbols[static_cast<std::size_t>(-v.type.shape[d] - 1)];
        options.dims[dim] = given->tensor.shape()[d];
      }
  }
  for (const auto& [dim, n] : options.dims) add("--dim", dim + "=" + std::to_string(n));
  for (const NamedTensor& g : o->gradients)
    add(std::find(inputs.begin(), inputs.end(), g.name) == inputs.end() ? "--train" : "--input-grad", g.name);
  o->loss = viewed->graph.value(viewed->graph.outputs[0]).name;
  add("--output-grad", o->loss);
  auto model = import_onnx(path, options);
  EXPECT_TRUE(model.ok()) << model.error().message;
  auto module = ModelModule::open(path, words);
  EXPECT_TRUE(module.ok()) << module.error().message;
  if (!model.ok() || !module.ok()) return nullptr;
  o->model = std::move(model).value();
  o->module = std::move(module).value();
  return o;
}

inline void expect_bits(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(bit_equal(got[i], want[i])) << what << " " << i;
}

}  // namespace gradloom
