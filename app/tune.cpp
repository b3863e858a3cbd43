#include "app/tune.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "app/compare_jobs.h"
#include "app/timed_kernels.h"
#include "app/verify_measure.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "profiler/environment.h"
#include "viz/model/tune_table.h"

namespace gradloom {
namespace {

constexpr std::int64_t kTimedSteps = 6;
constexpr double kScreening = 0.5;  // part of the time that single changes get
constexpr double kLeastSeconds = 0.4;
// Groups of instances are switched off where that is predicted to take at most this part of the job's time.
constexpr double kWorthTrying = 0.998;

// What makes trials comparable: the job and the hardware.
std::string job_key(const Recipe& job) { return hash_hex(job_text(job) + hardware_text(read_environment())); }

class Tuner {
 public:
  Tuner(TuneSpace space, const TuneOptions& options, Store& store, std::stop_token stop,
        const std::function<void(const TuneProgress&)>& progress, const TuneListener& on_row)
      : space_(std::move(space)),
        options_(options),
        store_(store),
        stop_(std::move(stop)),
        progress_(progress),
        on_row_(on_row),
        key_(job_key(space_.job().recipe)),
        start_ns_(monotonic_ns()) {}

  Result<Tuned> run() {
    TRY(read_known());
    tell("timing the job's kernels");
    TRY(learn_kernels(space_.job()));
    TRY(add_job());
    for (Candidate& c : TRY(space_.single_changes())) {
      // Kernels that fusion replaces are known from a step without passes, those of another type from a step in it.
      if (c.changes == "passes=none" || c.changes.starts_with("precision="))
        if (const Status timed = learn_kernels(c); !timed.ok() && timed.error().code == Errc::interrupted)
          return timed.error();  // more memory than there is: they stay predicted
      add(std::move(c));
    }
    start_ns_ = monotonic_ns();  // what is planned and timed above is the same whatever the limit
    if (const Status status = search(); !status.ok() && status.error().code != Errc::interrupted)
      return status.error();
    return result();
  }

 private:
  struct Row {
    Candidate candidate;
    Trial trial;
    double error = -1;
  };

  double seconds_left() const {
    return options_.seconds - static_cast<double>(monotonic_ns() - start_ns_) * 1e-9;
  }
  void tell(const std::string& what) const {
    if (progress_)
      progress_({std::clamp(1 - seconds_left() / options_.seconds, 0.0, 1.0), what,
                 std::clamp(seconds_left(), 0.0, options_.seconds)});
  }
  void tell(TuneEvent event, const Row& row) const {
    if (on_row_) on_row_(event, told(row));
  }

  Status read_known() {
    for (Trial& trial : TRY(store_.list_trials(key_))) known_[trial.changes] = std::move(trial);
    for (const TriedConfiguration& c : TRY(store_.list_configurations(key_)))
      known_errors_[c.changes + '\n' + c.plan_hash] = c.error;
    return {};
  }

  TuneRow told(const Row& row) const {
    TuneRow told{row.trial, row.candidate.label};
    const double own = rows_.empty() ? 0 : rows_[0].candidate.predicted_ns;
    if (row.candidate.predicted_ns > 0) told.predicted = own / row.candidate.predicted_ns;
    told.error = row.error;
    return told;
  }

  // What a trial does not say, for who reads the session.
  Status keep(const Row& row) {
    const TuneRow of = told(row);
    return store_.add_configuration({key_, row.trial.changes, of.label, row.trial.plan_hash,
                                     row.trial.peak_bytes, job_step_ns_, of.predicted, of.error,
                                     row.trial.recipe_json});
  }

  Status add_job() {
    add(space_.job());
    Row& row = rows_[0];
    row.trial.round = 1;
    row.trial.ratio = {1, 1, 1};
    row.trial.step_ns = job_step_ns_;
    TRY(keep(row));
    tell(TuneEvent::job, row);
    return {};
  }

  Status learn_kernels(const Candidate& candidate) {
    const auto slow = [this] { return seconds_left() < options_.seconds / 2; };  // steps of seconds
    const TimedKernels timed = TRY(time_kernels(candidate.recipe, kTimedSteps, slow, stop_));
    model_.add(timed.kernels, timed.samples);
    if (step_per_kernels_ > 0 || timed.kernels_ns == 0) return {};
    step_per_kernels_ = timed.step_ns / timed.kernels_ns;
    job_step_ns_ = timed.step_ns;
    return {};
  }

  // A row for the candidate, with what an earlier search measured of it.
  void add(Candidate candidate) {
    // The model knows kernels on as many threads as the job has.
    if (candidate.recipe.threads == space_.job().recipe.threads)
      candidate.predicted_ns = model_.predict(candidate.kernels).ns * step_per_kernels_ / candidate.samples;
    Row row;
    row.trial.job = key_;
    row.trial.changes = candidate.changes;
    row.trial.plan_hash = candidate.plan_hash;
    row.trial.predicted_ns = candidate.predicted_ns;
    row.trial.peak_bytes = candidate.peak_bytes;
    row.trial.recipe_json = recipe_json(with_absolute_paths(candidate.recipe));
    if (const auto at = known_.find(candidate.changes);
        at != known_.end() && at->second.plan_hash == row.trial.plan_hash) {
      row.trial = at->second;
      ++taken_over_;
    }
    if (const auto at = known_errors_.find(candidate.changes + '\n' + candidate.plan_hash);
        at != known_errors_.end())
      row.error = at->second;
    row.candidate = std::move(candidate);
    rows_.push_back(std::move(row));
    if (rows_.size() > 1) tell(TuneEvent::candidate, rows_.back());
  }

  Status compare_with_job(std::size_t index, double seconds) {
    Row& row = rows_[index];
    tell(row.trial.changes);
    CompareOptions settings;
    settings.max_seconds = std::max(kLeastSeconds, std::min(seconds, seconds_left()));
    settings.min_groups = kTrialGroups;
    settings.timed_steps = 0;
    const auto compared = compare_recipes(space_.job().recipe, row.candidate.recipe, "the job",
                                          row.trial.changes, settings, stop_);
    if (!compared) {
      if (compared.error().code == Errc::interrupted) return compared.error();
      row.trial.round = -1;  // impossible: more memory than there is, a loss that is not finite
      tell(TuneEvent::candidate, row);
      return {};
    }
    ++row.trial.round;
    row.trial.ratio = trial_ratio(*compared, row.candidate.samples);
    row.trial.step_ns = compared->b_step_ns;
    job_step_ns_ = compared->a_step_ns;
    rows_[0].trial.step_ns = job_step_ns_;
    TRY(store_.add_trial(row.trial));
    TRY(keep(row));
    tell(TuneEvent::trial, row);
    return {};
  }

  // Rows that were not measured yet, those that promise most first; where nothing is sought, the one that all others
  // are seen against.
  std::vector<std::size_t> unmeasured(std::size_t first) const {
    std::vector<std::size_t> rows;
    for (std::size_t i = std::max<std::size_t>(1, first); i < rows_.size(); ++i)
      if (rows_[i].trial.round == 0) rows.push_back(i);
    std::stable_sort(rows.begin(), rows.end(), [&](std::size_t a, std::size_t b) {
      return rows_[a].trial.predicted_ns < rows_[b].trial.predicted_ns;
    });
    if (options_.only_single_changes)
      std::stable_partition(rows.begin(), rows.end(), [&](std::size_t row) {
        return rows_[row].trial.changes == "passes=none" || rows_[row].trial.changes == "passes=default";
      });
    return rows;
  }

  Status measure_all(std::size_t first, double share) {
    const std::vector<std::size_t> rows = unmeasured(first);
    if (rows.empty()) return {};
    const double kept = seconds_left() * (1 - share);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i > 0 && seconds_left() < kLeastSeconds) return {};
      TRY(compare_with_job(rows[i], (seconds_left() - kept) / static_cast<double>(rows.size() - i)));
    }
    return {};
  }

  Status search() {
    if (options_.only_single_changes) return measure_all(1, 1);
    TRY(measure_all(1, kScreening));
    const std::size_t first = rows_.size();
    TRY(add_combinations());
    TRY(add_instances());
    TRY(measure_all(first, kScreening / 2));
    return halve();
  }

  bool faster(const Row& row) const {
    return row.trial.round > 0 && row.trial.ratio.value > 1.002 && row.trial.ratio.low > 0.99;
  }

  // Everything together that is faster alone: passes switched off, or passes added to none, and threads. Budgets are
  // not faster: each is tried with the passes that are.
  Status add_combinations() {
    std::set<std::string> off, alone;
    const Row *threads = nullptr, *none = nullptr;
    std::vector<std::string> also{""};
    for (const Row& row : rows_) {
      if (row.trial.changes.rfind("memory-budget=", 0) == 0 && row.trial.round > 0)
        also.push_back(row.trial.changes);
      if (row.trial.changes == "passes=none" && row.trial.round > 0) none = &row;
      if (!faster(row)) continue;
      if (!row.candidate.without.empty()) off.insert(row.candidate.without);
      const bool by_threads = row.trial.changes.rfind("threads=", 0) == 0;
      if (by_threads && (threads == nullptr || row.trial.ratio.value > threads->trial.ratio.value))
        threads = &row;
    }
    if (none != nullptr)
      for (const Row& row : rows_)
        if (!row.candidate.alone.empty() && row.trial.round > 0 &&
            row.trial.ratio.value > none->trial.ratio.value * 1.002)
          alone.insert(row.candidate.alone);
    if (threads != nullptr) also.push_back(threads->trial.changes);
    for (const std::string& changes : also) {
      // One pass off is a single change, which is a row already.
      if (off.size() > (changes.empty() ? 1 : 0))
        if (auto candidate = TRY(space_.with_passes(off, changes))) add(std::move(*candidate));
      if (!alone.empty())
        if (auto candidate = TRY(space_.with_only(alone, changes))) add(std::move(*candidate));
    }
    return {};
  }

  // The best eight of the groups of instances that the cost model would rather do without.
  Status add_instances() {
    std::vector<Candidate> all = TRY(space_.without_instances());
    const double own = model_.predict(space_.job().kernels).ns;
    std::vector<std::pair<double, std::size_t>> promising;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (const double ns = model_.predict(all[i].kernels).ns; ns < own * kWorthTrying)
        promising.emplace_back(ns, i);
    std::sort(promising.begin(), promising.end());
    for (std::size_t i = 0; i < std::min<std::size_t>(8, promising.size()); ++i)
      add(std::move(all[promising[i].second]));
    return {};
  }

  Status halve() {
    std::vector<std::size_t> left;
    double best_low = 1;
    for (const Row& row : rows_)
      if (row.trial.round > 0) best_low = std::max(best_low, row.trial.ratio.low);
    for (std::size_t i = 1; i < rows_.size(); ++i)
      if (rows_[i].trial.round > 0 && rows_[i].trial.ratio.high >= best_low) left.push_back(i);
    while (!left.empty() && seconds_left() > kLeastSeconds) {
      std::stable_sort(left.begin(), left.end(), [&](std::size_t a, std::size_t b) {
        return rows_[a].trial.ratio.value > rows_[b].trial.ratio.value;
      });
      left.resize((left.size() + 1) / 2);
      const double rounds = std::ceil(std::log2(static_cast<double>(left.size()))) + 1;
      const double slice = seconds_left() / rounds / static_cast<double>(left.size());
      for (const std::size_t row : left)
        if (seconds_left() > kLeastSeconds) TRY(compare_with_job(row, slice));
      if (left.size() == 1) break;
    }
    return {};
  }

  Result<Tuned> result() {
    Tuned tuned;
    tuned.known = taken_over_;
    tuned.stopped = stop_.stop_requested();
    TRY(keep(rows_[0]));  // its step as measured last
    std::stable_sort(rows_.begin() + 1, rows_.end(), [](const Row& a, const Row& b) {
      const bool measured_a = a.trial.round > 0, measured_b = b.trial.round > 0;
      if (measured_a != measured_b) return measured_a;
      return measured_a ? a.trial.ratio.value > b.trial.ratio.value
                        : a.trial.predicted_ns < b.trial.predicted_ns;
    });
    tuned.without = space_.without();
    tuned.alone = space_.alone();
    std::vector<double> errors;
    for (const Row& row : rows_) {
      TuneRow found = told(row);
      if (row.trial.round > 0 && &row != &rows_[0] && found.predicted > 0)
        errors.push_back(std::abs(found.predicted / row.trial.ratio.value - 1));
      tuned.rows.push_back(std::move(found));
    }
    tuned.prediction_error = median(errors);
    std::vector<MeasuredSpeed> measured;
    for (const Row& row : rows_) measured.push_back({row.trial.round, row.trial.ratio});
    tuned.best = fastest_beyond_doubt(measured).value_or(0);
    mark_front(tuned);
    if (!tuned.stopped && !options_.only_single_changes) TRY(measure_errors(tuned));
    return tuned;
  }

  void mark_front(Tuned& tuned) const {
    std::vector<FrontPoint> points;
    std::vector<std::size_t> of_point;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Trial& trial = rows_[i].trial;
      if (trial.round < 1) continue;
      points.push_back({trial.ratio.value, trial.peak_bytes, rows_[i].candidate.recipe.precision});
      of_point.push_back(i);
    }
    const std::vector<bool> front = pareto_front(points);
    for (std::size_t p = 0; p < points.size(); ++p) tuned.rows[of_point[p]].on_front = front[p];
  }

  // Largest relative error of a gradient, for the configurations on the front.
  Status measure_errors(Tuned& tuned) {
    tell("errors against f64");
    Recipe exact = space_.job().recipe;
    set_pipeline(exact, {});
    set_precision(exact, "f64");
    MeasureOptions options;
    options.steps = 0;
    const auto reference_job = prepare_measured(exact, stop_);
    if (!reference_job) return {};  // an operator without f64: nothing is told
    const auto reference = measure(*reference_job, options, stop_);
    if (!reference) return {};
    for (std::size_t i = 0; i < tuned.rows.size(); ++i) {
      TuneRow& row = tuned.rows[i];
      if (!row.on_front && i != 0 && i != tuned.best) continue;
      const auto job = prepare_measured(TRY(parse_recipe(row.trial.recipe_json)), stop_);
      if (!job || (*job)->recipe.dims != exact.dims) continue;  // micro-batches have other gradients
      const auto measured = measure(*job, options, stop_);
      if (!measured) continue;
      row.error = rows_[i].error = gradient_error(*measured, *reference);
      TRY(keep(rows_[i]));
    }
    return {};
  }

  TuneSpace space_;
  const TuneOptions& options_;
  Store& store_;
  std::stop_token stop_;
  const std::function<void(const TuneProgress&)>& progress_;
  const TuneListener& on_row_;
  const std::string key_;
  std::int64_t start_ns_;  // of the preparation, then of the search
  CostModel model_;
  double step_per_kernels_ = 0;                 // time of the job's step / sum of its kernels
  double job_step_ns_ = 0;                      // as last measured
  std::map<std::string, Trial> known_;          // of earlier searches, by changes
  std::map<std::string, double> known_errors_;  // the same of gradients, by changes and plan
  std::int64_t taken_over_ = 0;
  std::vector<Row> rows_;  // the job first
};

}  // namespace

Interval trial_ratio(const Comparison& compared, double samples) {
  const double wider = compared.groups < kTrialGroups ? 1 + compared.noise : 1;
  const Interval& steps = compared.ratio;
  return {steps.value * samples, steps.low * samples / wider, steps.high * samples * wider};
}

std::string job_text(const Recipe& job) {
  Recipe plain = with_absolute_paths(job);
  plain.expect.reset();
  plain.steps = 0;
  return recipe_json(plain);
}

Result<Tuned> tune(const Recipe& job, const TuneOptions& options, Store& store, std::stop_token stop,
                   const std::function<void(const TuneProgress&)>& progress, const TuneListener& on_row) {
  TuneSpace space = TRY(TuneSpace::of(job, options.axes, stop));
  return Tuner(std::move(space), options, store, std::move(stop), progress, on_row).run();
}

}  // namespace gradloom
