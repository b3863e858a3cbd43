#include "app/train_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "app/measured_costs.h"
#include "engine/base/memory.h"
#include "engine/base/text.h"
#include "engine/ranks/world.h"

namespace gradloom {
namespace {

// "2 of 3 matched: fuse-gelu 4, fuse-optimizer 1": what each pass that is on found, before and after the gradient.
std::string passes_line(const std::vector<RecipePass>& on, const std::vector<PassReport>& reports) {
  if (on.empty()) return "none";
  int matching = 0;
  std::string list;
  for (const RecipePass& pass : on) {
    int matched = 0;
    for (const PassReport& report : reports) matched += report.name == pass.name ? report.matched : 0;
    if (matched == 0) continue;
    ++matching;
    list += (list.empty() ? ": " : ", ") + pass.name + " " + std::to_string(matched);
  }
  return std::to_string(matching) + " of " + std::to_string(on.size()) + " matched" + list;
}

}  // namespace

void TrainReport::started(const Job& job, const RecordedRun& record) {
  items_ = job.items_per_step();
  started_ns_ = monotonic_ns();
  const Compiled& c = job.compiled();
  const Recipe& r = job.recipe();
  const std::optional<MeasuredCosts> costs = measured_costs(r, c);
  Json start = {{"event", "start"},
                {"run_id", record.recording() ? Json(record.id()) : Json(nullptr)},
                {"steps", r.steps},
                {"steps_before", job.steps_before()},
                {"kernels_per_step", c.plan.steps.size()},
                {"plan_peak_bytes", c.plan.peak_bytes()},
                {"compile_ms", c.compile_ms}};
  if (c.plan.host_bytes > 0) start["plan_host_bytes"] = c.plan.host_bytes;
  if (costs) start["costs"] = costs->json();
  out_.object(start);
  out_.text("model     " + escaped(r.model) + "   loss " + escaped(r.loss) + "   " + r.optimizer + "   " +
            r.device + " " + r.precision);
  out_.text("plan      " + plural_text(static_cast<std::int64_t>(c.plan.steps.size()), "kernel") +
            " per step, peak " + bytes_text(static_cast<double>(c.plan.peak_bytes())) + " (arena " +
            bytes_text(static_cast<double>(c.plan.arena_bytes)) + ", lower bound " +
            bytes_text(static_cast<double>(c.plan.lower_bound_bytes)) + ")" +
            (c.plan.host_bytes > 0
                 ? " and " + bytes_text(static_cast<double>(c.plan.host_bytes)) + " of the host's memory"
                 : "") +
            ", compiled in " + duration_text(c.compile_ms * 1e6));
  if (costs) out_.text("costs     " + costs->text());
  out_.text("passes    " + passes_line(r.passes, c.reports));
  if (record.recording()) out_.text("session   " + record.session() + ", run " + std::to_string(record.id()));
}

std::string remaining_text(double ns) {
  const auto seconds = static_cast<long long>(std::min(ns / 1e9, 1e12));
  char text[64];
  if (seconds >= 3600)
    std::snprintf(text, sizeof text, "%lld h %02lld min", seconds / 3600, seconds / 60 % 60);
  else if (seconds >= 60)
    std::snprintf(text, sizeof text, "%lld min %02lld s", seconds / 60, seconds % 60);
  else
    std::snprintf(text, sizeof text, "%lld s", seconds);
  return text;
}

double TrainReport::pace_ns() const {
  return static_cast<double>(monotonic_ns() - started_ns_) /
         static_cast<double>(std::max<std::int64_t>(made_, 1));
}

std::string TrainReport::rate_text(double step_ns) const {
  const double rate = static_cast<double>(items_.count) * 1e9 / std::max(step_ns, 1.0);
  char text[48];
  std::snprintf(text, sizeof text, rate < 100 ? "%.3g %s/s" : "%.0f %s/s", rate, items_.name);
  return text;
}

void TrainReport::step(const StepResult& result, std::int64_t steps) {
  ++made_;
  Json line = {{"step", result.step}, {"loss", json_number(result.loss)}, {"step_ns", result.step_ns}};
  if (result.grad_norm >= 0) line["grad_norm"] = json_number(result.grad_norm);
  if (result.loss_scale > 0) {
    line["loss_scale"] = result.loss_scale;
    line["skipped"] = result.skipped > 0;
  }
  out_.object(line);
  if (!out_.json()) draw_step(result, steps);
}

void TrainReport::evaluation(const EvaluationRow& row, bool best) const {
  out_.object({{"eval",
                {{"step", row.step},
                 {"loss", json_number(row.loss)},
                 {"batches", row.batches},
                 {"eval_ns", row.eval_ns}}}});
  if (out_.json()) return;
  out_.progress_done();
  char text[128];
  std::snprintf(text, sizeof text, "eval %6lld   loss %-10.6g %s over %s%s", static_cast<long long>(row.step),
                row.loss, duration_text(static_cast<double>(row.eval_ns)).c_str(),
                (std::to_string(row.batches) + (row.batches == 1 ? " batch" : " batches")).c_str(),
                best ? ", the best so far" : "");
  out_.text(text);
}

void TrainReport::draw_step(const StepResult& result, std::int64_t steps) {
  const std::int64_t step = result.step, every = std::max<std::int64_t>(1, steps / 10);
  const std::int64_t now_ns = monotonic_ns();
  if (now_ns - drawn_ns_ > 100'000'000) {
    char loss[32];
    std::snprintf(loss, sizeof loss, "%.5g", result.loss);
    out_.progress("step " + std::to_string(step) + "/" + std::to_string(steps),
                  static_cast<double>(step) / static_cast<double>(steps),
                  "loss " + std::string(loss) + "  " + rate_text(pace_ns()) + "  ETA " +
                      remaining_text(pace_ns() * static_cast<double>(steps - step)));
    drawn_ns_ = now_ns;
  }
  if (step != 1 && step % every != 0 && step != steps && result.skipped <= 0) return;
  out_.progress_done();
  char text[96];
  std::snprintf(text, sizeof text, "step %6lld   loss %-10.6g %s", static_cast<long long>(step), result.loss,
                duration_text(static_cast<double>(result.step_ns)).c_str());
  const std::string skipped =
      result.skipped > 0 ? "   skipped: overflow in f16, loss scale now " + number_text(result.loss_scale)
                         : "";
  out_.text(text + skipped);
}

// What the ranks exchanged, where there are several.
static void add_ranks(Json& summary, const std::vector<std::int64_t>& peak_bytes) {
  const World* const world = World::current();
  if (world == nullptr) return;
  summary["world"] = world->size();
  summary["sent_bytes"] = world->sent_bytes();
  summary["waited_ns"] = world->waited_ns();
  if (!peak_bytes.empty()) summary["rank_peak_bytes"] = peak_bytes;
}

static std::string ranks_text(std::size_t steps, const std::vector<std::int64_t>& peak_bytes) {
  const World* const world = World::current();
  if (world == nullptr) return "";
  const auto made = static_cast<double>(steps);
  std::string peaks;
  if (const auto [least, most] = std::minmax_element(peak_bytes.begin(), peak_bytes.end());
      most != peak_bytes.end())
    peaks = "; peaks " + (*least == *most ? "" : bytes_text(static_cast<double>(*least)) + " to ") +
            bytes_text(static_cast<double>(*most));
  return "ranks     " + std::to_string(world->size()) + "; each sends " +
         bytes_text(static_cast<double>(world->sent_bytes()) / made) + " a step, rank 0 waited " +
         duration_text(static_cast<double>(world->waited_ns()) / made) + " a step for exchanges" + peaks;
}

void TrainReport::summary(const Job& job, const RecordedRun& record, const StepHistory& history,
                          const LossScaleWatch& loss_scale, const Overhead& overhead,
                          const std::vector<SavedFile>& saved, const CheckpointWriter& checkpoints,
                          const Evaluation* evaluation) const {
  const Plan& plan = job.compiled().plan;
  const std::vector<double>& losses = history.losses;
  const bool none = losses.empty();  // the checkpoint had them all
  const std::int64_t peak = process_peak_bytes();
  const std::vector<MemoryItem> process = process_memory(marks_, peak, plan, job.device().id == "cpu");
  Json s = {{"run_id", record.recording() ? Json(record.id()) : Json(nullptr)},
            {"steps", losses.size()},
            {"first_loss", none ? Json(nullptr) : json_number(losses.front())},
            {"last_loss", none ? Json(nullptr) : json_number(losses.back())},
            {"median_step_ns", none ? 0 : static_cast<std::int64_t>(history.median_step_ns())},
            {"plan_peak_bytes", plan.peak_bytes()},
            {"measured_peak_bytes", job.measured_peak_bytes()},
            {"vmhwm_bytes", peak},
            {"process_memory", peak > 0 ? process_memory_json(process) : Json::object()},
            {"lower_bound_bytes", plan.peak_lower_bound_bytes()},
            {"kernels_per_step", plan.steps.size()},
            {std::string(items_.name) + "_per_step", items_.count}};
  if (plan.host_bytes > 0) s["plan_host_bytes"] = plan.host_bytes;
  add_ranks(s, rank_peak_bytes_);
  if (loss_scale.scale() > 0) {
    s["skipped_steps"] = loss_scale.skipped();
    s["loss_scale"] = loss_scale.scale();
  }
  if (overhead.known)
    s["profiler_overhead"] = {{"value", overhead.fraction}, {"low", overhead.low}, {"high", overhead.high}};
  for (const SavedFile& file : saved)
    s["saved"].push_back(
        {{"asked", file.asked}, {"path", file.path.empty() ? Json(nullptr) : Json(file.path)}});
  if (evaluation != nullptr && !evaluation->rows().empty()) {
    const EarlyStop& early_stop = evaluation->early_stop();
    s["eval_loss"] = json_number(evaluation->rows().back().loss);
    s["eval_step"] = evaluation->rows().back().step;
    if (early_stop.best_step() >= 0) {
      s["best_eval_loss"] = early_stop.best_loss();
      s["best_eval_step"] = early_stop.best_step();
    }
    s["early_stop"] = early_stop.due();
  }
  if (job.steps_before() > 0) s["steps_before"] = job.steps_before();
  if (!checkpoints.latest().empty())
    s["checkpoint"] = {{"path", checkpoints.latest()},
                       {"step", checkpoints.latest_step()},
                       {"written", checkpoints.written()}};
  out_.object({{"summary", s}});
  if (none) return;
  char text[256];
  std::snprintf(text, sizeof text, "done      %zu steps, loss %.6g -> %.6g, median step %s, measured peak %s",
                losses.size(), losses.front(), losses.back(), duration_text(history.median_step_ns()).c_str(),
                bytes_text(static_cast<double>(job.measured_peak_bytes())).c_str());
  out_.text(text);
  out_.text("speed     " + rate_text(history.median_step_ns()) + " in a median step, " +
            rate_text(pace_ns()) + " over the whole run");
  if (const std::string ranks = ranks_text(losses.size(), rank_peak_bytes_); !ranks.empty()) out_.text(ranks);
  if (peak > 0) out_.text(process_memory_text(process));
  if (loss_scale.scale() > 0)
    out_.text("f16       " + plural_text(loss_scale.skipped(), "step") + " skipped, loss scale " +
              number_text(loss_scale.scale()));
  if (overhead.known) {
    std::snprintf(text, sizeof text, "profiler  %+.2f %% of a timed step [%+.2f, %+.2f]",
                  overhead.fraction * 100, overhead.low * 100, overhead.high * 100);
    out_.text(text);
  }
}

Status TrainReport::replay(const RecipeExpect& expect, const ReplayResult& result) const {
  const std::vector<ReplayLine> lines = check_replay(expect, result);
  Json list = Json::array();
  for (const ReplayLine& line : lines) {
    list.push_back({{"what", line.what}, {"outcome", line.outcome}, {"detail", line.detail}});
    out_.text("replay    " + line.what + ": " + line.outcome +
              (line.detail.empty() ? "" : " (" + line.detail + ")"));
  }
  const bool agrees = replay_agrees(lines);
  out_.object({{"replay", {{"agrees", agrees}, {"checks", list}}}});
  if (!agrees) return Error{Errc::check_failed, "the replay differs from what the recipe promises"};
  return {};
}

}  // namespace gradloom
