// ONNX's own node tests: every folder of the data package whose operators Gradloom has is imported and run,
// and its outputs are compared with the reference. Folders with operators, element types or modes that
// Gradloom lacks are counted by name.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <set>

#include "engine/onnx/import.h"
#include "tests/engine/reference.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

constexpr double kRtol = 1e-3, kAtol = 1e-7;  // ONNX's own
constexpr const char* kDefaultFolder = "/usr/share/libonnx-testdata/data/node";

struct Outcome {
  enum Status { passed, failed, unsupported } status = passed;
  std::string reason;
};

Outcome fail(const std::string& reason) { return {Outcome::failed, reason}; }

// What an error says of the operator's abilities rather than of the result.
bool means_unsupported(const Error& error) {
  return error.code == Errc::device || error.message.find("not supported") != std::string::npos;
}

// Folders whose reference no engine but one can give, or that hold no default-domain operator.
std::string excused(const std::string& name) {
  for (const char* optimizer : {"test_adagrad", "test_adam", "test_momentum", "test_nesterov_momentum"})
    if (name.rfind(optimizer, 0) == 0) return "optimizers of ai.onnx.preview.training";
  if (name.rfind("test_bernoulli", 0) == 0) return "the numbers come from numpy";
  for (const char* random : {"test_training_dropout", "test_training_dropout_default",
                             "test_training_dropout_default_mask", "test_training_dropout_mask"})
    if (name == random) return "the mask comes from numpy's random numbers";
  return "";
}

Outcome of_error(const Error& error) {
  return {means_unsupported(error) ? Outcome::unsupported : Outcome::failed, error.message};
}

std::vector<fs::path> sorted(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> list;
  for (int i = 0;; ++i) {
    const fs::path path = folder / (prefix + std::to_string(i) + ".pb");
    if (!fs::exists(path)) return list;
    list.push_back(path);
  }
}

// The inputs of a data set by name: for operators whose shapes, axes or repeats must be known before running,
// which the node tests feed as ordinary inputs.
Result<std::map<std::string, Tensor>> inputs_by_name(const Graph& graph, const std::vector<fs::path>& files) {
  std::map<std::string, Tensor> inputs;
  for (std::size_t i = 0; i < std::min(files.size(), graph.inputs.size()); ++i)
    inputs[graph.values[graph.inputs[i]].name] = TRY(read_tensor_file(files[i].string())).tensor;
  return inputs;
}

// The package stores bfloat16 references as their bits.
Outcome compare(const Tensor& result, const Tensor& want) {
  Tensor got = result;
  if (result.dtype() == DType::bf16 && want.dtype() == DType::u16) {
    got = Tensor(DType::u16, result.shape());
    std::memcpy(got.mutable_data(), result.data(), result.bytes());
  }
  if (got.dtype() != want.dtype() || got.shape() != want.shape())
    return fail(to_string(got.type()) + " instead of " + to_string(want.type()));
  for (std::int64_t i = 0, n = got.count(); i < n; ++i) {
    const double a = got.at(i), b = want.at(i);
    if (a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= kAtol + kRtol * std::fabs(b))
      continue;
    return fail("element " + std::to_string(i) + " is " + std::to_string(a) + " instead of " +
                std::to_string(b));
  }
  return {};
}

bool all_static(const Graph& graph) {
  for (const Node& node : graph.nodes)
    for (ValueId id : node.outputs)
      if (id != kNone && (!graph.values[id].has_type || !is_static(graph.values[id].type.shape)))
        return false;
  return true;
}

Outcome run_data_set(const ImportedModel& model, const fs::path& data, bool inputs_inside) {
  const Graph& graph = model.graph;
  auto runner = reference::Runner::create(graph);
  if (!runner) return of_error(runner.error());
  reference::Feeds feeds;
  const auto inputs = sorted(data, "input_");
  for (std::size_t i = 0; i < inputs.size() && !inputs_inside; ++i) {
    auto tensor = read_tensor_file(inputs[i].string());
    if (!tensor) return {Outcome::unsupported, tensor.error().message};
    if (i >= graph.inputs.size()) return fail("more input files than inputs");
    feeds[graph.inputs[i]] = tensor->tensor;
  }
  auto values = runner->run(feeds);
  if (!values) return of_error(values.error());
  const auto outputs = sorted(data, "output_");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    auto want = read_tensor_file(outputs[i].string());
    if (!want) return {Outcome::unsupported, want.error().message};
    if (i >= graph.outputs.size()) return fail("more output files than outputs");
    const Outcome outcome = compare((*values)[graph.outputs[i]], want->tensor);
    if (outcome.status != Outcome::passed) return fail("output " + std::to_string(i) + ": " + outcome.reason);
  }
  return {};
}

std::string unknown_text(const ImportedModel& model) {
  std::set<std::string> names;
  for (const UnknownOp& op : model.unknown)
    names.insert(op.op_type + (op.reason.empty() ? "" : " (" + op.reason + ")"));
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Outcome run_folder(const fs::path& folder) {
  if (const std::string why = excused(folder.filename().string()); !why.empty())
    return {Outcome::unsupported, why};
  const fs::path data = folder / "test_data_set_0";
  ImportOptions options, lenient;
  lenient.allow_unknown = true;
  // The lenient import tells apart what is missing from what is wrong.
  auto viewed = import_onnx((folder / "model.onnx").string(), lenient);
  if (!viewed) return of_error(viewed.error());
  if (!viewed->unknown.empty()) return {Outcome::unsupported, unknown_text(*viewed)};
  auto model = import_onnx((folder / "model.onnx").string(), options);
  bool inside = false;
  if (!model || !all_static(model->graph)) {
    auto known = inputs_by_name(viewed->graph, sorted(data, "input_"));
    if (!known) return {Outcome::unsupported, known.error().message};
    options.known_inputs = std::move(*known);
    model = import_onnx((folder / "model.onnx").string(), options);
    if (!model) return of_error(model.error());
    inside = true;
  }
  return run_data_set(*model, data, inside);
}

TEST(OnnxNodeTests, OperatorsThatExistAgree) {
  const char* chosen = std::getenv("GRADLOOM_ONNX_NODE_TESTS");
  const fs::path root = chosen != nullptr ? chosen : kDefaultFolder;
  if (!fs::is_directory(root))
    GTEST_SKIP() << "no ONNX node tests in " << root << " (package libonnx-testdata)";
  std::set<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root))
    if (fs::exists(entry.path() / "model.onnx")) folders.insert(entry.path());
  int passed = 0, unsupported = 0;
  for (const fs::path& folder : folders) {
    const Outcome outcome = run_folder(folder);
    const std::string name = folder.filename().string();
    if (outcome.status == Outcome::passed) ++passed;
    if (outcome.status == Outcome::unsupported) {
      ++unsupported;
      std::cout << "unsupported " << name << ": " << outcome.reason << "\n";
    }
    if (outcome.status == Outcome::failed) ADD_FAILURE() << name << ": " << outcome.reason;
  }
  std::cout << passed << " passed, " << unsupported << " unsupported, of " << folders.size() << "\n";
  EXPECT_GT(passed, 0);
}

}  // namespace
}  // namespace gradloom
