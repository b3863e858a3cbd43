// The whole way from an imported forward graph to a plan.
#include "passes/compile.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "engine/autodiff/autodiff.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/collectives/parameter_part.h"
#include "engine/ops/inference.h"
#include "engine/ops/rank_part.h"
#include "engine/plan/known_kernels.h"
#include "engine/train/inference_form.h"
#include "engine/train/state_ranges.h"
#include "engine/train/weight_copies.h"
#include "passes/planners.h"
#include "passes/tensor_parallel.h"

namespace gradloom {
namespace {

// Passes before autodiff. Where some matched in the place of one to which they give way (PassDef), they run again without those.
Status run_before_gradient(Graph& graph, Pipeline& pipeline, const CompileOptions& options,
                           std::vector<PassReport>& reports, const std::stop_token& stop) {
  constexpr PassPhase kPhase = PassPhase::pre_gradient;
  std::vector<const PassDef*> giving_way;
  for (const PassConfig& config : pipeline.passes)
    if (config.def->gives_way_to != nullptr && pipeline.find(config.def->gives_way_to) != nullptr)
      giving_way.push_back(config.def);
  if (!giving_way.empty()) {
    Graph tried = graph;
    std::vector<PassReport> found;
    TRY(run_passes(tried, pipeline, kPhase, found, options.target, {}, stop));
    const auto matched = [&](std::string_view pass) {
      return std::any_of(found.begin(), found.end(),
                         [&](const PassReport& report) { return report.name == pass && report.matched > 0; });
    };
    std::erase_if(giving_way,
                  [&](const PassDef* def) { return matched(def->gives_way_to) || !matched(def->name); });
    if (giving_way.empty() && !options.watch) {
      graph = std::move(tried);
      std::move(found.begin(), found.end(), std::back_inserter(reports));
      return {};
    }
    std::erase_if(pipeline.passes, [&](const PassConfig& config) {
      return std::find(giving_way.begin(), giving_way.end(), config.def) != giving_way.end();
    });
  }
  return run_passes(graph, pipeline, kPhase, reports, options.target, options.watch, stop);
}

Status check_stop(const std::stop_token& stop) {
  if (stop.stop_requested()) return Error{Errc::interrupted, "compilation was cancelled"};
  return {};
}

Status set_gradient_loss(Graph& graph, const std::string& name) {
  if (graph.outputs.empty()) return Error{Errc::bad_input, "the model has no outputs"};
  graph.loss = graph.outputs[0];
  if (name.empty()) return {};
  for (ValueId id : graph.outputs) {
    if (graph.values[id].name != name) continue;
    graph.loss = id;
    return {};
  }
  return Error{Errc::usage, "the model has no output '" + escaped(name) + "'"};
}

std::size_t output_index(Graph& graph, ValueId id) {
  const auto at = std::find(graph.outputs.begin(), graph.outputs.end(), id);
  const auto index = static_cast<std::size_t>(at - graph.outputs.begin());
  if (at == graph.outputs.end()) graph.outputs.push_back(id);
  return index;
}

// Passes replace values; positions in Graph::outputs stay. The gradients of check, by position.
struct GradientOutput {
  std::string name;
  bool exists = false;
  std::size_t index = 0;
};

Result<std::vector<GradientOutput>> add_gradient_outputs(Graph& graph) {
  std::vector<ValueId> wrt;
  for (ValueId id : graph.parameters) {
    if (is_float(graph.type(id).dtype)) wrt.push_back(id);
  }
  for (ValueId id : graph.inputs) {
    if (is_float(graph.type(id).dtype)) wrt.push_back(id);
  }
  const std::map<ValueId, ValueId> gradients = TRY(add_gradients(graph, graph.loss, wrt));
  std::vector<GradientOutput> outputs;
  for (ValueId id : wrt) {
    const ValueId gradient = gradients.at(id);
    GradientOutput output{graph.values[id].name, gradient != kNone};
    if (output.exists) output.index = output_index(graph, gradient);
    outputs.push_back(output);
  }
  return outputs;
}

// A glob that fits nothing was meant for something.
Status check_globs(const Graph& graph, const char* flag, const std::vector<std::string>& globs,
                   const char* of_what, bool (*may_be_meant)(const Graph&, ValueId)) {
  for (const std::string& glob : globs) {
    bool fits = false;
    for (ValueId id = 0; id < graph.values.size() && !fits; ++id)
      fits = may_be_meant(graph, id) && glob_match(glob, graph.values[id].name);
    if (fits) continue;
    std::vector<std::string> parameters;
    for (const ValueId id : graph.parameters) parameters.push_back(graph.values[id].name);
    return Error{Errc::usage, std::string(flag) + " '" + escaped(glob) + "' fits " + of_what +
                                  "; the nearest is '" + escaped(nearest_to_glob(glob, parameters)) + "'"};
  }
  return {};
}

// Names of nodes that the model or a pass ever had.
std::set<std::string> node_names(const Graph& imported, const Compiled& compiled) {
  std::set<std::string> names;
  for (const Graph* graph : {&imported, &compiled.train.graph})
    for (const Node& n : graph->nodes) names.insert(n.name);
  for (const SourceNode& s : imported.sources) names.insert(s.name);
  for (const PassReport& report : compiled.reports)
    for (const RewriteRecord& record : report.log) {
      names.insert(record.added.begin(), record.added.end());
      names.insert(record.removed.begin(), record.removed.end());
    }
  return names;
}

// What a pass met in this model: names of its instances, matched or not, and their fingerprints.
std::vector<std::pair<std::string, std::string>> met_instances(const std::vector<PassReport>& reports,
                                                               const std::string& pass) {
  std::vector<std::pair<std::string, std::string>> met;
  for (const PassReport& report : reports)
    if (report.name == pass)
      for (const RewriteRecord& record : report.log) met.emplace_back(record.site, record.fingerprint);
  return met;
}

// An instance that the user named is one that its pass met. A node that the pass has no use for under these
// settings may have been one under others (other passes, another device), so that is only noted; of a pass for
// another device only the names can be judged.
Status check_instance(const Graph& imported, const CompileOptions& options, const PassConfig& config,
                      const std::string& entry, const char* for_what, Compiled& compiled) {
  const std::string owner = std::string("pass ") + config.def->name;
  const bool elsewhere = config.def->target && *config.def->target != options.target;
  const auto met = met_instances(compiled.reports, config.def->name);
  if (!elsewhere && std::any_of(met.begin(), met.end(), [&](const auto& instance) {
        return fits_instance(entry, instance.first, instance.second);
      }))
    return {};
  const std::set<std::string> nodes = node_names(imported, compiled);
  const bool is_node = std::any_of(nodes.begin(), nodes.end(),
                                   [&](const auto& name) { return fits_instance(entry, name, ""); });
  if (is_node || (elsewhere && is_fingerprint(entry))) {
    if (!elsewhere) compiled.notes.push_back(owner + " has nothing to " + for_what + " at '" + entry + "'");
    return {};
  }
  std::vector<std::string> known;
  for (const auto& [name, fingerprint] : met) known.push_back(is_fingerprint(entry) ? fingerprint : name);
  std::erase(known, "");
  if (known.empty() && elsewhere) known.assign(nodes.begin(), nodes.end());
  return Error{Errc::usage,
               owner + " has no site '" + escaped(entry) + "' to " + for_what +
                   (known.empty() ? std::string(": it finds nothing in this model")
                                  : "; did you mean " + escaped(nearest_to_glob(entry, known)) + "?")};
}

Status check_sites(const Graph& imported, const CompileOptions& options, Compiled& compiled) {
  for (const PassConfig& config : options.pipeline.passes) {
    for (const std::string& entry : config.sites.except)
      TRY(check_instance(imported, options, config, entry, "switch off", compiled));
    for (const std::string& entry : config.sites.only)
      TRY(check_instance(imported, options, config, entry, "leave on", compiled));
  }
  return {};
}

// A recipe that was made for the whole step has instances in its optimizer, too: what a module does not have is noted.
void note_missing_sites(const CompileOptions& options, CompiledModule& compiled) {
  for (const PassConfig& config : options.pipeline.passes) {
    const auto met = met_instances(compiled.reports, config.def->name);
    for (const auto* entries : {&config.sites.except, &config.sites.only})
      for (const std::string& entry : *entries)
        if (std::none_of(met.begin(), met.end(), [&](const auto& instance) {
              return fits_instance(entry, instance.first, instance.second);
            }))
          compiled.notes.push_back(std::string("pass ") + config.def->name + " has no site '" + entry +
                                   "' here");
  }
}

// `forward_outputs`: as in PlanOptions, of a module.
PlanOptions plan_options(const CompileOptions& options, const PlannerDef& planner,
                         std::optional<std::size_t> forward_outputs = {}) {
  return {planner.plan,
          planner.name,
          options.in_place,
          options.target,
          options.dnn_library,
          forward_outputs,
          std::make_shared<KnownKernels>(),
          options.pieces,
          step_speeds(options)};
}

// What the planner did with the Slice, Split and Concat nodes that the passes left, in the words of a pass. The graph
// stays: those that need no kernel are views of memory.
void report_pieces(const Graph& graph, const Plan& plan, std::vector<PassReport>& reports) {
  if (plan.choices.empty()) return;
  PassReport report{.name = "pieces", .at = PassPhase::post_gradient};
  report.nodes_before = report.nodes_after = live_node_count(graph);
  for (const PieceChoice& choice : plan.choices) {
    const Node& node = graph.nodes[choice.node];
    ++(choice.taken ? report.matched : report.rejected);
    const char* const rule = is_op(node, "Concat") ? "join" : "part";
    report.log.push_back({rule, node.name, choice.taken, choice.why, {}, {}, {}, node.origin.sources});
  }
  reports.push_back(std::move(report));
}

RecomputeOptions recompute_options(const CompileOptions& options, PlanOptions plan, std::stop_token stop) {
  // FLOPs that take as long as moving a byte: two cores of a server, and GPUs with products in 16 bits.
  const double flops_per_byte = options.target == kernels::Target::cpu ? 15 : 100;
  return {std::move(plan), flops_per_byte, options.kernel_ns, options.train.accumulate, std::move(stop)};
}

// A graph after all passes but recompute, and what comes of it.
struct Planned {
  Graph& graph;
  Plan& plan;
  std::vector<PassReport>& reports;
  std::vector<std::string>& notes;
};

bool offload_allowed(const CompileOptions& options) {
  return std::find(options.offload.begin(), options.offload.end(), kOffloadAuto) != options.offload.end();
}

// The least predicted time, of choices of recompute and of what leaves the device with each. False: nothing fits.
Result<bool> fit_with_offload(const CompileOptions& options, const PlanOptions& how, const Planned& planned,
                              std::vector<RecomputeChoice> curve, std::stop_token stop,
                              std::int64_t& least_bytes) {
  std::optional<FittedPlan> fitted =
      TRY(offload_to_fit(planned.graph, planned.reports,
                         {how, options.memory_budget_bytes, std::move(curve), std::move(stop)}, least_bytes));
  if (!fitted) return false;
  planned.graph = std::move(fitted->graph);
  planned.reports = std::move(fitted->reports);
  planned.plan = std::move(fitted->plan);
  return true;
}

// The cheapest choice of recompute whose plan is within the budget.
Status fit_memory(const CompileOptions& options, const PlanOptions& how, const Planned& planned,
                  std::stop_token stop) {
  const std::int64_t before = planned.plan.peak_bytes();
  const auto curve = TRY(recompute_curve(planned.graph, recompute_options(options, how, stop)));
  const std::int64_t budget = options.memory_budget_bytes;
  std::int64_t offloaded_bytes = curve.back().peak_bytes, least_bytes = before;
  if (offload_allowed(options) &&
      TRY(fit_with_offload(options, how, planned, curve, std::move(stop), offloaded_bytes)))
    return {};
  if (offload_allowed(options) && offloaded_bytes > budget)
    least_bytes = std::min(least_bytes, offloaded_bytes);
  for (const RecomputeChoice& choice : curve) {
    if (choice.nodes.empty()) continue;
    std::int64_t peak_bytes = choice.peak_bytes;  // at least: the planner may need more
    if (peak_bytes <= budget) {
      Graph graph = planned.graph;
      std::vector<PassReport> reports = planned.reports;
      TRY(apply_recompute(graph, choice.nodes, reports));
      Plan plan = TRY(make_plan(graph, how));
      peak_bytes = plan.peak_bytes();
      if (peak_bytes <= budget) {
        planned.graph = std::move(graph);
        planned.reports = std::move(reports);
        planned.plan = std::move(plan);
        return {};
      }
    }
    least_bytes = std::min(least_bytes, peak_bytes);
  }
  const auto text = [](std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  return Error{Errc::device, "the memory budget of " + text(budget) + " cannot be met: the step takes " +
                                 text(before) +
                                 (offload_allowed(options) ? ", with recompute and offload at least "
                                                           : ", with recompute at least ") +
                                 text(least_bytes) + " with planner " + options.planner +
                                 " (a smaller batch would help: --dim, with --accumulate)"};
}

// Recompute and plan. Outputs stay what they are.
Status plan_memory(const CompileOptions& options, PlanOptions how, const Planned& planned,
                   std::stop_token stop) {
  if (!options.recompute.empty()) {
    TRY(recompute_named(planned.graph, options.recompute, planned.reports));
    if (planned.reports.back().matched == 0)
      planned.notes.emplace_back("recompute: nothing that it names is read after the loss and can run twice");
  }
  std::vector<std::string> leaving = options.offload;
  std::erase(leaving, kOffloadAuto);
  if (!leaving.empty()) {
    TRY(offload_named(planned.graph, leaving, how, planned.reports));
    if (planned.reports.back().matched == 0)
      planned.notes.emplace_back(
          "offload: nothing that it names is idle between the forward and the backward pass");
  }
  planned.plan = TRY(make_plan(planned.graph, how));
  if (options.memory_budget_bytes > 0 && planned.plan.peak_bytes() > options.memory_budget_bytes)
    TRY(fit_memory(options, how, planned, std::move(stop)));
  return {};
}

}  // namespace

Result<std::vector<RecomputeChoice>> memory_curve(const Compiled& compiled, const CompileOptions& options,
                                                  std::stop_token stop) {
  const PlannerDef* planner = TRY(known_planner(options.planner));
  return recompute_curve(compiled.train.graph,
                         recompute_options(options, plan_options(options, *planner), std::move(stop)));
}

Result<Plan> plan_of_graph(const Graph& graph, const CompileOptions& options) {
  const PlannerDef* planner = TRY(known_planner(options.planner));
  return make_plan(graph, plan_options(options, *planner));
}

StepSpeeds step_speeds(const CompileOptions& options) {
  StepSpeeds speeds;
  if (options.link_bytes_per_ns > 0) speeds.link = options.link_bytes_per_ns;
  speeds.step_ns = options.kernel_ns;
  return speeds;
}

// `freeze` may name buffers and constants too, which are not trained anyway.
Status check_named(const Graph& graph, const TrainSpec& spec) {
  const auto may_be_frozen = [](const Graph& g, ValueId id) {
    return g.value(id).producer == kNone && g.value(id).role != Role::input;
  };
  TRY(check_globs(graph, "--freeze", spec.freeze, "no parameter", may_be_frozen));
  std::vector<std::string> frozen, grouped;
  for (const ParameterGroup& group : spec.groups) (group.freeze ? frozen : grouped).push_back(group.glob);
  TRY(check_globs(graph, "--group", frozen, "no parameter", may_be_frozen));
  TRY(check_globs(graph, "--group", grouped, "no parameter",
                  [](const Graph& g, ValueId id) { return g.value(id).role == Role::parameter; }));
  return check_globs(graph, "--train", spec.train, "nothing that can be trained",
                     [](const Graph& g, ValueId id) { return g.value(id).role == Role::parameter; });
}

namespace {

// What reads the parameter reads the copy: a cast to the copy's type is the copy itself, anything else gets it widened.
void read_copy(Rewriter& rw, ValueId parameter, const Value& copy) {
  const Graph& graph = rw.graph();
  const std::vector<Use> uses = rw.uses(parameter);
  if (uses.empty()) return;
  std::vector<NodeId> casts;
  for (const Use& use : uses)
    if (const Node& node = graph.nodes[use.node];
        is_op(node, "Cast") && graph.type(node.outputs[0]) == copy.type)
      casts.push_back(use.node);
  GraphBuilder& b = rw.begin("copy", uses[0].node, casts);
  const ValueId rounded = b.input(copy.name, copy.type, Role::state);
  for (const NodeId cast : casts) rw.replace(graph.nodes[cast].outputs[0], rounded);
  ValueId widened = kNone;
  for (const Use& use : uses) {
    if (std::find(casts.begin(), casts.end(), use.node) != casts.end()) continue;
    if (widened == kNone)
      widened = b.op("Cast", {rounded}, {{"to", onnx_from_dtype(graph.type(parameter).dtype)}});
    std::vector<ValueId> read = graph.nodes[use.node].inputs;
    read[use.input_index] = widened;
    rw.retype(use.node, std::move(read), graph.nodes[use.node].attrs);
  }
  rw.commit();
}

// Of parameters of which a rank of the training keeps a part alone (pass zero) the 16-bit copies are read, which are whole. A step reads such
// a parameter through one cast and nothing else. Where the evaluation reads it in f32, a cast of the step came up through what
// only moves numbers (move-casts), so that rounding first changes no bit.
Status read_copies(Graph& graph, const Graph& trained, std::vector<PassReport>& reports) {
  const std::map<ValueId, OwnRange> parts = parameter_ranges(trained);
  if (parts.empty()) return {};
  std::map<std::string_view, const Value*> copies;
  for (const auto& [copy, of] : weight_copies(trained))
    if (parts.count(of) != 0) copies[trained.values[of].name] = &trained.values[copy];
  const auto read = [&](Rewriter& rw) -> Status {
    for (const ValueId parameter : graph.parameters)
      if (const auto copy = copies.find(graph.values[parameter].name); copy != copies.end())
        read_copy(rw, parameter, *copy->second);
    return {};
  };
  return run_rewrites(graph, {.name = "zero"}, read, reports);
}

}  // namespace

Result<CompiledEvaluation> compile_evaluation(const Compiled& compiled, const CompileOptions& options,
                                              std::stop_token stop) {
  const PlannerDef* planner = TRY(known_planner(options.planner));
  CompiledEvaluation evaluation{compiled.forward, {}};
  Graph& graph = evaluation.graph;
  TRY(make_inference_form(graph));
  std::vector<PassReport> reports;
  const Pipeline pipeline = pipeline_as_split(
      TRY(pipeline_for_ranks(options.pipeline, options.train.ranks, options.train.optimizer)),
      compiled.reports);
  for (const PassPhase phase : {PassPhase::pre_gradient, PassPhase::post_gradient}) {
    TRY(run_passes(graph, pipeline, phase, reports, options.target, {}, stop));
    TRY(keep_parts(graph, own_part(tensor_ranks(graph))));
    if (phase == PassPhase::pre_gradient) TRY(read_copies(graph, compiled.train.graph, reports));
  }
  evaluation.plan = TRY(make_plan(graph, plan_options(options, *planner)));
  return evaluation;
}

Result<CompiledModule> compile_module(const Graph& imported, const CompileOptions& options,
                                      const ModuleSpec& spec, std::stop_token stop) {
  const PlannerDef* planner = TRY(known_planner(options.planner));
  if (!options.offload.empty())
    return Error{
        Errc::usage,
        "offload: a module's forward and backward pass run apart, on the CPU; nothing of it leaves a GPU's memory"};
  const Pipeline pipeline = TRY(pipeline_for_ranks(options.pipeline, 1, options.train.optimizer));
  CompiledModule compiled{imported, {}, {}, {}, {}};
  Graph& graph = compiled.graph;
  TRY(check_named(graph, options.train));
  TRY(make_module_forward(graph, spec, options.train));
  TRY(run_passes(graph, pipeline, PassPhase::pre_gradient, compiled.reports, options.target, {}, stop));
  const std::size_t outputs = graph.outputs.size();
  if (spec.gradients) compiled.gradients = TRY(add_module_gradients(graph, spec));
  TRY(run_passes(graph, pipeline, PassPhase::post_gradient, compiled.reports, options.target, {}, stop));
  note_missing_sites(options, compiled);
  const PlanOptions how = plan_options(options, *planner, outputs);
  if (compiled.gradients.made.empty())  // no backward pass, in which something could run again
    compiled.plan = TRY(make_plan(graph, how));
  else
    TRY(plan_memory(options, how, {graph, compiled.plan, compiled.reports, compiled.notes}, std::move(stop)));
  report_pieces(graph, compiled.plan, compiled.reports);
  return compiled;
}

Result<Compiled> compile(const Graph& imported, const CompileOptions& options, std::stop_token stop) {
  const std::int64_t start_ns = monotonic_ns();
  const PlannerDef* planner = TRY(known_planner(options.planner));
  if (!options.offload.empty() && options.target == kernels::Target::cpu)
    return Error{
        Errc::usage,
        "--offload moves values from a GPU's memory to the host's, and the CPU's memory is the host's: it needs --device cuda:0, hip:0 or host-gpu (--recompute saves memory on the CPU, too)"};
  Compiled compiled;
  compiled.forward = imported;
  if (options.gradients_only)
    TRY(set_gradient_loss(compiled.forward, options.loss_for_gradients));
  else
    TRY(add_loss(compiled.forward, options.train.loss));
  TRY(check_named(compiled.forward, options.train));
  if (!options.gradients_only) freeze_parameters(compiled.forward, options.train);
  TRY(check_stop(stop));

  Graph graph = compiled.forward;
  if (options.gradients_only)
    for (const ValueId id : graph.inputs) graph.values[id].wanted = is_float(graph.type(id).dtype);
  std::vector<RewriteRecord> removed;
  if (!options.gradients_only) removed = TRY(keep_trained(graph));
  const std::size_t trained_on = live_node_count(graph);
  if (options.watch) options.watch(graph, kStartStage, PassPhase::pre_gradient, nullptr);
  Pipeline pipeline = TRY(pipeline_for_ranks(
      options.pipeline, options.gradients_only ? 1 : options.train.ranks, options.train.optimizer));
  TRY(run_before_gradient(graph, pipeline, options, compiled.reports, stop));
  TRY(check_shared_parameters(graph, options.train, pipeline));
  if (!options.gradients_only)
    compiled.notes = notes_of_whole(graph, options.train, pipeline, compiled.reports);
  TRY(keep_parts(graph, own_part(tensor_ranks(graph))));
  TRY(check_stop(stop));

  const std::size_t forward_nodes = live_node_count(graph);
  std::vector<GradientOutput> gradients;
  std::vector<std::pair<ValueId*, std::size_t>> reported;
  StepNames& names = compiled.train.names;
  if (options.gradients_only) {
    gradients = TRY(add_gradient_outputs(graph));
    compiled.train.graph = std::move(graph);
    names.loss = compiled.train.graph.loss;
  } else {
    compiled.train = TRY(add_training(std::move(graph), options.train));
    compiled.train.removed.insert(compiled.train.removed.begin(), removed.begin(), removed.end());
  }
  Graph& whole = compiled.train.graph;
  compiled.nodes_before_passes = trained_on + live_node_count(whole) - forward_nodes;
  for (ValueId StepNames::*value : StepNames::kReported)
    if (names.*value != kNone) reported.emplace_back(&(names.*value), output_index(whole, names.*value));
  TRY(check_stop(stop));
  if (options.watch) options.watch(whole, kAutodiffStage, PassPhase::post_gradient, nullptr);

  TRY(run_passes(whole, pipeline, PassPhase::post_gradient, compiled.reports, options.target, options.watch,
                 stop));
  TRY(keep_ranges(whole));
  const std::size_t passes_run = compiled.reports.size();
  if (!options.gradients_only) TRY(check_sites(imported, options, compiled));
  for (const auto& [value, index] : reported) *value = whole.outputs[index];
  for (const GradientOutput& g : gradients)
    compiled.gradients.emplace_back(g.name, g.exists ? whole.outputs[g.index] : kNone);
  TRY(check_stop(stop));

  TRY(plan_memory(options, plan_options(options, *planner),
                  {whole, compiled.plan, compiled.reports, compiled.notes}, std::move(stop)));
  if (options.watch && compiled.reports.size() > passes_run)  // recompute, offload
    options.watch(whole, compiled.reports.back().name, PassPhase::post_gradient, nullptr);
  report_pieces(whole, compiled.plan, compiled.reports);
  compiled.compile_ms = static_cast<double>(monotonic_ns() - start_ns) / 1e6;
  return compiled;
}

}  // namespace gradloom
