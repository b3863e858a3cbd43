// gradloom show: what a run of a session holds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "app/commands/commands.h"
#include "app/commands/show_curves.h"
#include "app/commands/show_timeline.h"
#include "app/commands/show_tree.h"
#include "app/graph_report.h"
#include "app/job.h"
#include "app/job_source.h"
#include "app/memory_report.h"
#include "app/parse_words.h"
#include "app/roofline.h"
#include "app/run_summary.h"
#include "engine/base/text.h"
#include "profiler/environment.h"
#include "profiler/import/imported_trace.h"
#include "sessions/find_model.h"
#include "sessions/rank_lines.h"
#include "sessions/recipe.h"
#include "sessions/run_environment.h"
#include "sessions/store.h"
#include "viz/model/curves.h"

namespace gradloom {
namespace {

struct SessionOptions {
  std::string session, run = "last";
  std::string group = "kernel", on;
  bool roofline = false, memory = false;
  std::vector<std::string> inside;  // areas of the roofline
  std::int64_t limit = 30;
  TreeOptions tree;
  TimelineOptions timeline;
  CurveOptions curves;
  GraphAsked graph;
  std::string against;  // a run
};

Result<std::unique_ptr<Store>> open_session(const SessionOptions& options) {
  return Store::open(options.session, StoreMode::read);
}

Result<SessionOptions> with_named_run(SessionOptions options) {
  const CostsRun named = named_run(options.session);
  if (named.run.empty()) return options;
  if (options.run != "last" && options.run != named.run)
    return Error{Errc::usage, options.session + " names a run, and --run another"};
  options.session = named.session;
  options.run = named.run;
  return options;
}

struct Group {
  std::int64_t kernels = 0;
  double ns = 0, flops = 0, bytes = 0, share = 0;
  double told_ns = 0, busy_ns = 0;  // of `ns` where the run tells how busy the threads were, and times that
  std::string implementation;       // of the last of its kernels
  double threads_busy() const { return told_ns > 0 ? busy_ns / told_ns : -1; }
};

Json known_or_null(double part) { return part >= 0 ? Json(part) : Json(nullptr); }

std::string group_key(const KernelRow& k, const std::string& by) {
  if (by == "op") return k.info.op;
  if (by == "phase") return k.info.phase;
  if (by == "scope") return k.info.scope.empty() ? "(top)" : k.info.scope;
  if (by == "implementation")
    return k.info.implementation.empty() ? "(the kernel itself)" : k.info.implementation;
  if (by == "pass") return k.info.passes.empty() ? "(none)" : last_pass(k.info.passes);
  return k.info.node;
}

std::vector<std::pair<std::string, Group>> grouped(const RunRecord& run, const std::string& by) {
  std::map<std::string, Group> groups;
  for (const KernelRow& k : run.kernels) {
    Group& g = groups[group_key(k, by)];
    ++g.kernels;
    g.ns += static_cast<double>(k.step_ns);
    g.flops += k.step_flops();
    g.bytes += k.step_bytes();
    g.share += k.share;
    g.implementation = k.info.implementation;
    if (k.threads_busy < 0) continue;
    g.told_ns += static_cast<double>(k.step_ns);
    g.busy_ns += static_cast<double>(k.step_ns) * k.threads_busy;
  }
  std::vector<std::pair<std::string, Group>> list(groups.begin(), groups.end());
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  return list;
}

bool overhead_known(const RunSummary& s) { return s.overhead >= 0 || s.overhead_low != 0; }

// What a stream of a GPU, or the CPU in launching, does in one timed step.
struct StreamStep {
  double count = 0, bytes = 0, ns = 0;
};
StreamStep per_step(const StreamRow& row) {
  const auto steps = static_cast<double>(std::max<std::size_t>(row.ns.size(), 1));
  return {static_cast<double>(row.count) / steps, static_cast<double>(row.bytes) / steps, median(row.ns)};
}

Json ranks_json(const std::vector<RankShares>& ranks) {
  Json rows = Json::array();
  for (const RankShares& r : ranks)
    rows.push_back({{"rank", r.rank.rank},
                    {"host", r.rank.host},
                    {"local_rank", r.rank.local_rank},
                    {"threads", r.rank.threads},
                    {"cpu_model", r.rank.cpu_model},
                    {"environment", r.rank.environment},
                    {"clock_offset_ns", r.rank.clock_offset_ns},
                    {"clock_error_ns", r.rank.clock_error_ns},
                    {"steps", r.steps},
                    {"kernels_ns", r.kernels_ns},
                    {"exchange_ns", r.exchange_ns},
                    {"wait_ns", r.wait_ns},
                    {"transfer_ns", r.transfer_ns()},
                    {"exposed_ns", r.exposed_ns},
                    {"sent_bytes", r.sent_bytes}});
  return rows;
}

// What each rank does in a step, and who keeps the others waiting.
void show_ranks(const Output& out, const RunRecord& run, std::int64_t limit) {
  const std::vector<RankShares>& ranks = run.ranks;
  if (ranks.empty()) return;
  std::vector<std::vector<std::string>> rows;
  for (const RankShares& r : ranks) {
    if (static_cast<std::int64_t>(rows.size()) >= limit) break;
    rows.push_back({std::to_string(r.rank.rank), escaped(r.rank.host), std::to_string(r.rank.threads),
                    duration_text(r.kernels_ns), duration_text(r.exposed_ns), duration_text(r.wait_ns),
                    duration_text(r.transfer_ns()), bytes_text(r.sent_bytes)});
  }
  out.text("\n" + table_text({"rank", "machine", "threads", "computes", "stands still", "waits for ranks",
                              "transfers", "sends"},
                             rows, {1}));
  if (ranks.size() > rows.size())
    out.text("  of " + plural_text(static_cast<std::int64_t>(ranks.size()), "rank") +
             " (--limit N shows more)");
  for (const std::string& text : rank_lines(run)) out.text(text);
}

Json loop_json(const LoopShares& loop) {
  Json rows = Json::array(), parts = Json::array();
  for (const LoopRow& row : loop_rows(loop))
    rows.push_back({{"part", row.title}, {"step_ns", row.ns}, {"share", row.share}});
  for (const LoopPart& part : loop.parts)
    parts.push_back({{"kind", part.kind},
                     {"name", part.name},
                     {"own_ns", part.ns},
                     {"share", loop.share(part.ns)},
                     {"spans", part.spans}});
  return {{"steps", loop.steps},
          {"step_ns", loop.step_ns},
          {"kernel_ns", loop.kernel_ns},
          {"engine_share", loop.engine_share()},
          {"torch_share", loop.torch_share()},
          {"speedup_if_engine_twice_as_fast", loop.loop_speedup(2)},
          {"rows", rows},
          {"parts", parts}};
}

// Where a step of a recorded loop goes: by kind, and by name what is not the engine's.
void show_loop(const Output& out, const LoopShares& loop, std::int64_t limit) {
  out.text("  " + loop_verdict(loop));
  std::vector<std::vector<std::string>> rows;
  for (const LoopRow& row : loop_rows(loop))
    rows.push_back({row.title, duration_text(row.ns), percent_text(row.share)});
  out.text("\n" + table_text({"part of a step", "time per step", "share"}, rows));
  rows.clear();
  std::vector<LoopPart> named;
  for (const LoopPart& part : loop.parts)
    if (!part.name.empty() && part.kind != "engine") named.push_back(part);
  std::stable_sort(named.begin(), named.end(),
                   [](const LoopPart& a, const LoopPart& b) { return a.ns > b.ns; });
  if (!loop.has_engine()) limit = std::min<std::int64_t>(limit, 8);  // the kernels tell more
  for (const LoopPart& part : named) {
    if (static_cast<std::int64_t>(rows.size()) >= limit) break;
    rows.push_back({escaped(part.name), loop.title_of(*find_host_kind(part.kind)), duration_text(part.ns),
                    percent_text(loop.share(part.ns)), short_text(part.spans)});
  }
  if (!rows.empty())
    out.text("\n" + table_text({loop.has_engine() ? "outside the engine" : "by name", "what", "time per step",
                                "share", "calls per step"},
                               rows, {1}));
}

// With the names that `train --json` has for them; what is not known of a step is left out.
Json step_json(const StepRow& s) {
  Json row = {{"step", s.step},
              {"loss", json_number(s.loss)},
              {"step_ns", s.step_ns},
              {"lr", s.lr},
              {"timed", s.timed}};
  if (s.grad_norm >= 0) row["grad_norm"] = json_number(s.grad_norm);
  if (s.loss_scale > 0) {
    row["loss_scale"] = json_number(s.loss_scale);
    row["skipped"] = s.skipped > 0;
  }
  return row;
}

void show_json(const Output& out, const RunRecord& run, const FoundModel& model, const std::string& by) {
  Json losses = Json::array(), kernels = Json::array(), groups = Json::array(), passes = Json::array();
  for (const StepRow& s : run.steps) losses.push_back(step_json(s));
  Json evaluations = Json::array();
  for (const EvaluationRow& e : run.evaluations)
    evaluations.push_back(
        {{"step", e.step}, {"loss", json_number(e.loss)}, {"batches", e.batches}, {"eval_ns", e.eval_ns}});
  for (const KernelRow& k : run.kernels)
    kernels.push_back({{"plan_step", k.info.plan_step},
                       {"kernel", k.info.kernel},
                       {"node", k.info.node},
                       {"op", k.info.op},
                       {"phase", k.info.phase},
                       {"scope", k.info.scope},
                       {"implementation", k.info.implementation},
                       {"library_failed", k.info.library_failed},
                       {"pass", last_pass(k.info.passes)},
                       {"passes", k.info.passes},
                       {"onnx_nodes", k.info.onnx_nodes},
                       {"samples", k.samples},
                       {"executions", k.executions()},
                       {"median_ns", k.median_ns},
                       {"step_ns", k.step_ns},
                       {"share", k.share},
                       {"threads_busy", known_or_null(k.threads_busy)},
                       {"flops", k.info.flops},
                       {"bytes", k.info.bytes_read + k.info.bytes_written}});
  for (const auto& [name, g] : grouped(run, by))
    groups.push_back({{"name", name},
                      {"kernels", g.kernels},
                      {"step_ns", g.ns},
                      {"share", g.share},
                      {"threads_busy", known_or_null(g.threads_busy())},
                      {"flops", g.flops},
                      {"bytes", g.bytes}});
  for (const PassRow& p : run.passes)
    passes.push_back(
        {{"pass", p.name}, {"phase", p.phase}, {"matched", p.matched}, {"rejected", p.rejected}});
  Json object = run_summary_json(run.summary);
  object["model_found"] = model.state == FoundModel::State::none ? Json(nullptr) : Json(model.path);
  object["model_same"] = model.state == FoundModel::State::same;
  object["environment"] = run.environment;
  if (overhead_known(run.summary))
    object["profiler_overhead"] = {{"value", run.summary.overhead},
                                   {"low", run.summary.overhead_low},
                                   {"high", run.summary.overhead_high}};
  Json streams = Json::array();
  for (const StreamRow& row : run.streams) {
    const StreamStep step = per_step(row);
    streams.push_back({{"name", stream_name(row.stream, run.environment)},
                       {"kind", row.kind},
                       {"count", step.count},
                       {"step_ns", step.ns},
                       {"bytes", step.bytes}});
  }
  object["streams"] = streams;
  if (run.loop) object["loop"] = loop_json(*run.loop);
  if (!run.ranks.empty()) object["ranks"] = ranks_json(run.ranks);
  object["passes_run"] = passes;
  object["groups"] = groups;
  object["kernels"] = kernels;
  object["losses"] = losses;
  object["evaluations"] = evaluations;
  out.object(object);
}

// With what computed them, where a library could.
void show_kernels(const Output& out, const RunRecord& run, const SessionOptions& options) {
  std::int64_t known = 0, failed = 0;
  for (const KernelRow& k : run.kernels) {
    known += k.info.implementation.empty() ? 0 : 1;
    failed += k.info.library_failed ? 1 : 0;
  }
  if (failed > 0)
    out.text("  note: a library is missing or failed at " + plural_text(failed, "kernel") +
             ", which our own computed");
  const bool told = known > 0 && options.group == "kernel";
  const bool threads = std::any_of(run.kernels.begin(), run.kernels.end(),
                                   [](const KernelRow& k) { return k.threads_busy >= 0; });
  const bool timed = run.has_times(),
             rates = !run.summary.is_import();  // those of others count no arithmetic
  std::vector<std::string> head{options.group, "kernels", "time per step", "share"};
  if (threads) head.emplace_back("threads busy");
  if (rates) head.insert(head.end(), {"rate", "bandwidth"});
  if (told) head.emplace_back("computed by");
  std::vector<std::vector<std::string>> rows;
  const auto groups = grouped(run, options.group);
  for (const auto& [name, g] : groups) {
    if (static_cast<std::int64_t>(rows.size()) >= options.limit) break;
    rows.push_back({escaped(name), std::to_string(g.kernels), timed ? duration_text(g.ns) : "-",
                    timed ? percent_text(g.share) : "-"});
    if (threads) rows.back().push_back(g.told_ns > 0 ? percent_text(g.threads_busy()) : "-");
    if (rates) {
      rows.back().push_back(g.ns > 0 ? count_text(g.flops / g.ns * 1e9, "FLOP/s") : "-");
      rows.back().push_back(g.ns > 0 ? bytes_text(g.bytes / g.ns * 1e9) + "/s" : "-");
    }
    if (told) rows.back().push_back(escaped(g.implementation));
  }
  out.text("");
  if (!timed) out.text("no kernel timings were recorded");
  if (!rows.empty()) out.text(table_text(head, rows, {told ? static_cast<int>(head.size()) - 1 : 0}));
  if (rows.size() < groups.size())
    out.text("  and " + std::to_string(groups.size() - rows.size()) + " more (--limit N shows them)");
}

// " on cuda:0 (NVIDIA A100-SXM4-80GB)"
std::string on_device_text(const RunRecord& run) {
  const std::string name = environment_row(run, "gpu.name");
  return " on " + escaped(run.summary.device) + (name.empty() ? "" : " (" + escaped(name) + ")");
}

double executions_per_step(const RunRecord& run) {
  double samples = 0;
  for (const KernelRow& k : run.kernels) samples += static_cast<double>(k.samples);
  return samples / static_cast<double>(std::max<std::int64_t>(run.summary.steps, 1));
}

// What its importer found that a reader must know, one line each.
void show_import_notes(const Output& out, const RunRecord& run) {
  for (const auto& [name, value] : run.environment)
    if (name.starts_with(kImportNote)) out.text("  note: " + escaped(value));
}

void show_text(const Output& out, const RunRecord& run, const FoundModel& model,
               const SessionOptions& options) {
  const RunSummary& s = run.summary;
  out.text(run_label(s) + ": " + escaped(s.status) + (s.message.empty() ? "" : ", " + escaped(s.message)));
  out.text("  " + escaped(s.command));
  if (const std::string said = run_annotation_text(s); !said.empty()) out.text("  " + said);
  const std::string missing = model_note(model, run);
  if (s.is_import()) out.text("  recorded by " + s.kind_text() + on_device_text(run));
  if (!s.model.empty()) out.text("  " + (missing.empty() ? "model " + escaped(model.path) : missing));
  out.text(
      "  " +
      (s.has_loss() ? "loss " + short_text(s.first_loss) + " -> " + short_text(s.last_loss) + " over " : "") +
      plural_text(s.steps, "step") + ", median step " + duration_text(static_cast<double>(s.median_step_ns)) +
      ", " + plural_text(s.kernels_per_step, "kernel") +
      (s.is_loop()     ? " in all plans"
       : s.is_import() ? " in " + number_text(std::round(executions_per_step(run))) + " executions per step"
                       : " per step"));
  if (!run.evaluations.empty()) {
    const auto best = std::min_element(
        run.evaluations.begin(), run.evaluations.end(), [](const EvaluationRow& a, const EvaluationRow& b) {
          return a.loss < b.loss || (std::isnan(b.loss) && !std::isnan(a.loss));
        });
    out.text("  held-out loss " + short_text(run.evaluations.front().loss) + " -> " +
             short_text(run.evaluations.back().loss) + " over " +
             plural_text(static_cast<std::int64_t>(run.evaluations.size()), "evaluation") + ", best " +
             short_text(best->loss) + " after step " + std::to_string(best->step));
  }
  if (s.is_import() && s.measured_peak_bytes > 0)
    out.text("  peak measured " + bytes_text(static_cast<double>(s.measured_peak_bytes)));
  if (s.has_recipe())
    out.text("  peak planned " + bytes_text(static_cast<double>(s.plan_peak_bytes)) + ", measured " +
             bytes_text(static_cast<double>(s.measured_peak_bytes)) + ", lower bound " +
             bytes_text(static_cast<double>(lower_bound_bytes(s))));
  if (overhead_known(s)) {
    char text[96];
    std::snprintf(text, sizeof text, "  timing costs %+.2f %% of a step [%+.2f, %+.2f]", s.overhead * 100,
                  s.overhead_low * 100, s.overhead_high * 100);
    out.text(text);
  }
  if (run.loop) show_loop(out, *run.loop, options.limit);
  show_import_notes(out, run);
  if (const std::string disturbed = gpu_disturbances(run.environment); !disturbed.empty())
    out.text("  note: " + escaped(disturbed));
  std::vector<std::vector<std::string>> rows;
  for (const StreamRow& row : run.streams) {
    const StreamStep step = per_step(row);
    rows.push_back({escaped(stream_name(row.stream, run.environment)), escaped(row.kind),
                    number_text(std::round(step.count)), duration_text(step.ns),
                    step.bytes > 0 ? bytes_text(step.bytes) : "-"});
  }
  if (!rows.empty())
    out.text("\n" + table_text({"stream", "what", "per step", "time per step", "bytes"}, rows));
  show_ranks(out, run, options.limit);
  show_kernels(out, run, options);
}

// How far kernels are above what they take at least.
Status show_roofline(const Output& out, const RunRecord& run, const SessionOptions& options) {
  const RooflineGroup group = TRY(parse_roofline_group(options.group));
  if (run.summary.is_import())
    return Error{Errc::usage, "no roofline: " + run.summary.kind_text() + " counts no arithmetic"};
  const RooflineModel model = roofline_of_run(run, TRY(hardware_of_run(run, options.on)));
  if (!model.timed()) return Error{Errc::usage, "no roofline: the run has no times of kernels"};
  const RooflineSelection selection = TRY(asked_selection(model, options.inside));
  Json json = roofline_json(model, selection);
  json["run_id"] = run.summary.id;
  out.object({{"roofline", json}});
  out.text(roofline_text(model, selection, group, static_cast<std::size_t>(options.limit)));
  return {};
}

// As the run planned it, also where this version would plan it otherwise. Sessions hold no workspaces.
Status show_memory(const Output& out, const RunRecord& run, const SessionOptions& options) {
  if (run.buffers.empty())
    return Error{Errc::usage,
                 "no memory plan: " + (run.summary.is_import() ? run.summary.kind_text() + " has none"
                                                               : "the run recorded none")};
  const MemoryModel memory = build_memory_model(run);
  Json json = memory_json(memory);
  json.erase("findings");
  json["run_id"] = run.summary.id;
  json["measured_peak_bytes"] = memory.measured_peak_bytes;
  out.object({{"memory", json}});
  out.text(memory_report_text(memory, static_cast<std::size_t>(options.limit), false));
  return {};
}

void add_session(CLI::App& app, SessionOptions& options) {
  app.add_option("SESSION", options.session, "session file, or SESSION#RUN")->required();
  app.add_option("--run", options.run, "number or name of a run, or last");
}

// The graph is the run's job compiled again; another program's run has its kernels alone.
Status show_graph(const CommandContext& context, Store& store, const RunRecord& run,
                  const SessionOptions& options) {
  std::unique_ptr<Prepared> prepared;
  if (run.summary.has_recipe()) {
    const JobSource source = TRY(job_of_run(run, options.session));
    if (!source.note.empty()) context.out.note(source.note);
    prepared = TRY(prepare(source.recipe, context.stop));
  }
  GraphModel model = prepared ? graph_model_of(*prepared, &run) : graph_model_of(run);
  if (!options.against.empty())
    TRY(compare_graph(model, run, TRY(store.load_run(TRY(store.find_run(options.against))))));
  const GraphAnswer answer = TRY(ask_graph(model, options.graph));
  const Plan* const plan = prepared ? &prepared->compiled.plan : nullptr;
  context.out.object({{"run_id", run.summary.id}, {"graph", graph_answer_json(model, answer, plan)}});
  context.out.text("run " + std::to_string(run.summary.id) + ": " +
                   graph_answer_text(model, answer, static_cast<std::size_t>(options.limit)));
  return {};
}

// One answer, or several of the timeline; and nothing that belongs to another.
Status check_asked(const SessionOptions& o, bool grouped) {
  const char* const tree = o.tree.by.empty() ? nullptr : "--tree";
  const char* const curves = o.curves.of.empty() ? nullptr : "--curves";
  const char* const memory = o.memory ? "--memory" : nullptr;
  TRY(check_one_answer(
      {tree, curves, o.timeline.flag(), o.graph.flag(), o.roofline ? "--roofline" : nullptr, memory}));
  if (grouped) TRY(check_one_answer({"--group", tree, curves, o.timeline.flag(), o.graph.flag(), memory}));
  if (o.timeline.step != 0 && !o.timeline.of_a_step())
    return Error{Errc::usage, "--step goes with --idle, --critical-path or --launches"};
  if (!o.against.empty() && !o.graph.any())
    return Error{Errc::usage, "--against goes with --graph, --find, --path or --neighbours"};
  return {};
}

}  // namespace

CommandRun declare_show(CLI::App& app) {
  auto options = std::make_shared<SessionOptions>();
  add_session(app, *options);
  auto* const group =
      app.add_option(
             "--group", options->group,
             "sum times by kernel | op | phase | scope | pass | implementation (on GPUs: library and algorithm, "
             "or why our own kernel)")
          ->check(
              CLI::IsMember({"kernel", "node", "op", "phase", "scope", "pass", "implementation", "roof"}));
  auto* const roofline = app.add_flag(
      "--roofline", options->roofline,
      "how far kernels are above what they take at least (--group kernel | node | op | phase | scope | roof)");
  app.add_option(
         "--on", options->on,
         "with --roofline: the roofs of a processor by its data sheet (h200, ..) or of a file that devices --measure "
         "--json wrote; by default what was measured of the run's, else the best that its kernels reached")
      ->needs(roofline);
  app.add_option("--inside", options->inside, kInsideHelp)
      ->needs(roofline)
      ->take_all()
      ->allow_extra_args(false);
  app.add_flag(
      "--memory", options->memory,
      "who held memory at the peak, until when and for whom, as the run planned it, without the kernels' workspaces");
  app.add_option("--limit", options->limit, "number of rows to print")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}));
  declare_tree(app, options->tree);
  declare_timeline(app, options->timeline);
  declare_curves(app, options->curves);
  declare_graph(app, options->graph);
  app.add_option(
      "--against", options->against,
      "with the graph: another run of the session, number, name or last, that times are held against");
  return [options, group](CommandContext& context) -> Status {
    const SessionOptions named = TRY(with_named_run(*options));
    TRY(check_asked(named, group->count() > 0));
    const auto store = TRY(open_session(named));
    const std::int64_t id = TRY(store->find_run(named.run));
    const RunRecord run = TRY(store->load_run(id));
    if (!named.tree.by.empty())
      return show_tree(context.out, run, TRY(store->load_trace(id)), named.tree, named.limit);
    if (!named.curves.of.empty()) return show_curves(context.out, run, *store, named.curves, named.limit);
    if (named.timeline.any()) return show_timeline(context.out, run, *store, named.timeline, named.limit);
    if (named.graph.any()) return show_graph(context, *store, run, named);
    if (named.roofline) return show_roofline(context.out, run, named);
    if (named.memory) return show_memory(context.out, run, named);
    if (named.group == "roof") return Error{Errc::usage, "--group roof goes with --roofline"};
    const FoundModel model = find_model(run, named.session);
    if (context.out.json())
      show_json(context.out, run, model, named.group);
    else
      show_text(context.out, run, model, named);
    return {};
  };
}

}  // namespace gradloom
