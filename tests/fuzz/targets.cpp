#include "tests/fuzz/targets.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/onnx/import.h"
#include "engine/base/npz.h"
#include "engine/base/safetensors.h"
#include "engine/run/executor.h"
#include "passes/compile.h"
#include "passes/rules.h"
#include "sessions/recipe.h"
#include "tests/folder.h"

namespace gradloom::fuzz {

namespace {

// Of one process; in memory where there is /dev/shm, because every input becomes a file.
class Folder {
 public:
  Folder() {
    write("weights.bin", std::string(256, '\x3f'));  // what external tensors may find
  }
  std::string write(const std::string& name, std::string_view bytes) const {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }

 private:
  TemporaryFolder folder_{::access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                                          : std::filesystem::temp_directory_path()};
};

const Folder& folder() {
  static const Folder folder;
  return folder;
}

void require(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.error().message.c_str());
  abort();
}

// Errors are for the user: one of the codes that blame the input, never our own bug.
void require_typed(const Error& error) {
  if (error.code != Errc::bug && !error.message.empty()) return;
  std::fprintf(stderr, "an error without a type: %s\n", error.message.c_str());
  abort();
}

ImportOptions small_options() {
  ImportOptions options;
  options.limits.folded_bytes = 1 << 20;
  options.limits.folded_work = 10'000'000;
  options.limits.examined_elements = 10'000'000;
  options.limits.expanded_nodes = 2000;
  return options;
}

// For running: every dimension gets a number.
Result<ImportedModel> import_bound(const std::string& path) {
  ImportOptions options = small_options();
  ImportedModel model = TRY(import_onnx(path, options));
  if (model.unbound_dims.empty()) return model;
  for (const std::string& dim : model.unbound_dims) options.dims[dim] = 2;
  return import_onnx(path, options);
}

void fuzz_import(std::string_view bytes) {
  const std::string path = folder().write("model.onnx", bytes);
  ImportOptions viewing = small_options();
  viewing.allow_unknown = true;
  if (const Result<ImportedModel> model = import_onnx(path, viewing); !model.ok())
    require_typed(model.error());
  const Result<ImportedModel> model = import_bound(path);
  if (!model.ok()) return require_typed(model.error());
  require(verify(model->graph), "the imported graph");
}

// Small numbers that are in no index's range only by chance.
Tensor contents(const Type& type) {
  std::vector<double> values(static_cast<std::size_t>(element_count(type.shape)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(i % 7) - 3 + (is_float(type.dtype) ? 0.25 : 0);
  return Tensor::from_f64(type.dtype, type.shape, values);
}

void run_step(const Compiled& compiled) {
  const Graph& graph = compiled.train.graph;
  constexpr std::int64_t kMaxBytes = 4 << 20;
  double flops = 0;
  for (const PlanStep& step : compiled.plan.steps) flops += step.flops + step.bytes_read;
  if (compiled.plan.peak_bytes() > kMaxBytes || flops > 1e8) return;
  const auto device = make_cpu_device();
  auto executor = Executor::create(graph, compiled.plan, *device);
  if (!executor.ok()) return require_typed(executor.error());
  (*executor)->poison();
  const auto feed = [&](std::int64_t) -> Status {
    for (const ValueId id : graph.inputs) {
      if (compiled.plan.buffer_of[id] >= 0) TRY((*executor)->feed(id, contents(graph.type(id))));
    }
    return {};
  };
  StepOptions options;
  options.lr = 0.1;
  const Result<StepOutcome> outcome = (*executor)->step(compiled.train.names, options, feed);
  if (!outcome.ok()) require_typed(outcome.error());
}

void fuzz_compile(std::string_view bytes) {
  const Result<ImportedModel> model = import_bound(folder().write("model.onnx", bytes));
  if (!model.ok()) return require_typed(model.error());
  if (!model->unbound_dims.empty())
    return;  // of values whose size depends on data: the program refuses to plan
  const Graph& graph = model->graph;
  CompileOptions options;
  options.pipeline = default_pipeline();
  for (const ValueId id : graph.outputs) {
    const Value& output = graph.value(id);
    if (!is_float(output.type.dtype)) continue;
    options.train.loss = output.type.shape.empty() ? output.name : "mse:" + output.name + ",fuzz target";
    break;
  }
  if (options.train.loss.empty()) return;
  const Result<Compiled> compiled = compile(graph, options);
  if (!compiled.ok()) return require_typed(compiled.error());
  require(verify(compiled->train.graph), "the graph of the step");
  constexpr std::int64_t kCheckedBytes = 64 << 20;  // check_plan follows each byte
  if (compiled->plan.peak_bytes() <= kCheckedBytes)
    require(check_plan(compiled->train.graph, compiled->plan), "the plan");
  run_step(*compiled);
}

void fuzz_recipe(std::string_view bytes) {
  const Result<Recipe> recipe = parse_recipe(std::string(bytes));
  if (!recipe.ok()) return require_typed(recipe.error());
  const Result<Recipe> again = parse_recipe(recipe_json(*recipe));
  if (!again.ok()) require(again.error(), "a written recipe");
  if (!(*again == *recipe)) require(Error{Errc::bug, "it differs"}, "a written recipe");
  if (const auto options = recipe_compile_options(*recipe); !options.ok()) require_typed(options.error());
}

// On a graph that has something for most patterns.
void fuzz_rules(std::string_view bytes) {
  const Result<Rules> rules = parse_rules(std::string(bytes));
  if (!rules.ok()) return require_typed(rules.error());
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {2, 3}});
  const ValueId k = b.op("Mul", {x, b.scalar(DType::f32, 1.702)});
  const ValueId s = b.op("Add", {b.op("Mul", {x, b.op("Sigmoid", {k})}), b.scalar(DType::f32, 2)});
  const ValueId t = b.op("Transpose", {s}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  graph.outputs = {b.op("Softmax", {b.op("Div", {t, b.scalar(DType::f32, 3)})}, {{"axis", std::int64_t{1}}})};
  const Pipeline pipeline = default_pipeline(*rules);
  std::vector<PassReport> reports;
  for (const PassPhase phase : {PassPhase::pre_gradient, PassPhase::post_gradient})
    require(run_passes(graph, pipeline, phase, reports), "the graph after rules");
}

void fuzz_npz(std::string_view bytes) {
  const auto arrays = read_npz(folder().write("arrays.npz", bytes));
  if (!arrays.ok()) require_typed(arrays.error());
}

// What is read can be written, and is then read as the same.
void fuzz_safetensors(std::string_view bytes) {
  const auto contents = read_safetensors(folder().write("tensors.safetensors", bytes));
  if (!contents.ok()) return require_typed(contents.error());
  const auto again = [&]() -> Result<Safetensors> {
    std::string written;
    TRY(write_safetensors(
        [&](std::string_view piece) -> Status {
          written += piece;
          return {};
        },
        *contents));
    return read_safetensors(folder().write("again.safetensors", written));
  }();
  if (!again.ok()) require(again.error(), "what was written");
  if (again->metadata != contents->metadata || again->tensors.size() != contents->tensors.size())
    require(Error{Errc::bug, "it differs"}, "what was written");
  for (const auto& [name, tensor] : contents->tensors)
    if (!bit_equal(tensor, again->tensors.at(name))) require(Error{Errc::bug, "it differs"}, name.c_str());
}

constexpr Target kTargets[] = {
    {"import", true, fuzz_import}, {"compile", true, fuzz_compile},          {"recipe", false, fuzz_recipe},
    {"npz", false, fuzz_npz},      {"safetensors", false, fuzz_safetensors}, {"rules", false, fuzz_rules},
};

}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target* find_target(std::string_view name) {
  for (const Target& target : kTargets)
    if (name == target.name) return &target;
  return nullptr;
}

}  // namespace gradloom::fuzz
