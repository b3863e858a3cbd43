#include "app/commands/show_timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "viz/model/critical_path.h"
#include "viz/model/run_steps.h"

namespace gradloom {
namespace {

Json kind_json(const RunStepKind& kind) {
  return {{"steps", kind.steps},
          {"median_ns", kind.median_ns},
          {"spread_ns", kind.spread_ns},
          {"slow_ns", kind.slow_ns()},
          {"fast_ns", kind.fast_ns()}};
}

Json steps_json(const RunSteps& steps, const RunSummary& run) {
  Json rows = Json::array();
  for (const RunStep& s : steps.steps) {
    Json row = {{"step", s.step},
                {"step_ns", s.ns},
                {"loss", run.has_loss() ? json_number(s.loss) : Json()},
                {"timed", s.timed},
                {"ratio", s.ratio}};
    row["stands_out"] = s.stands_out == 0 ? Json() : Json(s.stands_out > 0 ? "slow" : "fast");
    row["causes"] = known_causes(s);
    rows.push_back(std::move(row));
  }
  return {{"run_id", run.id},
          {"untimed", kind_json(steps.untimed)},
          {"timed", kind_json(steps.timed)},
          {"slow", steps.slow},
          {"fast", steps.fast},
          {"steps", rows}};
}

void show_steps(const Output& out, const RunRecord& run, std::int64_t limit) {
  const RunSteps steps = run_steps(run);
  out.object(steps_json(steps, run.summary));
  out.text("run " + std::to_string(run.summary.id) + ": " +
           (steps.steps.empty() ? "it has no steps" : outliers_text(steps)));
  std::vector<const RunStep*> found;
  for (const RunStep& s : steps.steps)
    if (s.stands_out != 0) found.push_back(&s);
  const auto distance = [](const RunStep* s) { return std::abs(std::log(std::max(s->ratio, 1e-9))); };
  std::stable_sort(found.begin(), found.end(),
                   [&](const RunStep* a, const RunStep* b) { return distance(a) > distance(b); });
  const bool cut = static_cast<std::int64_t>(found.size()) > limit;
  if (cut) found.resize(static_cast<std::size_t>(std::max<std::int64_t>(limit, 0)));
  std::sort(found.begin(), found.end(), [](const RunStep* a, const RunStep* b) { return a->step < b->step; });
  std::vector<std::vector<std::string>> rows;
  for (const RunStep* s : found)
    rows.push_back({std::to_string(s->step), duration_text(s->ns), fmt::format("{:.2f}x", s->ratio),
                    run.summary.has_loss() ? short_text(s->loss) : "-", s->timed ? "yes" : "no",
                    fmt::to_string(fmt::join(known_causes(*s), ", "))});
  if (!rows.empty())
    out.text("\n" + table_text({"step", "time", "of the median", "loss", "timed", "known of it"}, rows, {5}));
  if (cut) out.text("  (--limit N shows more; --json has every step)");
}

void add_sums(Json& json, const IdleSums& sums) {
  json["wall_ns"] = sums.wall_ns;
  json["busy_ns"] = sums.busy_ns();
  for (std::size_t c = 0; c < kIdleCauses; ++c)
    json[std::string(kIdleCauseNames[c]) + "_ns"] = sums.idle_ns[c];
}

Json lane_json(const IdleLane& lane) {
  Json json = {
      {"lane", lane.name}, {"rank", lane.rank}, {"stream", lane.stream}, {"kernels", lane.kernels.size()}};
  add_sums(json, lane.sums());
  return json;
}

Json idle_json(const StepIdle& idle) {
  Json lanes = Json::array();
  for (const IdleLane& lane : idle.lanes) lanes.push_back(lane_json(lane));
  Json threads = Json::array();
  for (const IdleThread& thread : idle.threads) {
    threads.push_back({{"thread", thread.thread}});
    add_sums(threads.back(), thread.sums);
  }
  return {{"step", idle.step}, {"lanes", lanes}, {"threads", threads}};
}

std::string shown_step_text(const RunRecord& run, const StepIdle& shown, bool chosen) {
  return "run " + std::to_string(run.summary.id) + ", step " + std::to_string(shown.step) +
         (chosen ? "" : " (half of the timed steps take no longer)") + ": ";
}

void show_idle(const Output& out, const RunRecord& run, const TraceDocument& trace, const IdleReader& reader,
               const StepIdle& shown, bool chosen, std::int64_t limit) {
  if (out.json()) {
    Json steps = Json::array();
    for (const TraceStep& s : trace.steps) steps.push_back(idle_json(reader.step(s.step)));
    out.object({{"run_id", run.summary.id}, {"idle", idle_json(shown)}, {"timed_steps", steps}});
    return;
  }
  out.text(shown_step_text(run, shown, chosen) + idle_text(shown.lanes.front().sums()));
  std::vector<std::string> head{"lane", "time", "busy"};
  head.insert(head.end(), kIdleCauseNames.begin(), kIdleCauseNames.end());
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& name, const IdleSums& sums) {
    if (static_cast<std::int64_t>(rows.size()) >= limit) return;
    rows.push_back({name, duration_text(sums.wall_ns), duration_text(sums.busy_ns())});
    for (const double ns : sums.idle_ns) rows.back().push_back(ns > 0 ? duration_text(ns) : "-");
  };
  for (const IdleLane& lane : shown.lanes) add(lane.name, lane.sums());
  for (const IdleThread& thread : shown.threads)
    add("Thread " + std::to_string(thread.thread + 1), thread.sums);
  out.text("\n" + table_text(head, rows));
  if (const std::size_t left = shown.lanes.size() + shown.threads.size() - rows.size(); left > 0)
    out.text("  and " + std::to_string(left) + " more (--limit N shows them)");
}

void show_path(const Output& out, const RunRecord& run, const TraceDocument& trace, const StepIdle& shown,
               bool chosen, std::int64_t limit) {
  const CriticalPath path = critical_path(shown, trace);
  const std::vector<std::pair<std::string, double>> ops = path_by_op(path, shown, trace);
  if (out.json()) {
    Json by_op = Json::array(), pieces = Json::array();
    for (const auto& [op, ns] : ops) by_op.push_back({{"op", op}, {"ns", ns}});
    for (const PathPiece& p : path.pieces) {
      constexpr const char* kKinds[] = {"kernel", "transfer", "idle"};
      const IdleLane& lane = shown.lanes[static_cast<std::size_t>(p.lane)];
      const std::int32_t plan_step =
          p.kernel < 0 ? -1 : lane.kernels[static_cast<std::size_t>(p.kernel)].plan_step;
      Json piece = {{"kind", kKinds[static_cast<std::size_t>(p.kind)]},
                    {"lane", lane.name},
                    {"start_ns", p.start_ns},
                    {"ns", p.end_ns - p.start_ns}};
      if (plan_step >= 0 && static_cast<std::size_t>(plan_step) < trace.kernels.size())
        piece["node"] = trace.kernels[static_cast<std::size_t>(plan_step)].node;
      if (p.kind == PathPiece::Kind::kIdle)
        piece["cause"] = kIdleCauseNames[static_cast<std::size_t>(p.cause)];
      pieces.push_back(std::move(piece));
    }
    out.object({{"run_id", run.summary.id},
                {"critical_path",
                 {{"step", shown.step},
                  {"alone", path.alone},
                  {"length_ns", path.length_ns()},
                  {"kernels", path.kernels},
                  {"of_kernels", path.of_kernels},
                  {"changes", path.changes},
                  {"by_op", by_op},
                  {"pieces", pieces}}}});
    return;
  }
  out.text(shown_step_text(run, shown, chosen) + path_text(path, shown));
  std::vector<std::vector<std::string>> rows;
  for (const auto& [op, ns] : ops) {
    if (static_cast<std::int64_t>(rows.size()) >= limit) break;
    rows.push_back({escaped(op), duration_text(ns), percent_text(ns / std::max(1.0, path.length_ns()))});
  }
  out.text("\n" + table_text({"on the path", "time", "share"}, rows));
}

void show_launches(const Output& out, const RunRecord& run, const TraceDocument& trace, const StepIdle& shown,
                   bool chosen, std::int64_t limit) {
  struct Launch {
    const IdleLane* lane;
    const LaneKernel* kernel;
  };
  std::vector<Launch> launches;
  for (const IdleLane& lane : shown.lanes)
    for (const LaneKernel& kernel : lane.kernels) launches.push_back({&lane, &kernel});
  std::stable_sort(launches.begin(), launches.end(),
                   [](const Launch& a, const Launch& b) { return a.kernel->start_ns < b.kernel->start_ns; });
  Json json = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const auto& [lane, kernel] : launches) {
    const auto index = static_cast<std::size_t>(kernel->plan_step);
    const KernelInfo info =
        kernel->plan_step >= 0 && index < trace.kernels.size() ? trace.kernels[index] : KernelInfo();
    json.push_back({{"lane", lane->name},
                    {"rank", lane->rank},
                    {"stream", lane->stream},
                    {"start_ns", kernel->start_ns},
                    {"ns", kernel->end_ns - kernel->start_ns},
                    {"node", info.node},
                    {"op", info.op},
                    {"phase", info.phase},
                    {"scope", info.scope}});
    if (static_cast<std::int64_t>(rows.size()) < limit)
      rows.push_back({escaped(info.node), escaped(info.op), info.phase, lane->name,
                      duration_text(kernel->start_ns), duration_text(kernel->end_ns - kernel->start_ns)});
  }
  out.object({{"run_id", run.summary.id}, {"launches", {{"step", shown.step}, {"rows", json}}}});
  out.text(shown_step_text(run, shown, chosen) +
           plural_text(static_cast<std::int64_t>(launches.size()), "kernel"));
  out.text("\n" + table_text({"node", "operator", "phase", "lane", "begin", "time"}, rows, {1, 2, 3}));
}

}  // namespace

void declare_timeline(CLI::App& app, TimelineOptions& options) {
  app.add_flag("--steps", options.steps,
               "every step: time, loss, and which stand out by far, with what is known of why");
  app.add_flag("--idle", options.idle,
               "of a timed step what each lane (stream, rank) waits for when it runs no kernel: launch, "
               "dependency, copy, host, imbalance");
  app.add_flag("--critical-path", options.path,
               "of a timed step the kernels, exchanges and pauses that its end waited for, by operator");
  app.add_flag("--launches", options.launches,
               "of a timed step each kernel in the order in which it ran: lane, begin, duration");
  app.add_option(
         "--step", options.step,
         "with --idle, --critical-path and --launches: that step instead of the one that half of the timed ones take no longer than")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000'000}));
}

Status show_timeline(const Output& out, const RunRecord& run, Store& store, const TimelineOptions& options,
                     std::int64_t limit) {
  if (options.steps) show_steps(out, run, limit);
  if (!options.of_a_step()) return {};
  const TraceDocument trace = TRY(store.load_trace(run.summary.id));
  const IdleReader reader(run, trace);
  const bool chosen = options.step != 0;
  const StepIdle shown = reader.step(chosen ? options.step : reader.median_step());
  if (shown.lanes.empty())
    return Error{Errc::usage, chosen
                                  ? "step " + std::to_string(options.step) + " is not timed kernel by kernel"
                                  : "no step of the run is timed kernel by kernel"};
  if (options.idle) show_idle(out, run, trace, reader, shown, chosen, limit);
  if (options.path) show_path(out, run, trace, shown, chosen, limit);
  if (options.launches) show_launches(out, run, trace, shown, chosen, limit);
  return {};
}

}  // namespace gradloom
