#include "app/check_samples.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "engine/autodiff/autodiff.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/run/executor.h"
#include "engine/onnx/read/sample_graph.h"
#include "passes/planners.h"

namespace gradloom {
namespace {

constexpr std::uint64_t kSeed = 7, kStep = 3;

struct SampleItem {
  const OpDef* op;
  Sample sample;
  CheckResult result;
  std::string prefix;  // of the names of its nodes: random streams are keyed by them
};

// Samples in one graph, in one precision.
struct Whole {
  Graph graph;
  std::map<ValueId, Tensor> feeds;
  struct Part {
    std::vector<ValueId> outputs, gradients;  // kNone: omitted, no path
  };
  std::vector<Part> parts;  // by item
};

// A scalar that depends on every floating output, with random weights.
ValueId weighted_loss(GraphBuilder& b, const SampleNode& node) {
  ValueId loss = kNone;
  std::mt19937_64 random(11);
  for (const ValueId y : node.outputs) {
    if (y == kNone || !is_float(b.type(y).dtype)) continue;
    SampleInput weight;
    weight.type = {DType::f32, b.shape(y)};
    const ValueId w = b.constant(make_sample_input(weight, {}, random).cast(b.type(y).dtype));
    const ValueId term = b.op("ReduceSum", {b.op("Mul", {y, w})}, {{"keepdims", std::int64_t{0}}});
    loss = loss == kNone ? term : b.op("Add", {loss, term});
    break;  // the first result; others (means, masks, indices) are not differentiated
  }
  return loss;
}

// Adds one sample, and its gradients when they can be built. Errors:
// the sample is not valid in this precision.
Status add_item(Whole& whole, const SampleItem& item, DType type, bool gradients, DType rounded) {
  BuildContext context;
  context.name_prefix = item.prefix;
  GraphBuilder b(whole.graph, std::move(context));
  const SampleNode node = TRY(add_sample(b, *item.op, item.sample, type, item.prefix, rounded));
  whole.feeds.insert(node.feeds.begin(), node.feeds.end());
  Whole::Part part{node.outputs, {}};
  const ValueId loss = gradients ? weighted_loss(b, node) : kNone;
  if (loss != kNone) {
    std::vector<ValueId> wrt;
    for (const ValueId x : node.inputs)
      if (x != kNone && node.feeds.count(x) != 0 && is_float(b.type(x).dtype)) wrt.push_back(x);
    const auto grads = TRY(add_gradients(whole.graph, loss, wrt));
    for (const ValueId x : wrt) {
      const auto found = grads.find(x);
      part.gradients.push_back(found == grads.end() ? kNone : found->second);
    }
  }
  for (const auto* list : {&part.outputs, &part.gradients})
    for (const ValueId v : *list)
      if (v != kNone) whole.graph.outputs.push_back(v);
  whole.parts.push_back(std::move(part));
  return {};
}

// Puts one sample behind the others; names that have not its prefix get it. (Built where the others are, each would take
// as long as all before it.)
void append(Whole& all, Whole one, const std::string& prefix) {
  Graph& graph = all.graph;
  const auto first_value = static_cast<ValueId>(graph.values.size());
  const auto first_node = static_cast<NodeId>(graph.nodes.size());
  const auto rename = [&](std::string& name) {
    if (name.compare(0, prefix.size(), prefix) != 0) name.insert(0, prefix);
  };
  const auto shift = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids)
      if (id != kNone) id += first_value;
  };
  for (Value& value : one.graph.values) {
    if (value.producer != kNone) value.producer += first_node;
    rename(value.name);
    graph.values.push_back(std::move(value));
  }
  for (Node& node : one.graph.nodes) {
    shift(node.inputs);
    shift(node.outputs);
    rename(node.name);
    graph.nodes.push_back(std::move(node));
  }
  for (const auto list : {&Graph::inputs, &Graph::parameters, &Graph::outputs}) {
    shift(one.graph.*list);
    (graph.*list).insert((graph.*list).end(), (one.graph.*list).begin(), (one.graph.*list).end());
  }
  for (const Update& u : one.graph.updates)
    graph.updates.push_back({u.state + first_value, u.next + first_value});
  for (auto& [id, tensor] : one.feeds) all.feeds.emplace(id + first_value, std::move(tensor));
  for (Whole::Part& part : one.parts) {
    shift(part.outputs);
    shift(part.gradients);
    all.parts.push_back(std::move(part));
  }
}

// Why the device cannot run what this sample needs; empty: it can.
std::string missing_kernels(const Graph& graph, kernels::Target target) {
  for (const Node& node : graph.nodes) {
    const std::string why = node.alive() ? missing_kernel(graph, node, target) : "";
    if (!why.empty()) return std::string(node.op->name) + ": " + why;
  }
  return "";
}

Result<std::map<ValueId, Tensor>> run(const Whole& whole, const std::string& device_id, bool& repeatable) {
  const PlannerDef* planner = find_planner("best-fit");
  const kernels::Target target = TRY(device_target(device_id));
  const Plan plan = TRY(make_plan(
      whole.graph, {planner->plan, planner->name, true, target, device_has_dnn_library(device_id)}));
  TRY(check_plan(whole.graph, plan));
  const auto device = TRY(open_device(device_id));
  const auto executor = TRY(Executor::create(whole.graph, plan, *device));
  std::map<ValueId, Tensor> results;
  for (int pass = 0; pass < 2; ++pass) {
    executor->poison();
    for (const auto& [id, tensor] : whole.feeds) TRY(executor->feed(id, tensor));
    TRY(executor->run_forward(kSeed, kStep));
    for (const ValueId v : whole.graph.outputs) {
      Tensor value = TRY(executor->read(v));
      const auto [at, fresh] = results.emplace(v, value);
      if (!fresh && pass == 1 && value.bytes() > 0 &&
          std::memcmp(at->second.data(), value.data(), value.bytes()) != 0)
        repeatable = false;
    }
  }
  return results;
}

struct SampleTolerance {
  double rtol, atol;
};

void compare_sample(const std::string& what, const Tensor& got, const Tensor& want, SampleTolerance tolerance,
                    CheckResult& result) {
  if (got.shape() != want.shape()) {
    result.status = CheckStatus::fail;
    result.reason = what + " is " + to_string(got.type()) + ", expected " + to_string(want.type());
    return;
  }
  double squares = 0;
  const std::int64_t n = want.count();
  for (std::int64_t i = 0; i < n; ++i) squares += want.at(i) * want.at(i);
  const double rms = n > 0 ? std::sqrt(squares / static_cast<double>(n)) : 0;
  const double atol = tolerance.atol * (std::isfinite(rms) ? std::max(1.0, rms) : 1.0);
  for (std::int64_t i = 0; i < n; ++i) {
    const double a = got.at(i), b = want.at(i), error = std::fabs(a - b);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    result.max_abs_error = std::max(result.max_abs_error, error);
    if (b != 0) result.max_rel_error = std::max(result.max_rel_error, error / std::fabs(b));
    const bool exact = !is_float(got.dtype());
    if (!exact && error <= atol + tolerance.rtol * std::fabs(b)) continue;
    if (result.status == CheckStatus::fail) continue;
    result.status = CheckStatus::fail;
    result.reason =
        what + ", element " + std::to_string(i) + ": " + number_text(a) + ", expected " + number_text(b);
  }
}

}  // namespace

Result<std::vector<CheckResult>> check_samples(const std::string& ops, const CheckOptions& options) {
  const kernels::Target target = TRY(device_target(options.device));
  const DType type = options.precision == "f64"    ? DType::f64
                     : options.precision == "f16"  ? DType::f16
                     : options.precision == "bf16" ? DType::bf16
                                                   : DType::f32;
  const DType rounded = is_half(type) ? type : DType::f32;
  std::vector<CheckResult> results;
  std::vector<SampleItem> items;
  Whole tested, reference;
  const bool whole_names = ops.find('/') != std::string::npos;
  for (const OpDef* op : all_ops()) {
    if (op->samples == nullptr || !glob_match(ops.substr(0, ops.find('/')), op->name)) continue;
    for (Sample& sample : op->samples()) {
      if (sample.bench ||
          !glob_match(ops, whole_names ? std::string(op->name) + "/" + sample.name : op->name))
        continue;
      SampleItem item{op, std::move(sample), {}, ""};
      item.result.name = std::string(op->name) + "/" + item.sample.name;
      item.prefix = "s" + std::to_string(items.size()) + "/";
      // Tried alone first: what the device lacks must not stop the others.
      Whole alone;
      bool gradients = op->grad != nullptr && add_item(alone, item, type, true, rounded).ok() &&
                       missing_kernels(alone.graph, target).empty();
      if (!gradients) {
        alone = {};
        const Status added = add_item(alone, item, type, false, rounded);
        const std::string why = added.ok() ? missing_kernels(alone.graph, target) : added.error().message;
        if (!why.empty()) {
          item.result.status = CheckStatus::unsupported;
          item.result.reason = why;
          results.push_back(item.result);
          continue;
        }
      }
      Whole exact;
      TRY(add_item(exact, item, DType::f64, gradients, rounded));
      append(tested, std::move(alone), item.prefix);
      append(reference, std::move(exact), item.prefix);
      items.push_back(std::move(item));
    }
  }
  if (items.empty()) return results;
  bool repeatable = true, reference_repeatable = true;
  const auto got = TRY(run(tested, options.device, repeatable));
  const auto want = TRY(run(reference, "cpu", reference_repeatable));
  const double rounding = type == DType::f16 ? 2.5e-3 : 2e-2;  // of half types
  const SampleTolerance outputs{options.rtol.value_or(is_half(type) ? rounding : 1e-5),
                                options.atol.value_or(is_half(type) ? rounding : 1e-5)};
  const SampleTolerance gradients{options.rtol.value_or(is_half(type) ? rounding : 1e-4),
                                  options.atol.value_or(is_half(type) ? rounding : 1e-5)};
  for (std::size_t i = 0; i < items.size(); ++i) {
    CheckResult& result = items[i].result;
    const Whole::Part &t = tested.parts[i], &r = reference.parts[i];
    for (std::size_t k = 0; k < t.outputs.size(); ++k)
      if (t.outputs[k] != kNone)
        compare_sample("output " + std::to_string(k), got.at(t.outputs[k]), want.at(r.outputs[k]), outputs,
                       result);
    for (std::size_t k = 0; k < t.gradients.size(); ++k) {
      if (t.gradients[k] == kNone) continue;
      compare_sample("gradient " + std::to_string(k), got.at(t.gradients[k]), want.at(r.gradients[k]),
                     gradients, result);
      ++result.gradients;
    }
    results.push_back(std::move(result));
  }
  if (!repeatable)
    return Error{Errc::check_failed, options.device + ": two runs of the same samples gave different bits"};
  return results;
}

}  // namespace gradloom
