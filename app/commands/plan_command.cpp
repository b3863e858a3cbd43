// gradloom plan: what would run, without running it: passes with their match log, kernels, planned memory.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <utility>

#include "app/commands/commands.h"
#include "app/explain.h"
#include "app/graph_diff_report.h"
#include "app/graph_file.h"
#include "app/graph_report.h"
#include "app/job.h"
#include "app/measured_costs.h"
#include "app/memory_report.h"
#include "app/parse_words.h"
#include "app/rank_scaling.h"
#include "app/recipe_flags.h"
#include "app/roofline.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/onnx/export_graph.h"
#include "engine/plan/streams.h"
#include "passes/stages.h"
#include "viz/model/pass_model.h"

namespace gradloom {
namespace {

struct PlanArguments {
  RecipeFlags recipe;
  bool log = false, kernels = false, dump = false, memory = false, memory_curve = false, roofline = false;
  std::string on, roofline_by = "kernel";
  std::vector<std::string> inside;  // areas of the roofline
  std::int64_t limit = 30;
  std::string explain, export_graph, part, diff, at;
  std::string link = kUsualLink, local_link;
  std::int64_t ranks_per_machine = 0;
  std::size_t boxes = 60;
  double cores = 0;
  GraphAsked graph;
};

Result<ClusterQuestion> machines_of(const PlanArguments& options) {
  ClusterQuestion machines = TRY(parse_cluster(options.link, options.local_link, options.ranks_per_machine));
  machines.cores = options.cores;
  return machines;
}

// On what the saved work of rewrites takes time, where that is known.
struct SavingsClock {
  std::optional<Hardware> hardware;
  std::string precision;

  static SavingsClock of(const Prepared& prepared, const PlanArguments& options,
                         const std::optional<Hardware>& on) {
    SavingsClock clock{on, prepared.recipe.precision};
    if (!on && options.log)
      if (const auto known = hardware_of_plan(prepared.recipe, ""); known.ok()) clock.hardware = *known;
    return clock;
  }
  Json json(const SavedWork& saved) const {
    Json json = {{"flops", saved.flops}, {"bytes", saved.bytes}, {"kernels", saved.kernels}};
    if (hardware) json["predicted_ns"] = saved_ns(saved, *hardware, precision);
    return json;
  }
  std::string text(const SavedWork& saved) const {
    std::string text = saved_text(saved);
    if (text.empty() || !hardware) return text;
    const double ns = saved_ns(saved, *hardware, precision);
    return text + ", about " + duration_text(std::abs(ns)) + (ns < 0 ? " more" : "");
  }
};

Json log_json(const std::vector<RewriteRecord>& records, const SavingsClock& clock) {
  Json log = Json::array();
  for (const RewriteRecord& rec : records) {
    log.push_back({{"rule", rec.rule},
                   {"site", rec.site},
                   {"fingerprint", rec.fingerprint},
                   {"matched", rec.matched},
                   {"why", rec.why},
                   {"removed", rec.removed},
                   {"added", rec.added},
                   {"changed", rec.changed}});
    if (rec.saves) log.back()["saves"] = clock.json(*rec.saves);
  }
  return log;
}

Json report_json(const PassReport& r, const SavingsClock& clock) {
  return {{"pass", r.name},
          {"phase", r.at == PassPhase::pre_gradient ? "pre-gradient" : "post-gradient"},
          {"matched", r.matched},
          {"rejected", r.rejected},
          {"nodes_before", r.nodes_before},
          {"nodes_after", r.nodes_after},
          {"ms", r.ms},
          {"log", log_json(r.log, clock)}};
}

// What waits in the host's memory, and what the link is predicted to cost.
struct Offloaded {
  std::size_t values = 0;
  StepTimes times;

  explicit Offloaded(const Prepared& prepared) {
    const Compiled& c = prepared.compiled;
    for (const PlanStep& step : c.plan.steps) values += step.stream == kDownloadStream ? 1 : 0;
    if (values > 0) times = predict_times(c.train.graph, c.plan, step_speeds(prepared.options));
  }
  Json json(const Plan& p) const {
    return {{"values", values},
            {"host_bytes", p.host_bytes},
            {"predicted_step_ns", times.total_ns},
            {"predicted_exposed_ns", times.exposed_ns}};
  }
  std::string text(const Plan& p) const {
    return bytes_text(static_cast<double>(p.host_bytes)) + " pinned for " +
           plural_text(static_cast<std::int64_t>(values), "value") + " that leave" +
           (values == 1 ? "s" : "") + "; kernels are predicted to wait " + duration_text(times.exposed_ns) +
           " of " + duration_text(times.total_ns) + " for copies";
  }
};

Json kernels_json(const Graph& graph, const Plan& plan) {
  Json kernels = Json::array();
  for (const PlanStep& s : plan.steps) {
    const Node& n = graph.nodes[s.node];
    const std::string chain = passes_text(graph, n);
    kernels.push_back({{"node", n.name},
                       {"op", n.op->name},
                       {"kernel", s.kernel},
                       {"phase", phase_name(n.origin.phase)},
                       {"pass", last_pass(chain)},
                       {"passes", chain},
                       {"flops", s.flops},
                       {"bytes", s.bytes_read + s.bytes_written},
                       {"workspace_bytes", s.workspace_bytes}});
    if (s.stream != kComputeStream) kernels.back()["stream"] = s.stream;
    if (!s.waits.empty()) kernels.back()["waits"] = s.waits;
  }
  return kernels;
}

// The values with the most bytes among those live where the arena is fullest.
void print_json(const Output& out, const Prepared& prepared, const SavingsClock& clock,
                const std::optional<MeasuredCosts>& costs, const std::optional<RankScaling>& scaling) {
  const Compiled& c = prepared.compiled;
  const Plan& p = c.plan;
  Json passes = Json::array(), peak = Json::array();
  for (const PassReport& r : c.reports) passes.push_back(report_json(r, clock));
  for (const auto& [name, bytes] : largest_at_peak(c.train.graph, c.plan, 5))
    peak.push_back({{"value", name}, {"bytes", bytes}});
  Json plan = {{"plan_hash", p.hash},
               {"graph_hash", graph_hash(c.train.graph)},
               {"kernels_per_step", p.steps.size()},
               {"nodes_before_passes", c.nodes_before_passes},
               {"plan_peak_bytes", p.peak_bytes()},
               {"arena_bytes", p.arena_bytes},
               {"state_bytes", p.state_bytes},
               {"input_bytes", p.input_bytes},
               {"constant_bytes", p.constant_bytes},
               {"lower_bound_bytes", p.peak_lower_bound_bytes()},
               {"arena_lower_bound_bytes", p.lower_bound_bytes},
               {"fragmentation", p.fragmentation()},
               {"planner", p.planner},
               {"compile_ms", c.compile_ms},
               {"live_at_peak", peak},
               {"passes", passes},
               {"removed_by_training", log_json(c.train.removed, clock)},
               {"kernels", kernels_json(c.train.graph, p)}};
  if (costs) plan["costs"] = costs->json();
  if (const Offloaded offloaded(prepared); offloaded.values > 0) plan["offload"] = offloaded.json(p);
  if (scaling) plan["scaling"] = scaling_json(*scaling);
  out.object(plan);
}

void print_log(const Output& out, const std::vector<RewriteRecord>& log, const SavingsClock& clock) {
  std::map<std::string, int> reasons;
  for (const RewriteRecord& rec : log)
    if (!rec.matched) ++reasons[rec.rule + ": " + rec.why];
  for (const RewriteRecord& rec : log) {
    if (!rec.matched) continue;
    const std::string saved = rec.saves ? clock.text(*rec.saves) : "";
    out.text("    + " + rec.rule + " at " + escaped(rec.site) + " " + rec.fingerprint +
             (rec.fingerprint.empty() ? "(" : " (") + std::to_string(rec.removed.size()) + " -> " +
             plural_text(static_cast<std::int64_t>(rec.added.size()), "node") +
             (rec.changed.empty() ? "" : ", " + std::to_string(rec.changed.size()) + " changed") + ")" +
             (rec.why.empty() ? "" : ", " + escaped(rec.why)) + (saved.empty() ? "" : "; " + saved));
  }
  for (const auto& [why, n] : reasons) out.text("    - " + std::to_string(n) + " x " + escaped(why));
}

void print_logs(const Output& out, const Compiled& c, const SavingsClock& clock) {
  const auto print = [&](PassPhase phase, const char* suffix) {
    for (const PassReport& r : c.reports) {
      if (r.log.empty() || r.at != phase) continue;
      out.text("  " + r.name + suffix);
      print_log(out, r.log, clock);
    }
  };
  print(PassPhase::pre_gradient, "");
  if (!c.train.removed.empty()) out.text("  training");
  print_log(out, c.train.removed, clock);
  print(PassPhase::post_gradient, " (after autodiff)");
}

void print_totals(const Output& out, const Graph& graph, const Plan& p) {
  std::map<std::string, int> by_phase;
  double flops = 0;
  for (const PlanStep& s : p.steps) {
    ++by_phase[phase_name(graph.nodes[s.node].origin.phase)];
    flops += s.flops;
  }
  std::string phases;
  for (const char* name : {"forward", "loss", "backward", "optimizer"})
    if (by_phase.count(name))
      phases += (phases.empty() ? "" : ", ") + std::to_string(by_phase[name]) + " " + name;
  out.text("kernels      " + std::to_string(p.steps.size()) + " per step (" + phases + "), " +
           count_text(flops, "FLOP"));
}

void print_kernels(const Output& out, const Graph& graph, const Plan& p) {
  std::vector<std::vector<std::string>> rows;
  for (const PlanStep& s : p.steps) {
    const Node& n = graph.nodes[s.node];
    rows.push_back({std::to_string(rows.size()), phase_name(n.origin.phase), escaped(n.name), n.op->name,
                    s.kernel, count_text(s.flops, "FLOP"), bytes_text(s.bytes_read + s.bytes_written)});
  }
  out.text("");
  out.text(table_text({"#", "phase", "node", "operator", "kernel", "FLOPs", "bytes"}, rows, {1, 2, 3, 4}));
}

void print_text(const Output& out, const Prepared& prepared, const PlanArguments& options,
                const SavingsClock& clock, const std::optional<MeasuredCosts>& costs) {
  const Compiled& c = prepared.compiled;
  const Plan& p = c.plan;
  std::vector<std::vector<std::string>> rows;
  for (const PassReport& r : c.reports) {
    char ms[32];
    std::snprintf(ms, sizeof ms, "%.1f ms", r.ms);
    rows.push_back({r.name, r.at == PassPhase::pre_gradient ? "before" : "after", std::to_string(r.matched),
                    std::to_string(r.rejected),
                    std::to_string(r.nodes_before) + " -> " + std::to_string(r.nodes_after), ms});
  }
  if (rows.empty())
    out.text("no passes");
  else
    out.text(table_text({"pass", "autodiff", "matched", "why-not", "nodes", "time"}, rows, {1}));
  if (options.log) print_logs(out, c, clock);
  out.text("");
  print_totals(out, c.train.graph, p);
  out.text("peak         " + bytes_text(static_cast<double>(p.peak_bytes())) + " = arena " +
           bytes_text(static_cast<double>(p.arena_bytes)) + " + state " +
           bytes_text(static_cast<double>(p.state_bytes)) + " + inputs " +
           bytes_text(static_cast<double>(p.input_bytes)) + " + constants " +
           bytes_text(static_cast<double>(p.constant_bytes)));
  out.text("arena        planner " + p.planner + ", lower bound " +
           bytes_text(static_cast<double>(p.lower_bound_bytes)) + " (fragmentation " +
           percent_text(p.fragmentation()) + ")");
  if (const Offloaded offloaded(prepared); offloaded.values > 0)
    out.text("host         " + offloaded.text(p));
  std::string names;
  for (const auto& [name, bytes] : largest_at_peak(c.train.graph, c.plan, 5))
    names += (names.empty() ? "" : ", ") + escaped(name) + " " + bytes_text(static_cast<double>(bytes));
  out.text("at the peak  " + names);
  if (costs) out.text("costs        " + costs->text());
  out.text("compiled in  " + duration_text(c.compile_ms * 1e6) + ", plan " + p.hash.substr(0, 12));
  if (options.kernels) print_kernels(out, c.train.graph, p);
}

Status print_memory(const Output& out, const Prepared& prepared) {
  constexpr std::size_t kRows = 15;
  const Compiled& c = prepared.compiled;
  const MemoryModel memory =
      build_memory_model(c.train.graph, c.plan, known_kernel_times(prepared.options, c.train.graph, c.plan));
  out.object({{"memory", memory_json(memory)}});
  out.text(memory_report_text(memory, kRows));
  return {};
}

// Peak memory against time: what recompute can do for this job, beside what no choice can beat. The text leaves out points that are
// close to one above.
Status print_memory_curve(const CommandContext& context, const Prepared& prepared) {
  constexpr double kLeastStep = 0.03;  // of the whole peak
  std::vector<std::vector<std::string>> rows;
  const std::optional<MeasuredCosts> costs = measured_costs(prepared.recipe, prepared.compiled);
  const std::vector<RecomputeChoice> curve =
      TRY(memory_curve(prepared.compiled, prepared.options, context.stop));
  double shown = 0, gap = 0;
  for (const RecomputeChoice& choice : curve) {
    gap = std::max(gap, choice.cost - choice.least_cost);
    Json row = {{"peak_bytes", choice.peak_bytes},
                {"extra_time", choice.cost},
                {"least_extra_time", choice.least_cost},
                {"least_peak_bytes", choice.least_peak_bytes},
                {"recomputed_nodes", choice.nodes.size()}};
    if (costs) row["kernels_ns"] = choice.step_ns;
    context.out.object(row);
    const auto peak = static_cast<double>(choice.peak_bytes);
    const double least = kLeastStep * static_cast<double>(curve.front().peak_bytes);
    if (!rows.empty() && &choice != &curve.back() && shown - peak < least) continue;
    shown = peak;
    const std::string extra = "+" + percent_text(choice.cost);
    rows.push_back({bytes_text(peak), costs ? duration_text(choice.step_ns) + " " + extra : extra,
                    std::to_string(choice.nodes.size())});
  }
  context.out.text(table_text({"peak", "predicted time", "nodes that run again"}, rows));
  if (rows.size() < curve.size())
    context.out.text(std::to_string(rows.size()) + " of " +
                     plural_text(static_cast<std::int64_t>(curve.size()), "point") + "; --json tells all");
  if (costs) {
    context.out.object({{"costs", costs->json()}});
    context.out.text("times: " + costs->text());
  }
  context.out.text("at most " + percent_text(gap) +
                   " of a step above what such peaks cost at least; no choice needs less than " +
                   bytes_text(static_cast<double>(curve.front().least_peak_bytes)));
  context.out.text("--memory-budget takes the cheapest that fits");
  return {};
}

Status print_graph(const Output& out, const Prepared& prepared, const PlanArguments& options) {
  const GraphModel model = graph_model_of(prepared);
  const GraphAnswer answer = TRY(ask_graph(model, options.graph));
  out.object({{"graph", graph_answer_json(model, answer, &prepared.compiled.plan)}});
  out.text(graph_answer_text(model, answer, static_cast<std::size_t>(options.limit)));
  return {};
}

// What each kernel is expected to take on a processor, which need not be here.
Status print_roofline(const Output& out, const Prepared& prepared, const PlanArguments& options) {
  const RooflineGroup group = TRY(parse_roofline_group(options.roofline_by));
  const Compiled& compiled = prepared.compiled;
  const RooflineModel model = roofline_of_plan(compiled.train.graph, compiled.plan, prepared.recipe,
                                               TRY(hardware_of_plan(prepared.recipe, options.on)));
  const auto peak = static_cast<double>(prepared.compiled.plan.peak_bytes());
  const RooflineSelection selection = TRY(asked_selection(model, options.inside));
  Json json = roofline_json(model, selection);
  json["plan_hash"] = prepared.compiled.plan.hash;
  json["plan_peak_bytes"] = peak;
  json["memory_bytes"] = model.hardware.memory_bytes;
  out.object({{"roofline", json}});
  out.text(roofline_text(model, selection, group, static_cast<std::size_t>(options.limit)));
  if (model.hardware.memory_bytes > 0)
    out.text("\npeak         " + bytes_text(peak) + " of " + bytes_text(model.hardware.memory_bytes) +
             (peak > model.hardware.memory_bytes ? ": it does not fit" : ""));
  return {};
}

DiffGraph diff_graph_of(const Prepared& prepared, const std::string& name) {
  const Compiled& c = prepared.compiled;
  return diff_graph_of(c.train.graph, c.plan, name,
                       known_kernel_times(prepared.options, c.train.graph, c.plan));
}

// The job (A) beside the same with other settings (B).
Status print_difference(const CommandContext& context, const Prepared& prepared, const std::string& changes) {
  Recipe other = prepared.recipe;
  TRY(RecipeFlags::override_with(other, changes));
  const auto changed = prepare(other, context.stop);
  if (!changed) return with_context(changed.error(), "--diff");
  const GraphDifference difference =
      TRY(difference_of(diff_graph_of(prepared, "as given"), diff_graph_of(**changed, changes)));
  context.out.object({{"graph_diff", graph_difference_json(difference)}});
  context.out.text(graph_difference_text(difference));
  return {};
}

constexpr std::pair<const char*, ExportPart> kExportParts[] = {
    {"step", ExportPart::step}, {"gradients", ExportPart::gradients}, {"forward", ExportPart::forward}};

// `part`: what --part says, or stands for it.
Status write_graph(const Output& out, const Graph& graph, const PlanArguments& options,
                   const std::string& wanted) {
  for (const auto& [name, part] : kExportParts) {
    if (wanted != name) continue;
    const ExportedGraph made = TRY(export_graph(graph, part, options.export_graph));
    out.object({{"exported", options.export_graph},
                {"part", wanted},
                {"nodes", made.nodes},
                {"functions", made.functions},
                {"without_form", made.without_form},
                {"masks", made.masks}});
    out.text("wrote " + escaped(options.export_graph) + ": " +
             plural_text(static_cast<std::int64_t>(made.nodes), "node") + ", " +
             plural_text(static_cast<std::int64_t>(made.functions), "function"));
    for (const std::string& what : made.without_form) out.note("only Gradloom can run " + escaped(what));
    if (!made.masks.empty())
      out.note(plural_text(static_cast<std::int64_t>(made.masks.size()), "input") +
               " named gradloom/keep/.. say what Dropout keeps");
    return {};
  }
  return Error{Errc::usage, "--part is step, gradients or forward, not '" + escaped(wanted) + "'"};
}

void print_dump(const Output& out, const Graph& graph) {
  out.object({{"graph", dump(graph)}});
  out.text(dump(graph));
}

Json stage_json(const StagedGraph& at) {
  return {{"pass", at.stage.pass},
          {"phase", at.stage.at == PassPhase::pre_gradient ? "pre-gradient" : "post-gradient"},
          {"run", at.stage.run},
          {"rule", at.stage.rule},
          {"site", at.stage.site},
          {"fingerprint", at.stage.fingerprint},
          {"why", at.stage.why},
          {"removed", at.record.removed},
          {"added", at.record.added},
          {"changed", at.record.changed},
          {"stage", at.number},
          {"stages", at.stages},
          {"nodes", at.stage.nodes}};
}

std::string stage_text(const StagedGraph& at) {
  std::string text = "after " + at.stage.pass;
  if (at.stage.is_rewrite())
    text += " (" + at.stage.rule + " at " + escaped(at.stage.site) + ": " +
            std::to_string(at.record.removed.size()) + " -> " +
            plural_text(static_cast<std::int64_t>(at.record.added.size()), "node") +
            (at.record.changed.empty() ? "" : ", " + std::to_string(at.record.changed.size()) + " changed") +
            ")";
  return text + ", stage " + std::to_string(at.number) + " of " + std::to_string(at.stages) + ": " +
         plural_text(static_cast<std::int64_t>(at.stage.nodes), "node");
}

// --at: the graph as it was on its way. Before autodiff it is the forward graph.
Status print_stage(const CommandContext& context, const Prepared& prepared, const PlanArguments& options) {
  const Output& out = context.out;
  if (options.log || options.memory || options.memory_curve || options.graph.any() || options.roofline ||
      !options.explain.empty() || !options.diff.empty())
    return Error{Errc::usage, "--at goes with --dump, --export-graph or --kernels"};
  if (is_viewers_graph(options.export_graph))
    return Error{Errc::usage, "--at exports an .onnx file, not " + escaped(options.export_graph)};
  const StagedGraph at = TRY(graph_at(prepared.model.graph, prepared.options, options.at, context.stop));
  const bool forward = at.stage.at == PassPhase::pre_gradient;
  if (options.dump) {
    print_dump(out, at.graph);
    return {};
  }
  if (!options.export_graph.empty()) {
    if (forward && !options.part.empty() && options.part != "forward")
      return Error{Errc::usage, "at " + at.stage.pass + " there is the forward graph alone: --part forward"};
    return write_graph(out, at.graph, options,
                       !options.part.empty() ? options.part
                       : forward             ? "forward"
                                             : "step");
  }
  const auto plan = plan_of_graph(at.graph, prepared.options);
  if (!plan) return with_context(plan.error(), "at this stage");
  out.object({{"stage", stage_json(at)},
              {"graph_hash", graph_hash(at.graph)},
              {"kernels_per_step", plan->steps.size()},
              {"kernels", kernels_json(at.graph, *plan)}});
  out.text(stage_text(at));
  print_totals(out, at.graph, *plan);
  if (options.kernels) print_kernels(out, at.graph, *plan);
  return {};
}

Status write_for_viewers(const CommandContext& context, const Prepared& prepared,
                         const PlanArguments& options) {
  if (!options.part.empty()) return Error{Errc::usage, "--part is for .onnx files"};
  const WrittenGraph made =
      TRY(write_viewers_graph(prepared, {options.boxes}, options.export_graph, context.stop));
  context.out.object({{"exported", options.export_graph}, {"nodes", made.nodes}});
  context.out.text("wrote " + escaped(options.export_graph) + ": " +
                   plural_text(static_cast<std::int64_t>(made.nodes), "node"));
  return {};
}

void declare_roofline(CLI::App& app, const std::shared_ptr<PlanArguments>& options) {
  auto* const roofline = app.add_flag(
      "--roofline", options->roofline,
      "what each kernel is expected to take on a processor, from its FLOPs and bytes and what the processor "
      "reaches; nothing is run");
  app.add_option(
      "--on", options->on,
      "with --roofline, --log, --ranks: a processor by its data sheet (h200, a100, ..), or a file that devices --measure --json "
      "wrote; by default what was measured of the device");
  app.add_option(
         "--by", options->roofline_by,
         "with --roofline: sum up by kernel (those that do the same work) | node | op | phase | scope | roof")
      ->needs(roofline);
  app.add_option("--inside", options->inside, kInsideHelp)
      ->needs(roofline)
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--limit", options->limit, "with --roofline and of the graph: rows to print")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}));
}

void declare_memory(CLI::App& app, const std::shared_ptr<PlanArguments>& options) {
  CLI::Option* memory =
      app.add_flag("--memory", options->memory,
                   "who holds memory at the peak, until when and for whom, and what could leave it");
  CLI::Option* curve = app.add_flag("--memory-curve", options->memory_curve,
                                    "peak memory against predicted time for what --memory-budget can choose");
  memory->excludes(curve);
}

void declare_ranks(CLI::App& app, const std::shared_ptr<PlanArguments>& options) {
  app.add_option("--link", options->link,
                 "with --ranks: what a machine's link to the others carries, and its latency")
      ->capture_default_str();
  app.add_option("--local-link", options->local_link, std::string("with --ranks: ") + kLocalLinkHelp);
  app.add_option("--local", options->ranks_per_machine, "with --ranks: ranks of a machine; 0: all are on one")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1024}));
  app.add_option(
         "--cores", options->cores,
         "with --ranks: cores of a machine, which its ranks share; by default those of the machine of the run that --costs names, without "
         "one enough for all")
      ->check(CLI::Range(0.0, 65536.0));
}

// --log and --kernels are lists of the usual answer, and may stand in it together.
Status check_answers(const PlanArguments& o) {
  for (const char* list : {o.log ? "--log" : nullptr, o.kernels ? "--kernels" : nullptr})
    TRY(check_one_answer({o.dump ? "--dump" : nullptr, o.explain.empty() ? nullptr : "--explain",
                          o.diff.empty() ? nullptr : "--diff",
                          o.export_graph.empty() ? nullptr : "--export-graph",
                          o.memory ? "--memory" : nullptr, o.memory_curve ? "--memory-curve" : nullptr,
                          o.graph.flag(), o.roofline ? "--roofline" : nullptr, list}));
  return {};
}

Status print_explained(const CommandContext& context, const Prepared& prepared, const std::string& name) {
  bool first = true;
  for (const Explained& e : TRY(explain(prepared.compiled, name))) {
    context.out.object({{"explain", explained_json(prepared.compiled, e)}});
    context.out.text((std::exchange(first, false) ? "" : "\n") + explained_text(prepared.compiled, e));
  }
  return {};
}

}  // namespace

CommandRun declare_plan(CLI::App& app) {
  auto options = std::make_shared<PlanArguments>();
  options->recipe.declare(app);
  app.add_flag("--log", options->log, "list every match of every pass, and why a pass did not match");
  app.add_flag("--kernels", options->kernels, "list the kernels in order");
  app.add_flag("--dump", options->dump, "print the final graph as text");
  declare_memory(app, options);
  declare_roofline(app, options);
  declare_graph(app, options->graph);
  app.add_option("--explain", options->explain,
                 "the history of a node, an ONNX node or a kernel, by name or glob: every pass that met it");
  app.add_option(
      "--at", options->at,
      "the graph as it was right after a pass or one rewrite of it: PASS, PASS#RUN or PASS:SITE (a name, glob or "
      "fingerprint of --log), start or autodiff; with --dump, --export-graph or --kernels");
  app.add_option("--diff", options->diff,
                 "what the graph would do differently with these settings, by regions of the model, e.g. "
                 "'passes=default,-fuse-gelu'; with --costs also the time of each");
  CLI::Option* const exported = app.add_option(
      "--export-graph", options->export_graph,
      "file for the graph after the passes: .onnx (standard operators, functions of them for Gradloom's own) | .json "
      "(Google's Model Explorer) | .svg (the drawing of the window)");
  app.add_option("--boxes", options->boxes, "with --export-graph X.svg: about so many; scopes fold beyond")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}))
      ->capture_default_str()
      ->needs(exported);
  app.add_option("--part", options->part,
                 "with --export-graph: step (with the optimizer) | gradients (of the loss) | forward")
      ->needs(exported);
  declare_ranks(app, options);
  return [options](CommandContext& context) -> Status {
    TRY(check_answers(*options));
    const ClusterQuestion machines = TRY(machines_of(*options));
    const auto prepared = TRY(prepare(TRY(options->recipe.resolve()), context.stop));
    for (const std::string& n : prepared->model.notes) context.out.note(escaped(n));
    if (!options->at.empty()) return print_stage(context, *prepared, *options);
    if (options->dump) {
      print_dump(context.out, prepared->compiled.train.graph);
      return {};
    }
    if (!options->explain.empty()) return print_explained(context, *prepared, options->explain);
    if (!options->diff.empty()) return print_difference(context, *prepared, options->diff);
    if (is_viewers_graph(options->export_graph)) return write_for_viewers(context, *prepared, *options);
    if (!options->export_graph.empty())
      return write_graph(context.out, prepared->compiled.train.graph, *options,
                         options->part.empty() ? "step" : options->part);
    if (options->memory) return print_memory(context.out, *prepared);
    if (options->memory_curve) return print_memory_curve(context, *prepared);
    if (options->graph.any()) return print_graph(context.out, *prepared, *options);
    if (options->roofline) return print_roofline(context.out, *prepared, *options);
    const std::optional<MeasuredCosts> costs = measured_costs(prepared->recipe, prepared->compiled);
    std::optional<Hardware> on;
    if (!options->on.empty()) on = TRY(find_hardware(options->on));
    std::optional<RankScaling> scaling;
    Cluster cluster;
    if (prepared->recipe.ranks > 1) {
      cluster = cluster_of(machines, *prepared, on);
      scaling = predict_scaling(*prepared, cluster);
    }
    const SavingsClock clock = SavingsClock::of(*prepared, *options, on);
    print_json(context.out, *prepared, clock, costs, scaling);
    if (context.out.json()) return {};
    print_text(context.out, *prepared, *options, clock, costs);
    if (scaling) print_scaling(context.out, *scaling, *prepared, cluster);
    return {};
  };
}

}  // namespace gradloom
