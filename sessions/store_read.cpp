// Reading runs: summaries, records. Their kernels and traces are read in read_kernels.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/ir/instances.h"
#include "profiler/import/imported_trace.h"
#include "profiler/sampler.h"
#include "sessions/store.h"
#include "sessions/store_impl.h"

namespace gradloom {
namespace {

using json = nlohmann::json;

template <class T>
std::vector<T> json_array(const std::string& text) {
  // Written by us and covered by the run's digest; anything else reads as empty.
  const json parsed = json::parse(text, nullptr, false);
  std::vector<T> values;
  if (!parsed.is_array()) return values;
  for (const json& item : parsed) {
    if constexpr (std::is_same_v<T, std::string>) {
      if (item.is_string()) values.push_back(item.get<std::string>());
    } else if (item.is_number_integer()) {
      values.push_back(item.get<T>());
    }
  }
  return values;
}

double loss_of(const Statement& row, int number, int text) {
  if (!row.is_null(number)) return row.real(number);
  const std::string word = row.text(text);
  if (word == "inf") return std::numeric_limits<double>::infinity();
  if (word == "-inf") return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

std::int64_t median_step_ns(const std::vector<StepRow>& steps) {
  std::vector<std::int64_t> untimed, all;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    all.push_back(steps[i].step_ns);
    if (i >= std::size_t{kWarmupSteps} && !steps[i].timed) untimed.push_back(steps[i].step_ns);
  }
  return integer_median(untimed.empty() ? all : untimed);
}

}  // namespace

// Sorts `values`.
std::int64_t integer_median(std::vector<std::int64_t>& values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : values[n / 2 - 1] + (values[n / 2] - values[n / 2 - 1]) / 2;
}

bool RunSummary::is_import() const { return find_import_origin(data) != nullptr; }

namespace {

// Of a run's first step, which a stranger may have written.
std::int64_t steps_before(std::int64_t first) {
  return std::clamp<std::int64_t>(first, 1, std::int64_t{1} << 60) - 1;
}

}  // namespace

bool RunSummary::has_loss() const {
  return has_recipe() || !std::isnan(first_loss) || !std::isnan(last_loss);
}

std::int64_t RunSummary::last_warmup_step() const { return is_import() ? 0 : steps_before + kWarmupSteps; }

std::string RunSummary::kind_text() const {
  const ImportOrigin* const origin = find_import_origin(data);
  return is_loop() ? "a recorded loop" : origin != nullptr ? origin->title : "";
}

Result<std::int64_t> Store::Impl::last_warmup_step(std::int64_t run) {
  RunSummary summary;
  Statement first = TRY(database.prepare("SELECT min(step) FROM loss WHERE run = ?"));
  first.bind(1, run);
  if (TRY(first.row()) && !first.is_null(0)) summary.steps_before = steps_before(first.integer(0));
  Statement row = TRY(database.prepare("SELECT data FROM run WHERE id = ?"));
  row.bind(1, run);
  if (TRY(row.row())) summary.data = row.text(0);
  return summary.last_warmup_step();
}

Result<RunSummary> Store::Impl::read_summary(std::int64_t run) {
  Statement row =
      TRY(database.prepare("SELECT name, status, message, model, model_hash, device, \"precision\", "
                           "optimizer, loss, data, passes, planner, command,"
                           " started_utc, finished_utc, seed, planned_steps, measured_peak_bytes, overhead, "
                           "overhead_low, overhead_high, graph_hash,"
                           " plan_hash, process FROM run WHERE id = ?"));
  row.bind(1, run);
  if (!TRY(row.row())) return Error{Errc::bad_input, fmt::format("no run {}", run)};
  RunSummary s;
  s.id = run;
  std::string* const texts[] = {&s.name,   &s.status,    &s.message,   &s.model,       &s.model_hash,
                                &s.device, &s.precision, &s.optimizer, &s.loss,        &s.data,
                                &s.passes, &s.planner,   &s.command,   &s.started_utc, &s.finished_utc};
  int column = 0;
  for (std::string* text : texts) *text = row.text(column++);
  s.seed = static_cast<std::uint64_t>(row.integer(column++));
  s.planned_steps = row.integer(column++);
  s.measured_peak_bytes = row.size(column++);
  s.overhead = row.is_null(column) ? -1 : row.real(column);
  s.overhead_low = row.real(column + 1);
  s.overhead_high = row.real(column + 2);
  s.graph_hash = row.text(column + 3);
  s.plan_hash = row.text(column + 4);
  if (s.status == "running" && !process_alive(row.text(column + 5))) s.status = "interrupted";

  Statement plan =
      TRY(database.prepare("SELECT peak_bytes, arena_bytes, lower_bound_bytes FROM plan WHERE run = ? "
                           "ORDER BY peak_bytes DESC LIMIT 1"));
  plan.bind(1, run);
  if (TRY(plan.row())) {
    s.plan_peak_bytes = plan.size(0);
    s.arena_bytes = plan.size(1);
    s.lower_bound_bytes = plan.size(2);
  }
  Statement count = TRY(database.prepare("SELECT count(*) FROM plan_step WHERE run = ?"));
  count.bind(1, run);
  if (TRY(count.row())) s.kernels_per_step = count.integer(0);
  std::vector<StepRow> steps;
  TRY(read_steps(run, 0, steps));
  s.steps = static_cast<std::int64_t>(steps.size());
  if (!steps.empty()) {
    s.steps_before = steps_before(steps.front().step);
    s.first_loss = steps.front().loss;
    s.last_loss = steps.back().loss;
    s.median_step_ns = median_step_ns(steps);
  }
  TRY(read_annotation(s));
  return s;
}

Status Store::Impl::read_steps(std::int64_t run, std::int64_t after, std::vector<StepRow>& steps) {
  Statement row =
      TRY(database.prepare("SELECT step, loss, loss_text, step_ns, lr, grad_norm, timed FROM loss WHERE run "
                           "= ? AND step > ? ORDER BY step"));
  row.bind(1, run);
  row.bind(2, after);
  while (TRY(row.row())) {
    steps.push_back({row.integer(0), loss_of(row, 1, 2), row.size(3), row.real(4),
                     row.is_null(5) ? -1 : row.real(5), row.integer(6) != 0});
  }
  return TRY(version()) < 3 ? Status() : read_loss_scales(run, after, steps);
}

Status Store::Impl::read_evaluations(std::int64_t run, std::vector<EvaluationRow>& evaluations) {
  if (TRY(version()) < 5) return {};
  Statement row = TRY(database.prepare(
      "SELECT step, loss, loss_text, batches, eval_ns FROM evaluation WHERE run = ? ORDER BY step"));
  row.bind(1, run);
  while (TRY(row.row()))
    evaluations.push_back({row.integer(0), loss_of(row, 1, 2), row.size(3), row.size(4)});
  return {};
}

Status Store::Impl::read_loss_scales(std::int64_t run, std::int64_t after, std::vector<StepRow>& steps) {
  Statement row = TRY(database.prepare(
      "SELECT step, scale, skipped FROM loss_scale WHERE run = ? AND step > ? ORDER BY step"));
  row.bind(1, run);
  row.bind(2, after);
  auto step = steps.begin();
  while (TRY(row.row())) {
    step = std::find_if(step, steps.end(), [&](const StepRow& s) { return s.step == row.integer(0); });
    if (step == steps.end()) break;
    step->loss_scale = row.real(1);
    step->skipped = row.integer(2);
  }
  return {};
}

Status Store::Impl::read_passes(std::int64_t run, std::vector<PassRow>& passes) {
  Statement row =
      TRY(database.prepare("SELECT name, phase, matched, rejected, nodes_before, nodes_after, ms, pass FROM "
                           "pass WHERE run = ? ORDER BY pass"));
  row.bind(1, run);
  while (TRY(row.row())) {
    if (row.integer(7) != static_cast<std::int64_t>(passes.size())) return misnumbered(run, "pass");
    passes.push_back({row.text(0),
                      row.text(1),
                      row.small(2),
                      row.small(3),
                      row.integer(4),
                      row.integer(5),
                      row.real(6),
                      {}});
  }
  Statement match =
      TRY(database.prepare("SELECT rule, site, matched, why, removed, added, sources, pass FROM pass_match "
                           "WHERE run = ? ORDER BY pass, rowid"));
  match.bind(1, run);
  while (TRY(match.row())) {
    const std::int64_t pass = match.integer(7);
    if (pass < 0 || pass >= static_cast<std::int64_t>(passes.size())) continue;
    passes[static_cast<std::size_t>(pass)].log.push_back({match.text(0),
                                                          match.text(1),
                                                          match.integer(2) != 0,
                                                          match.text(3),
                                                          json_array<std::string>(match.text(4)),
                                                          json_array<std::string>(match.text(5)),
                                                          {},
                                                          json_array<std::uint32_t>(match.text(6))});
  }
  return TRY(version()) < 6 ? Status() : read_instances(run, passes);
}

Status Store::Impl::read_instances(std::int64_t run, std::vector<PassRow>& passes) {
  Statement row = TRY(
      database.prepare("SELECT pass, number, fingerprint FROM pass_instance WHERE run = ? ORDER BY rowid"));
  row.bind(1, run);
  while (TRY(row.row())) {
    const std::int64_t pass = row.integer(0), number = row.integer(1);
    if (pass < 0 || pass >= static_cast<std::int64_t>(passes.size())) continue;
    std::vector<RewriteRecord>& log = passes[static_cast<std::size_t>(pass)].log;
    if (number < 0 || number >= static_cast<std::int64_t>(log.size())) continue;
    if (std::string text = row.text(2); is_fingerprint(text))
      log[static_cast<std::size_t>(number)].fingerprint = std::move(text);
  }
  return {};
}

Status Store::Impl::read_buffers(std::int64_t run, std::int64_t plan_steps, std::vector<BufferRow>& buffers) {
  Statement row =
      TRY(database.prepare("SELECT buffer, value, place, offset, bytes, first_step, last_step FROM buffer "
                           "WHERE run = ? ORDER BY buffer, rowid"));
  row.bind(1, run);
  std::int64_t last = -1;
  while (TRY(row.row())) {
    if (buffers.empty() || row.integer(0) != last) {
      last = row.integer(0);
      buffers.push_back({{}, row.text(2), row.size(3), row.size(4), row.integer(5), row.integer(6)});
      const BufferRow& b = buffers.back();
      if (b.first_step < -1 || b.last_step < b.first_step || b.last_step > plan_steps)
        return Error{
            Errc::bad_input,
            fmt::format("run {} is damaged (buffer {} lives outside of the plan's steps)", run, last)};
    }
    buffers.back().values.push_back(row.text(1));
  }
  return {};
}

Status Store::Impl::read_environment(std::int64_t run, std::map<std::string, std::string>& environment) {
  Statement row = TRY(database.prepare("SELECT name, value FROM environment WHERE run = ? ORDER BY rowid"));
  row.bind(1, run);
  while (TRY(row.row())) environment[row.text(0)] = row.text(1);
  return {};
}

Result<std::int64_t> Store::Impl::version() { return database.integer("PRAGMA user_version"); }

Result<std::vector<RunSummary>> Store::list_runs() {
  return impl_->on_snapshot([&]() -> Result<std::vector<RunSummary>> {
    std::vector<std::int64_t> ids;
    Statement row = TRY(impl_->database.prepare("SELECT id FROM run ORDER BY id"));
    while (TRY(row.row())) ids.push_back(row.integer(0));
    if (ids.size() > kMaxListedRuns)
      return Error{Errc::limit,
                   fmt::format("it has {} runs; at most {} are listed", ids.size(), kMaxListedRuns)};
    std::vector<RunSummary> runs;
    for (const std::int64_t id : ids) {
      const std::string table = TRY(impl_->damaged_table(id, true));
      if (table.empty()) {
        runs.push_back(TRY(impl_->read_summary(id)));
        continue;
      }
      RunSummary summary;
      summary.id = id;
      summary.status = "damaged";
      summary.message = "table " + table;
      runs.push_back(std::move(summary));
    }
    return runs;
  });
}

Result<std::int64_t> Store::find_run(const std::string& text) {
  return impl_->on_snapshot([&]() -> Result<std::int64_t> {
    if (text == "last") {
      const std::int64_t id = TRY(impl_->database.integer("SELECT max(id) FROM run"));
      if (id <= 0) return Error{Errc::bad_input, "the session has no runs"};
      return id;
    }
    const bool number =
        !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos;
    if (number) {  // "20261130" may be a name, too
      Statement row = TRY(impl_->database.prepare("SELECT id FROM run WHERE id = ?"));
      row.bind(1, Cell(static_cast<std::int64_t>(std::stoll(text))));
      if (TRY(row.row())) return row.integer(0);
    }
    Statement row = TRY(impl_->database.prepare("SELECT max(id) FROM run WHERE name = ?"));
    row.bind(1, Cell(std::string_view(text)));
    if (TRY(row.row()) && !row.is_null(0)) return row.integer(0);
    return Error{Errc::bad_input, "no run " + escaped(text)};
  });
}

double KernelRow::executions() const {
  return steps > 0 && samples > 0 ? static_cast<double>(samples) / static_cast<double>(steps) : 1;
}

std::int64_t KernelRow::launches() const { return std::max<std::int64_t>(1, std::llround(executions())); }

bool RunRecord::has_times() const {
  return std::any_of(kernels.begin(), kernels.end(), [](const KernelRow& k) { return k.samples > 0; });
}

Result<RunSummary> Store::summary(std::int64_t run) {
  return impl_->on_snapshot([&]() -> Result<RunSummary> {
    const std::string table = TRY(impl_->damaged_table(run, true));
    if (!table.empty()) return damaged(run, table);
    return impl_->read_summary(run);
  });
}

Result<std::map<std::string, std::string>> Store::environment(std::int64_t run) {
  return impl_->on_snapshot([&]() -> Result<std::map<std::string, std::string>> {
    std::map<std::string, std::string> rows;
    TRY(impl_->read_environment(run, rows));
    return rows;
  });
}

Result<RunRecord> Store::load_run(std::int64_t run) {
  return impl_->on_snapshot([&]() -> Result<RunRecord> {
    const std::string table = TRY(impl_->damaged_table(run, false));
    if (!table.empty()) return damaged(run, table);
    RunRecord record;
    record.summary = TRY(impl_->read_summary(run));
    Statement recipe = TRY(impl_->database.prepare("SELECT recipe FROM run WHERE id = ?"));
    recipe.bind(1, run);
    if (TRY(recipe.row())) record.recipe_json = recipe.text(0);
    TRY(impl_->read_environment(run, record.environment));
    TRY(impl_->read_steps(run, 0, record.steps));
    TRY(impl_->read_evaluations(run, record.evaluations));
    const auto threads = parse_number<std::int64_t>(record.environment["threads"]);
    TRY(impl_->read_kernels(run, threads.value_or(0), record.kernels));
    TRY(impl_->read_source_ops(run, record.source_ops));
    TRY(impl_->read_passes(run, record.passes));
    TRY(impl_->read_buffers(run, static_cast<std::int64_t>(record.kernels.size()), record.buffers));
    TRY(impl_->read_streams(run, record.kernels, record.streams));
    TRY(impl_->read_loop(run, record.steps, record.kernels, record.loop));
    TRY(impl_->read_rank_shares(run, record.kernels, record.ranks));
    return record;
  });
}

Result<std::vector<StepRow>> Store::steps_after(std::int64_t run, std::int64_t step) {
  return impl_->on_snapshot([&]() -> Result<std::vector<StepRow>> {
    std::vector<StepRow> steps;
    TRY(impl_->read_steps(run, step, steps));
    return steps;
  });
}

}  // namespace gradloom
