#include "app/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "app/job.h"
#include "engine/onnx/file/tensor_file.h"
#include "engine/autodiff/autodiff.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "passes/planners.h"

namespace gradloom {
namespace fs = std::filesystem;
namespace {

struct Tolerance {
  double rtol, atol;
};

struct DataSet {
  fs::path folder;
  std::vector<NamedTensor> inputs, outputs, grads;
};

Result<std::vector<NamedTensor>> read_numbered(const fs::path& folder, const std::string& prefix) {
  std::vector<NamedTensor> tensors;
  for (int i = 0;; ++i) {
    const fs::path file = folder / (prefix + "_" + std::to_string(i) + ".pb");
    std::error_code code;
    if (!fs::exists(file, code)) return tensors;
    tensors.push_back(TRY(read_tensor_file(file.string())));
  }
}

Result<std::vector<fs::path>> find_data_sets(const std::string& folder) {
  std::error_code code;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder, code))
    if (entry.is_directory() && entry.path().filename().string().rfind("test_data_set_", 0) == 0)
      paths.push_back(entry.path());
  if (code) return Error{Errc::io, "cannot list '" + folder + "'"};
  std::sort(paths.begin(), paths.end());
  return paths;
}

Result<DataSet> read_data_set(const fs::path& folder) {
  DataSet set{folder, {}, {}, {}};
  set.inputs = TRY(read_numbered(folder, "input"));
  set.outputs = TRY(read_numbered(folder, "output"));
  set.grads = TRY(read_numbered(folder, "grad"));
  return set;
}

// As `type` stores it: ONNX's own folders write bfloat16 as its bits.
Tensor as_stored(const Tensor& tensor, DType type) {
  if (type != DType::bf16 || tensor.dtype() != DType::u16) return tensor;
  Tensor bits(DType::bf16, tensor.shape());
  std::memcpy(bits.mutable_data(), tensor.data(), tensor.bytes());
  return bits;
}

bool same(double got, double want, const Tolerance& t) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return want == got;
  return std::fabs(got - want) <= t.atol + t.rtol * std::fabs(want);
}

// Integers are compared exactly. References in bfloat16 come rounded or cut: one unit in the last place.
Tolerance tolerance_for(DType type, const Tolerance& given) {
  if (!is_float(type)) return {0, 0};
  return {std::max(given.rtol, type == DType::bf16 ? 0x1p-7 : 0), given.atol};
}

// Compares and records the largest errors; the first element out of tolerance gives the reason.
void compare(const std::string& what, const Tensor& got, const Tensor& reference, const Tolerance& tolerance,
             CheckResult& result) {
  const Tensor want = as_stored(reference, got.dtype());
  const auto fail = [&](const std::string& reason) {
    if (result.status == CheckStatus::fail) return;
    result.status = CheckStatus::fail;
    result.reason = what + " " + reason;
  };
  if (got.shape() != want.shape())
    return fail("has shape " + to_string(got.shape()) + ", expected " + to_string(want.shape()));
  if (!is_float(want.dtype()) && got.dtype() != want.dtype())
    return fail("is " + std::string(dtype_name(got.dtype())) + ", expected " + dtype_name(want.dtype()));
  if (is_float(got.dtype()) != is_float(want.dtype()))
    return fail("is " + std::string(dtype_name(got.dtype())) + ", expected " + dtype_name(want.dtype()));
  const Tolerance t = tolerance_for(got.dtype(), tolerance);
  for (std::int64_t i = 0, n = want.count(); i < n; ++i) {
    const double g = got.at(i), w = want.at(i);
    const double error = std::fabs(g - w);
    if (std::isfinite(error)) {
      result.max_abs_error = std::max(result.max_abs_error, error);
      if (w != 0) result.max_rel_error = std::max(result.max_rel_error, error / std::fabs(w));
    }
    if (!same(g, w, t))
      fail("differs at element " + std::to_string(i) + ": " + number_text(g) + ", expected " +
           number_text(w));
  }
}

// Of a 16-bit output: is every element that is out of tolerance within a rounding of the exact result, the
// reference within a few, and the reference the worse of the two over all?
bool reference_is_further(const Tensor& got, const Tensor& reference, const Tensor& exact,
                          const Tolerance& tolerance) {
  const Tensor want = as_stored(reference, got.dtype());
  if (got.dtype() != DType::f16 && got.dtype() != DType::bf16) return false;
  if (got.shape() != want.shape() || got.shape() != exact.shape()) return false;
  const double unit = got.dtype() == DType::f16 ? 0x1p-10 : 0x1p-7;
  const Tolerance t = tolerance_for(got.dtype(), tolerance);
  double own_squares = 0, squares = 0;
  for (std::int64_t i = 0, n = want.count(); i < n; ++i) {
    const double g = got.at(i), w = want.at(i), e = exact.at(i), size = unit * std::fabs(e);
    if (same(g, w, t)) continue;
    if (!(std::fabs(g - e) <= size && std::fabs(w - e) <= 4 * size)) return false;
    own_squares += (g - e) * (g - e);
    squares += (w - e) * (w - e);
  }
  return own_squares < squares;
}

// Published references that contradict their own models, by the model's hash.
struct WrongReference {
  const char* content_hash;
  const char* why;
};
constexpr WrongReference kWrongReferences[] = {
    {"8cb15433cfd9a21d6d8f2697df5def78",  // ONNX 1.12's test_adam_multiple
     "the reference was made with epsilon 0.01, the model leaves it at its default"},
    {"852d3e15bc34d564416d2cf33db711ae",  // ONNX 1.23's test_dft_inverse
     "the reference was summed in f32: 2e-7 where the result is 0"},
    {"c818e21437bcd4ecee4db3a291f2ad24",  // ONNX 1.23's test_dft_inverse_opset19
     "the reference was summed in f32: 2e-7 where the result is 0"},
};

class FolderCheck {
 public:
  FolderCheck(const std::string& folder, const CheckOptions& options) : folder_(folder), options_(options) {
    const bool f64 = options.precision == "f64";
    outputs_ = {options.rtol.value_or(f64 ? 1e-7 : 1e-3), options.atol.value_or(f64 ? 1e-8 : 1e-7)};
    gradients_ = {options.rtol.value_or(f64 ? 1e-7 : 1e-3), options.atol.value_or(f64 ? 1e-8 : 1e-5)};
  }

  Status run(CheckResult& result) {
    ImportOptions options = import_options();
    options.allow_unknown = true;
    const ImportedModel viewed = TRY(import_with(options));
    if (const std::string lacking = lacks(viewed, false); !lacking.empty())
      return unsupported(lacking, result);
    for (const fs::path& path : TRY(find_data_sets(folder_))) {
      const Status s = run_set(viewed.graph, TRY(read_data_set(path)), result);
      if (!s) return with_context(s.error(), path.filename().string());
      if (result.status != CheckStatus::pass) return {};
    }
    return {};
  }

 private:
  static Status unsupported(const std::string& reason, CheckResult& result) {
    result.status = CheckStatus::unsupported;
    result.reason = reason;
    return {};
  }

  ImportOptions import_options(bool f64) const {
    ImportOptions options;
    options.limits = options_.limits;
    if (f64) options.float_type = DType::f64;
    return options;
  }
  ImportOptions import_options() const { return import_options(options_.precision == "f64"); }

  Result<ImportedModel> import_with(const ImportOptions& options) const {
    return import_onnx(folder_ + "/model.onnx", options);
  }

  // What Gradloom lacks to run a model: operators, or tensors that are none (strings, sequences, optionals).
  // What must be known before running may still come with the data.
  static std::string lacks(const ImportedModel& model, bool with_data) {
    std::set<std::string> names;
    for (const UnknownOp& u : model.unknown) {
      if (!with_data && u.reason.find("known before running") != std::string::npos) continue;
      names.insert((u.domain.empty() ? "" : u.domain + ".") + u.op_type +
                   (u.reason.empty() ? "" : ": " + u.reason));
    }
    for (const ValueId id : model.graph.inputs) {
      const Value& v = model.graph.value(id);
      if (!v.has_type) names.insert("input '" + v.name + "' is no tensor of numbers");
    }
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + escaped(name);
    return text;
  }

  // Dims as the shapes of the data bind them. A static plan needs the contents of some inputs (axes, shapes,
  // trip counts) before running: small integers first, and where that is not enough, of all; with gradients
  // of all integers.
  Result<ImportedModel> import_for(const Graph& viewed, const DataSet& set, ImportOptions options,
                                   std::string* lacking) const {
    std::map<std::string, Tensor> contents;
    for (std::size_t i = 0; i < std::min(set.inputs.size(), viewed.inputs.size()); ++i) {
      const Value& v = viewed.value(viewed.inputs[i]);
      const Tensor given = as_stored(set.inputs[i].tensor, v.type.dtype);
      for (std::size_t d = 0; d < std::min(v.type.shape.size(), given.shape().size()); ++d) {
        const auto symbol = static_cast<std::size_t>(-v.type.shape[d] - 1);
        if (v.type.shape[d] < 0 && symbol < viewed.symbols.size())
          options.dims[viewed.symbols[symbol]] = given.shape()[d];
      }
      contents[v.name] = given;
      if (!is_float(given.dtype()) && shape_like(viewed, viewed.inputs[i]))
        options.known_inputs[v.name] = given;
    }
    Result<ImportedModel> model = import_with(options);
    if (model.ok() && all_static(model->graph)) return model;
    if (!set.grads.empty())
      std::erase_if(contents, [](const auto& entry) { return is_float(entry.second.dtype()); });
    options.known_inputs = std::move(contents);
    options.allow_unknown = true;
    *lacking = lacks(TRY(import_with(options)), true);
    options.allow_unknown = false;
    return lacking->empty() ? import_with(options) : model;
  }

  static bool all_static(const Graph& graph) {
    return std::all_of(graph.values.begin(), graph.values.end(),
                       [](const Value& v) { return !v.has_type || is_static(v.type.shape); });
  }

  // Does a static plan need the contents of this input (a shape, axes, a trip count)?
  // Indices and labels stay data.
  static bool shape_like(const Graph& graph, ValueId input) {
    for (const Node& node : graph.nodes) {
      if (!node.alive()) continue;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != input) continue;
        const InputRole* const role = node.op->role(i);
        if (role != nullptr && role->use == InputUse::sizes) return true;
      }
    }
    return false;
  }

  Status run_set(const Graph& viewed, const DataSet& set, CheckResult& result) {
    std::string lacking;
    ImportOptions options = import_options();
    for (const NamedTensor& gradient : set.grads) options.train.push_back(gradient.name);  // no buffers
    const Result<ImportedModel> imported = import_for(viewed, set, std::move(options), &lacking);
    if (!lacking.empty()) return unsupported(lacking, result);
    const ImportedModel& model = TRY(imported);
    TRY(set.grads.empty() ? run_forward(model, set, result) : run_gradients(model, set, result));
    if (result.status != CheckStatus::fail) return {};
    for (const WrongReference& wrong : kWrongReferences)
      if (model.content_hash == wrong.content_hash) return unsupported(wrong.why, result);
    // Our stream of random numbers is not that of whoever wrote the reference: a difference says nothing.
    for (const Node& node : model.graph.nodes)
      if (node.alive() && node.op->has(kRandom))
        return unsupported("the reference has the random numbers of another generator: " + result.reason,
                           result);
    if (set.grads.empty() && TRY(is_rounded_worse(viewed, model, set)))
      return unsupported("the reference is further from the result in f64 than Gradloom's: " + result.reason,
                         result);
    return {};
  }

  // Of an operator in f16 or bf16 whoever wrote the reference may have rounded what is between: where outputs
  // of these types differ, the same model in f64 tells who is nearer.
  Result<bool> is_rounded_worse(const Graph& viewed, const ImportedModel& model, const DataSet& set) const {
    const std::vector<Tensor> got = TRY(forward_outputs(model, set));
    std::string lacking;
    const Result<ImportedModel> wide = import_for(viewed, set, import_options(true), &lacking);
    if (!wide.ok() || !lacking.empty()) return false;
    const Result<std::vector<Tensor>> exact = forward_outputs(*wide, set);
    if (!exact.ok()) return false;
    for (std::size_t i = 0; i < std::min(set.outputs.size(), got.size()); ++i) {
      CheckResult own;
      compare("", got[i], set.outputs[i].tensor, outputs_, own);
      if (own.status == CheckStatus::pass) continue;
      if (!reference_is_further(got[i], set.outputs[i].tensor, (*exact)[i], outputs_)) return false;
    }
    return true;
  }

  Status feed(Executor& executor, const Graph& graph, const DataSet& set) const {
    const auto uses = uses_of(graph);
    const auto needed = [&](ValueId id) {  // not only by its type
      return !uses[id].empty() ||
             std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end();
    };
    std::size_t i = 0;
    for (ValueId id : graph.inputs) {
      const Value& v = graph.values[id];
      const NamedTensor* tensor = i < set.inputs.size() ? &set.inputs[i] : nullptr;
      for (const NamedTensor& t : set.inputs)
        if (t.name == v.name) tensor = &t;
      ++i;
      if (!needed(id)) continue;
      if (tensor == nullptr) return Error{Errc::bad_input, "no data for input '" + escaped(v.name) + "'"};
      const Tensor stored = as_stored(tensor->tensor, v.type.dtype);
      const bool convert = is_float(v.type.dtype) && is_float(stored.dtype());
      TRY(executor.feed(id, convert ? stored.cast(v.type.dtype) : stored));
    }
    return {};
  }

  Status run_forward(const ImportedModel& model, const DataSet& set, CheckResult& result) const {
    const std::vector<Tensor> got = TRY(forward_outputs(model, set));
    for (std::size_t i = 0; i < std::min(set.outputs.size(), got.size()); ++i)
      compare("output " + std::to_string(i), got[i], set.outputs[i].tensor, outputs_, result);
    return {};
  }

  Result<std::vector<Tensor>> forward_outputs(const ImportedModel& model, const DataSet& set) const {
    Graph graph = model.graph;
    std::vector<PassReport> reports;
    const kernels::Target target = TRY(device_target(options_.device));
    TRY(run_passes(graph, options_.passes, PassPhase::pre_gradient, reports, target));
    TRY(run_passes(graph, options_.passes, PassPhase::post_gradient, reports, target));
    const PlannerDef* planner = find_planner("best-fit");
    const Plan plan = TRY(make_plan(
        graph, {planner->plan, planner->name, true, target, device_has_dnn_library(options_.device)}));
    TRY(check_plan(graph, plan));
    const auto device = TRY(open_device(options_.device));
    const auto executor = TRY(Executor::create(graph, plan, *device));
    executor->poison();
    TRY(feed(*executor, graph, set));
    TRY(executor->run_forward(options_.seed, 0));
    std::vector<Tensor> outputs;
    for (std::size_t i = 0; i < std::min(set.outputs.size(), graph.outputs.size()); ++i)
      outputs.push_back(TRY(executor->read(graph.outputs[i])));
    return outputs;
  }

  Status run_gradients(const ImportedModel& model, const DataSet& set, CheckResult& result) const {
    CompileOptions options;
    options.pipeline = options_.passes;
    options.gradients_only = true;
    options.target = TRY(device_target(options_.device));
    options.dnn_library = device_has_dnn_library(options_.device);
    const Compiled compiled = TRY(compile(model.graph, options));
    const Graph& graph = compiled.train.graph;
    TRY(check_plan(graph, compiled.plan));
    const auto device = TRY(open_device(options_.device));
    const auto executor = TRY(Executor::create(graph, compiled.plan, *device));
    executor->poison();
    TRY(feed(*executor, graph, set));
    TRY(executor->run_forward(options_.seed, 0));
    if (!set.outputs.empty())
      compare("loss", TRY(executor->read(graph.loss)), set.outputs[0].tensor, outputs_, result);
    for (const NamedTensor& want : set.grads) {
      const auto found = std::find_if(compiled.gradients.begin(), compiled.gradients.end(),
                                      [&](const auto& g) { return g.first == want.name; });
      if (found == compiled.gradients.end() || found->second == kNone)
        return Error{Errc::bad_input, "no gradient for '" + escaped(want.name) + "'"};
      compare("gradient of " + escaped(want.name), TRY(executor->read(found->second)), want.tensor,
              gradients_, result);
      ++result.gradients;
    }
    return {};
  }

  const std::string& folder_;
  const CheckOptions& options_;
  Tolerance outputs_, gradients_;
};

bool is_test_folder(const fs::path& path) {
  std::error_code code;
  if (!fs::exists(path / "model.onnx", code)) return false;
  for (const auto& entry : fs::directory_iterator(path, code))
    if (entry.path().filename().string().rfind("test_data_set_", 0) == 0) return true;
  return false;
}

}  // namespace

const char* check_status_name(CheckStatus status) {
  switch (status) {
    case CheckStatus::pass: return "PASS";
    case CheckStatus::fail: return "FAIL";
    case CheckStatus::unsupported: return "UNSUPPORTED";
  }
  return "?";
}

Result<std::vector<std::string>> find_test_folders(const std::string& path) {
  std::error_code code;
  if (!fs::is_directory(path, code)) return Error{Errc::io, "'" + escaped(path) + "' is not a folder"};
  std::vector<std::string> folders;
  if (is_test_folder(path)) folders.push_back(path);
  for (auto it = fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied, code);
       !code && it != fs::recursive_directory_iterator(); it.increment(code))
    if (it->is_directory(code) && is_test_folder(it->path())) folders.push_back(it->path().string());
  std::sort(folders.begin(), folders.end());
  return folders;
}

CheckResult check_folder(const std::string& folder, const CheckOptions& options) {
  CheckResult result;
  result.name = folder;
  const Status status = FolderCheck(folder, options).run(result);
  if (status.ok()) return result;
  // What Gradloom lacks is unsupported; anything else that stops a folder is a failure.
  const auto says = [&](const char* text) { return status.error().message.find(text) != std::string::npos; };
  const bool lacking = status.error().code == Errc::device || status.error().code == Errc::usage ||
                       says("no gradient:") || says("is not supported");
  result.status = lacking ? CheckStatus::unsupported : CheckStatus::fail;
  result.reason = status.error().message;
  return result;
}

}  // namespace gradloom
