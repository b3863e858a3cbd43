// gradloom inspect: what a model holds, and everything that stands in the way of
// training it (all of it at once).
#include <CLI/CLI.hpp>
#include <map>

#include "app/commands/commands.h"
#include "app/job.h"
#include "app/model_summary.h"
#include "app/op_libraries.h"
#include "app/recipe_flags.h"
#include "engine/base/text.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

struct InspectArguments {
  std::string model, loss, device;
  std::vector<std::string> dims, freeze, train;
  std::vector<std::string> import_limits, ops;
  bool limits = false;
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

// Gradients are asked for the loss if one is named, else for every output.
Result<std::vector<ValueId>> losses_of(const Graph& graph, const std::string& loss) {
  if (loss.empty()) return graph.outputs;
  if (const ValueId named = find_value(graph, loss); named != kNone) return std::vector<ValueId>{named};
  std::vector<std::string> outputs;
  for (const ValueId id : graph.outputs) outputs.push_back(graph.values[id].name);
  return Error{Errc::usage, "--loss: " + unknown_name("output", loss, outputs)};
}

// "node (Op): why"
Json list_of(const std::vector<Obstacle>& obstacles) {
  Json list = Json::array();
  for (const Obstacle& o : obstacles)
    list.push_back(escaped(o.node) + " (" + o.op + ")" + (o.reason.empty() ? "" : ": " + o.reason));
  return list;
}

Json list_of(const std::vector<UnknownOp>& unknown) {
  Json list = Json::array();
  for (const UnknownOp& u : unknown)
    list.push_back({{"node", u.node},
                    {"op", u.op_type},
                    {"domain", u.domain},
                    {"scope", u.scope},
                    {"reason", u.reason}});
  return list;
}

void print_json(const Output& out, const ImportedModel& model, const ModelSummary& f,
                const std::vector<ParameterRow>& parameters) {
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
  for (const OpCount& count : f.ops)
    ops.push_back({{"op", count.op}, {"nodes", count.nodes}, {"flops", count.flops}, {"bytes", count.bytes}});
  Json modules = Json::array();
  for (const auto& [scope, m] : f.modules)
    modules.push_back(
        {{"scope", scope}, {"nodes", m.nodes}, {"parameters", m.parameters}, {"flops", m.flops}});
  Json table = Json::array();
  for (const ParameterRow& row : parameters)
    table.push_back({{"name", row.name},
                     {"shape", row.type.shape},
                     {"trained", row.trained},
                     {"why", row.why},
                     {"unsure", row.unsure}});
  Json no_gradient = Json::array();
  for (const Obstacle& o : f.no_gradient)
    no_gradient.push_back({{"node", o.node}, {"op", o.op}, {"scope", o.scope}, {"reason", o.reason}});
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
              {"parameter_table", table},
              {"unsupported", list_of(model.unknown)},
              {"untyped", list_of(model.untyped)},
              {"sized_by_data", list_of(f.sized_by_data)},
              {"no_kernel", {{"cpu", list_of(f.no_cpu_kernel)}, {"gpu", list_of(f.no_gpu_kernel)}}},
              {"no_gradient", no_gradient},
              {"not_finite", f.not_finite},
              {"notes", model.notes}});
}

// "encoder/layers.0/attention/query" -> "encoder/layers.0"
std::string leading_scope(const std::string& scope) {
  const std::size_t first = scope.find('/');
  return scope.substr(0, first == std::string::npos ? first : scope.find('/', first + 1));
}

// The two leading levels; --json has all of them.
void print_modules(const Output& out, const std::map<std::string, ModuleCount>& modules) {
  std::map<std::string, ModuleCount> leading;
  for (const auto& [scope, m] : modules) {
    ModuleCount& sum = leading[leading_scope(scope)];
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

// Floats; --json has the integers too, shapes and indices.
void print_parameters(const Output& out, const std::vector<ParameterRow>& parameters) {
  std::vector<std::vector<std::string>> rows;
  for (const ParameterRow& row : parameters)
    if (is_float(row.type.dtype))
      rows.push_back({escaped(row.name), to_string(row.type.shape), row.trained ? "trained" : "frozen",
                      escaped(row.why)});
  if (rows.empty()) return;
  out.text(table_text({"parameter", "shape", "", "why"}, rows, {2, 3}));
  out.text("");
}

// "Op  node N in SCOPE: why"
std::string obstacle_text(const Obstacle& o, const std::string& before_reason = "") {
  return escaped(o.op) + "  node " + escaped(o.node) + (o.scope.empty() ? "" : " in " + escaped(o.scope)) +
         (o.reason.empty() ? "" : ": " + before_reason + o.reason);
}

// What stands in the way, all of it; true when something does on every device.
bool print_obstacles(const Output& out, const ImportedModel& model, const ModelSummary& f) {
  for (const Obstacle& o : obstacles_of(model.unknown)) out.text("unsupported  " + obstacle_text(o));
  for (const Obstacle& o : obstacles_of(model.untyped))
    out.text("untyped      " + obstacle_text(o, "its types could not be inferred: "));
  for (const Obstacle& o : f.sized_by_data) out.text("data-sized   " + obstacle_text(o));
  for (const Obstacle& o : f.no_gradient) out.text("no gradient  " + obstacle_text(o));
  return !model.unknown.empty() || !model.untyped.empty() || !f.sized_by_data.empty() ||
         !f.no_gradient.empty();
}

struct DeviceKind {
  const char* name;
  const char* covers;
  std::vector<Obstacle> ModelSummary::*no_kernel;
};
constexpr DeviceKind kDeviceKinds[] = {{"cpu", "", &ModelSummary::no_cpu_kernel},
                                       {"gpu", " (CUDA, HIP)", &ModelSummary::no_gpu_kernel}};

// `only`: of one kind; null: of both.
void print_text(const Output& out, const ImportedModel& model, const ModelSummary& f,
                const std::vector<ParameterRow>& parameters, const DeviceKind* only) {
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
  for (const OpCount& c : f.ops)
    rows.push_back({escaped(c.op), std::to_string(c.nodes), c.flops > 0 ? count_text(c.flops, "FLOP") : "-",
                    c.bytes > 0 ? bytes_text(c.bytes) : "-"});
  out.text("");
  out.text(table_text({"operator", "nodes", "forward FLOPs", "bytes moved"}, rows));
  out.text("");
  print_modules(out, f.modules);
  print_parameters(out, parameters);
  const bool everywhere = print_obstacles(out, model, f);
  for (const DeviceKind& kind : kDeviceKinds)
    for (const Obstacle& o : f.*kind.no_kernel)
      if (only == nullptr || only == &kind)
        out.text("no kernel    " + std::string(kind.name) + ": " + obstacle_text(o));
  for (const std::string& n : model.notes) out.note(escaped(n));
  for (const std::string& n : f.not_finite)
    out.note("weight '" + escaped(n) + "' holds NaN or infinite numbers");
  for (const DeviceKind& kind : kDeviceKinds)
    if (!everywhere && (only == nullptr || only == &kind) && (f.*kind.no_kernel).empty())
      out.text(std::string(kind.name) + "          every operator has a kernel and a gradient" + kind.covers);
}

// As they are, and as --import-limit changes them.
Status print_limits(const Output& out, const std::map<std::string, std::int64_t>& changed) {
  Limits limits;
  for (const auto& [name, n] : changed) TRY(set_limit(limits, name, n));
  Json object;
  for (const LimitField& field : limit_fields()) {
    object[field.name] = limits.*field.value;
    out.text(std::string(field.name) + " " + std::to_string(limits.*field.value));
  }
  out.object({{"limits", object}});
  return {};
}

}  // namespace

CommandRun declare_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectArguments>();
  app.add_option("MODEL", options->model, "ONNX file");
  app.add_option("--dim", options->dims, "bind a symbolic dimension, NAME=N (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  for (const auto& [flag, globs] : {std::pair("freeze", &options->freeze), {"train", &options->train}})
    app.add_option(std::string("--") + flag, *globs, find_setting(flag)->help + std::string(" (repeatable)"))
        ->take_all()
        ->allow_extra_args(false);
  app.add_option("--loss", options->loss, "the output to differentiate (default: every output)");
  app.add_option("--device", options->device,
                 "report missing kernels for cpu | cuda:N | hip:N only (default: for all)");
  declare_import_limits(app, options->import_limits);
  declare_op_libraries(app, options->ops);
  app.add_flag("--limits", options->limits, "print the limits that files must keep");
  return [options](CommandContext& context) -> Status {
    if (options->limits) return print_limits(context.out, TRY(read_import_limits(options->import_limits)));
    if (options->model.empty()) return Error{Errc::usage, "inspect: MODEL is required"};
    TRY(load_op_libraries(options->ops));
    Recipe recipe;
    recipe.model = options->model;
    for (const std::string& d : options->dims) TRY(RecipeFlags::override_with(recipe, "dim=" + d));
    recipe.train = options->train;
    recipe.import_limits = TRY(read_import_limits(options->import_limits));
    const ImportedModel model = TRY(load_model(recipe, true));
    const DeviceKind* only = nullptr;
    if (!options->device.empty())
      only = &kDeviceKinds[TRY(device_target(options->device)) == kernels::Target::cpu ? 0 : 1];
    TrainSpec named;
    named.freeze = options->freeze;
    named.train = options->train;
    TRY(check_named(model.graph, named));
    const std::vector<ValueId> losses = TRY(losses_of(model.graph, options->loss));
    const ModelSummary summary = summarize(model, losses);
    const std::vector<ParameterRow> parameters = parameter_table(model, losses, named);
    print_json(context.out, model, summary, parameters);
    print_text(context.out, model, summary, parameters, only);
    return {};
  };
}

}  // namespace gradloom
