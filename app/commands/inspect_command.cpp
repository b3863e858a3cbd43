// gradloom inspect: what a model holds, and everything that stands in the way of training it (all of it at
// once).
#include <CLI/CLI.hpp>
#include <map>
#include <set>

#include "app/commands/commands.h"
#include "app/job.h"
#include "app/recipe_flags.h"
#include "engine/autodiff/autodiff.h"
#include "engine/base/text.h"
#include "engine/ops/op.h"

namespace gradloom {
namespace {

struct Options {
  std::string model, loss;
  std::vector<std::string> dims;
  std::vector<std::string> import_limits;
  bool limits = false;
};

struct OpCount {
  int nodes = 0;
  double flops = 0, bytes = 0;
};

struct Module {
  int nodes = 0;
  double flops = 0;
  std::int64_t parameters = 0;  // that its own nodes read first
};

struct Findings {
  std::map<std::string, OpCount> ops;
  std::map<std::string, Module> modules;                  // by scope, "layers.0/attention"
  std::vector<std::string> no_cpu_kernel, no_gpu_kernel;  // "node (Op): why"
  std::vector<MissingGradient> no_gradient;
  double flops = 0, bytes = 0;
  std::int64_t parameters = 0, parameter_bytes = 0;
};

std::string type_text(const Graph& graph, const Type& type) {
  std::string text = std::string(dtype_name(type.dtype)) + "[";
  for (std::size_t i = 0; i < type.shape.size(); ++i) {
    const std::int64_t d = type.shape[i];
    const auto symbol = static_cast<std::size_t>(-d - 1);
    text += (i ? ", " : "") + (d >= 0                          ? std::to_string(d)
                               : symbol < graph.symbols.size() ? escaped(graph.symbols[symbol])
                                                               : "?");
  }
  return text + "]";
}

bool all_static(const Graph& graph, const Node& node) {
  for (const auto* list : {&node.inputs, &node.outputs})
    for (ValueId v : *list)
      if (v != kNone && (!graph.values[v].has_type || !is_static(graph.values[v].type.shape))) return false;
  return true;
}

// Gradients are asked for the loss if one is named, else for every float output.
std::vector<MissingGradient> find_missing_gradients(const Graph& graph, const std::string& loss) {
  const ValueId named = loss.empty() ? kNone : find_value(graph, loss);
  return missing_gradients(graph, named != kNone ? std::vector<ValueId>{named} : graph.outputs,
                           graph.parameters);
}

std::string scope_of(const Graph& graph, const Node& node) {
  return node.origin.sources.empty() ? "" : graph.sources[node.origin.sources[0]].scope;
}

Findings examine(const ImportedModel& model, const std::string& loss) {
  Findings f;
  const Graph& graph = model.graph;
  std::set<ValueId> seen;  // parameters
  for (const Node& node : graph.nodes) {
    if (!node.alive()) continue;
    OpCount& count = f.ops[node.op->name];
    ++count.nodes;
    Module& module = f.modules[scope_of(graph, node)];
    ++module.nodes;
    for (const ValueId id : node.inputs)
      if (id != kNone && graph.values[id].role == Role::parameter && seen.insert(id).second)
        module.parameters += element_count(graph.values[id].type.shape);
    const bool known = node.op->infer != nullptr;
    for (const auto& [target, list] :
         {std::pair(kernels::Target::cpu, &f.no_cpu_kernel), {kernels::Target::gpu, &f.no_gpu_kernel}}) {
      const std::string why = known ? missing_kernel(graph, node, target) : "";
      if (!why.empty())
        list->push_back(escaped(node.name) + " (" + node.op->name + ")" +
                        (why == "no kernel" ? "" : ": " + why));
    }
    if (!known || node.op->has(kView) || !all_static(graph, node)) continue;
    const Cost cost = node.op->cost(node_types(graph, node));
    count.flops += cost.flops;
    count.bytes += cost.bytes_read + cost.bytes_written;
    f.flops += cost.flops;
    module.flops += cost.flops;
    f.bytes += cost.bytes_read + cost.bytes_written;
  }
  for (ValueId p : graph.parameters) {
    f.parameters += element_count(graph.values[p].type.shape);
    f.parameter_bytes += static_cast<std::int64_t>(byte_size(graph.values[p].type));
  }
  f.no_gradient = find_missing_gradients(graph, loss);
  return f;
}

void print_json(const Output& out, const ImportedModel& model, const Findings& f) {
  const Graph& graph = model.graph;
  const auto values = [&](const std::vector<ValueId>& ids) {
    Json list = Json::array();
    for (ValueId id : ids) {
      const Value& v = graph.values[id];
      Json dims = Json::array();
      for (std::int64_t d : v.type.shape) {
        const auto symbol = static_cast<std::size_t>(-d - 1);
        dims.push_back(d >= 0 ? Json(d) : Json(symbol < graph.symbols.size() ? graph.symbols[symbol] : "?"));
      }
      list.push_back({{"name", v.name},
                      {"dtype", v.has_type ? Json(dtype_name(v.type.dtype)) : Json(nullptr)},
                      {"shape", dims}});
    }
    return list;
  };
  Json ops = Json::array();
  for (const auto& [name, count] : f.ops)
    ops.push_back({{"op", name}, {"nodes", count.nodes}, {"flops", count.flops}, {"bytes", count.bytes}});
  Json modules = Json::array();
  for (const auto& [scope, m] : f.modules)
    modules.push_back(
        {{"scope", scope}, {"nodes", m.nodes}, {"parameters", m.parameters}, {"flops", m.flops}});
  Json unknown = Json::array(), no_gradient = Json::array();
  for (const UnknownOp& u : model.unknown)
    unknown.push_back({{"node", u.node},
                       {"op", u.op_type},
                       {"domain", u.domain},
                       {"scope", u.scope},
                       {"reason", u.reason}});
  for (const MissingGradient& m : f.no_gradient)
    no_gradient.push_back({{"node", m.node}, {"op", m.op_type}, {"scope", m.scope}});
  out.object({{"model", model.path},
              {"hash", model.content_hash},
              {"producer", model.producer},
              {"opset", graph.opset},
              {"ir_version", model.ir_version},
              {"nodes", live_node_count(graph)},
              {"parameters", f.parameters},
              {"parameter_bytes", f.parameter_bytes},
              {"unbound_dims", model.unbound_dims},
              {"inputs", values(graph.inputs)},
              {"outputs", values(graph.outputs)},
              {"flops", f.flops},
              {"bytes", f.bytes},
              {"ops", ops},
              {"modules", modules},
              {"unsupported", unknown},
              {"no_kernel", {{"cpu", f.no_cpu_kernel}, {"gpu", f.no_gpu_kernel}}},
              {"no_gradient", no_gradient},
              {"notes", model.notes}});
}

// "encoder/layers.0/attention/query" -> "encoder/layers.0"
std::string leading_scope(const std::string& scope) {
  const std::size_t first = scope.find('/');
  return scope.substr(0, first == std::string::npos ? first : scope.find('/', first + 1));
}

// The two leading levels; --json has all of them.
void print_modules(const Output& out, const std::map<std::string, Module>& modules) {
  std::map<std::string, Module> leading;
  for (const auto& [scope, m] : modules) {
    Module& sum = leading[leading_scope(scope)];
    sum.nodes += m.nodes;
    sum.flops += m.flops;
    sum.parameters += m.parameters;
  }
  if (leading.size() < 2) return;
  std::vector<std::vector<std::string>> rows;
  for (const auto& [scope, m] : leading)
    rows.push_back({scope.empty() ? "(top)" : escaped(scope), std::to_string(m.nodes),
                    m.flops > 0 ? count_text(m.flops, "FLOP") : "-",
                    m.parameters > 0 ? count_text(static_cast<double>(m.parameters), "") : "-"});
  out.text(table_text({"module", "nodes", "forward FLOPs", "parameters"}, rows));
  out.text("");
}

void print_text(const Output& out, const ImportedModel& model, const Findings& f) {
  const Graph& graph = model.graph;
  out.text("model       " + escaped(model.path));
  out.text("made by     " + (model.producer.empty() ? std::string("unknown") : escaped(model.producer)) +
           ", opset " + std::to_string(graph.opset) + ", IR " + std::to_string(model.ir_version));
  out.text("nodes       " + std::to_string(live_node_count(graph)));
  out.text("parameters  " + count_text(static_cast<double>(f.parameters), "") + " in " +
           plural_text(static_cast<std::int64_t>(graph.parameters.size()), "tensor") + ", " +
           bytes_text(static_cast<double>(f.parameter_bytes)));
  for (ValueId id : graph.inputs)
    out.text("input       " + escaped(graph.values[id].name) + "  " +
             type_text(graph, graph.values[id].type));
  for (ValueId id : graph.outputs)
    out.text("output      " + escaped(graph.values[id].name) + "  " +
             (graph.values[id].has_type ? type_text(graph, graph.values[id].type) : "?"));
  std::string dims;
  for (const std::string& d : model.unbound_dims) dims += (dims.empty() ? "" : ", ") + escaped(d);
  if (!dims.empty())
    out.text("unbound     " + dims + "   (bind with --dim NAME=N to see FLOPs and bytes)");
  else
    out.text("forward     " + count_text(f.flops, "FLOP") + ", " + bytes_text(f.bytes) + " moved");
  std::vector<std::vector<std::string>> rows;
  std::vector<std::pair<std::string, OpCount>> sorted(f.ops.begin(), f.ops.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.flops > b.second.flops; });
  for (const auto& [name, c] : sorted)
    rows.push_back({escaped(name), std::to_string(c.nodes), c.flops > 0 ? count_text(c.flops, "FLOP") : "-",
                    c.bytes > 0 ? bytes_text(c.bytes) : "-"});
  out.text("");
  out.text(table_text({"operator", "nodes", "forward FLOPs", "bytes moved"}, rows));
  out.text("");
  print_modules(out, f.modules);
  for (const UnknownOp& u : model.unknown)
    out.text("unsupported  " + (u.domain.empty() ? "" : escaped(u.domain) + ".") + escaped(u.op_type) +
             "  node " + escaped(u.node) + (u.scope.empty() ? "" : " in " + escaped(u.scope)) +
             (u.reason.empty() ? "" : ": " + u.reason));
  for (const std::string& n : f.no_cpu_kernel) out.text("no kernel    cpu: " + n);
  for (const std::string& n : f.no_gpu_kernel) out.text("no kernel    gpu: " + n);
  for (const MissingGradient& m : f.no_gradient)
    out.text("no gradient  " + m.op_type + "  node " + escaped(m.node) +
             (m.scope.empty() ? "" : " in " + escaped(m.scope)));
  for (const std::string& n : model.notes) out.note(escaped(n));
  if (!model.unknown.empty() || !f.no_gradient.empty()) return;
  if (f.no_cpu_kernel.empty()) out.text("cpu          every operator has a kernel and a gradient");
  if (f.no_gpu_kernel.empty())
    out.text("gpu          every operator has a kernel and a gradient (CUDA, HIP)");
}

void print_limits(const Output& out) {
  const Limits limits;
  Json object;
  for (const LimitField& field : limit_fields()) {
    object[field.name] = limits.*field.value;
    out.text(std::string(field.name) + " " + std::to_string(limits.*field.value));
  }
  out.object({{"limits", object}});
}

}  // namespace

CommandRun declare_inspect(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("MODEL", options->model, "ONNX file");
  app.add_option("--dim", options->dims, "bind a symbolic dimension, NAME=N (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--loss", options->loss, "output whose gradient is asked for (default: every output)");
  declare_import_limits(app, options->import_limits);
  app.add_flag("--limits", options->limits, "print the limits that files must keep");
  return [options](CommandContext& context) -> Status {
    if (options->limits) {
      print_limits(context.out);
      return {};
    }
    if (options->model.empty()) return Error{Errc::usage, "inspect: MODEL is required"};
    Recipe recipe;
    recipe.model = options->model;
    for (const std::string& d : options->dims) TRY(RecipeFlags::override_with(recipe, "dim=" + d));
    recipe.import_limits = TRY(read_import_limits(options->import_limits));
    const ImportedModel model = TRY(load_model(recipe, true));
    const Findings findings = examine(model, options->loss);
    print_json(context.out, model, findings);
    print_text(context.out, model, findings);
    return {};
  };
}

}  // namespace gradloom
