// Comparisons: the interleaved protocol, stored runs, matching of kernels by provenance.
// JSON and text are in compare_text.cpp.
#include "sessions/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "engine/base/text.h"
#include "profiler/environment.h"
#include "sessions/store.h"

namespace gradloom {
namespace {

constexpr double kEarlyConfidence = 0.995;
constexpr double kBlockNs = 50e6;
constexpr double kMinMeasuredNs = 0.5e9;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One kernel of one side with what it took in each timed step.
struct TimedKernel {
  const KernelInfo* info = nullptr;
  std::int64_t launches = 0;  // per step
  std::vector<double> ns;     // by timed step
};

// "copy, stream 1 (upload)"; "CPU launches".
std::string stream_row(const std::string& kind, std::int32_t stream) {
  return stream < 0 ? stream_name(stream) : kind + ", " + stream_name(stream);
}

using Losses = std::vector<std::pair<std::int64_t, double>>;  // by step, in order

struct Side {
  Resident* resident = nullptr;
  std::int64_t next_step = 1;
  std::vector<double> step_ns;
  Losses losses;
  std::vector<TimedKernel> kernels;
  std::map<std::string, TimedKernel> streams;  // GPUs: by the name of the row
  double measured_ns = 0;

  Result<Block> run(std::int64_t steps, bool timed) {
    Block block = TRY(resident->run(next_step, steps, timed));
    if (static_cast<std::int64_t>(block.step_ns.size()) != steps ||
        static_cast<std::int64_t>(block.losses.size()) != steps) {
      return Error{Errc::bug, resident->name + ": a block returned another number of steps"};
    }
    for (const double loss : block.losses) losses.emplace_back(next_step++, loss);
    return block;
  }
  // Runs an untimed block; its median step time.
  Result<double> measure(std::int64_t steps) {
    const Block block = TRY(run(steps, false));
    const std::vector<double> times(block.step_ns.begin(), block.step_ns.end());
    step_ns.insert(step_ns.end(), times.begin(), times.end());
    measured_ns += std::accumulate(times.begin(), times.end(), 0.0);
    return std::max(1.0, median(times));
  }
  // Runs a block kernel by kernel.
  Status time_kernels(std::int64_t steps) {
    const Block block = TRY(run(steps, true));
    if (kernels.empty()) {
      for (const KernelInfo& info : resident->kernels) kernels.push_back({&info, 0, {}});
    }
    const std::size_t per_step = block.samples.size() / static_cast<std::size_t>(steps);
    for (std::int64_t s = 0; s < steps; ++s) {
      for (TimedKernel& kernel : kernels) {
        kernel.ns.push_back(0);
        kernel.launches = 0;
      }
      for (std::size_t i = 0; i < per_step; ++i) {
        const KernelSample& sample = block.samples[static_cast<std::size_t>(s) * per_step + i];
        if (sample.plan_step < 0 || static_cast<std::size_t>(sample.plan_step) >= kernels.size()) continue;
        TimedKernel& kernel = kernels[static_cast<std::size_t>(sample.plan_step)];
        kernel.ns.back() += static_cast<double>(sample.duration_ns);
        ++kernel.launches;
      }
      if (static_cast<std::size_t>(s) < block.activities.size())
        time_streams(block, static_cast<std::size_t>(s), per_step);
    }
    return {};
  }
  // The last timed step, by stream; its kernels are already added up.
  void time_streams(const Block& block, std::size_t step, std::size_t per_step) {
    for (auto& [name, row] : streams) row.launches = 0;
    const std::size_t timed = kernels.empty() ? 0 : kernels.front().ns.size();
    const auto add = [&](Activity::Kind kind, std::int32_t stream, std::int64_t duration_ns) {
      TimedKernel& row = streams[stream_row(activity_name(kind), stream)];
      row.ns.resize(timed);
      row.ns.back() += static_cast<double>(duration_ns);
      ++row.launches;
    };
    for (std::size_t i = step * per_step; i < (step + 1) * per_step; ++i) {
      const KernelSample& sample = block.samples[i];
      const bool known = sample.plan_step >= 0 && static_cast<std::size_t>(sample.plan_step) < kernels.size();
      add(Activity::Kind::kernel,
          known ? kernels[static_cast<std::size_t>(sample.plan_step)].info->stream : 0, sample.duration_ns);
    }
    for (const Activity& activity : block.activities[step]) {
      const TraceActivity row = trace_activity(activity, 0);
      add(row.kind, row.stream, row.duration_ns);
    }
    for (auto& [name, row] : streams) row.ns.resize(timed);
  }
};

void compare_loss(std::int64_t step, double a, double b, Comparison& result) {
  const bool equal = a == b || (std::isnan(a) && std::isnan(b));
  if (equal) return;
  if (result.first_different_step == 0) result.first_different_step = step;
  const double difference = std::abs(a - b);
  if (std::isnan(difference) || std::isnan(result.max_loss_difference)) {
    result.max_loss_difference = result.max_relative_loss_difference = kNan;
    return;
  }
  result.max_loss_difference = std::max(result.max_loss_difference, difference);
  const double relative = std::isinf(difference) ? difference : difference / std::max(std::abs(a), 1e-12);
  result.max_relative_loss_difference = std::max(result.max_relative_loss_difference, relative);
}

// Of the steps that both have: a run that went on from a checkpoint begins with a later one.
void compare_losses(const Losses& a, const Losses& b, Comparison& result) {
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (x->first != y->first) {
      ++(x->first < y->first ? x : y);
      continue;
    }
    ++result.steps;
    compare_loss(x->first, x->second, y->second, result);
    ++x;
    ++y;
  }
  if (result.steps == 0) result.max_loss_difference = result.max_relative_loss_difference = kNan;
}

// The loss belongs to the forward pass: fusions move work between the two.
std::string table_phase(const std::string& phase) { return phase == "loss" ? "forward" : phase; }

// Groups of ONNX nodes such that every kernel of either side lies in one group:
// union-find over (phase, node).
class Provenance {
 public:
  void add(const KernelInfo& kernel) {
    const std::string phase = table_phase(kernel.phase);
    const std::size_t first = id(phase, kernel.onnx_nodes.empty() ? "" : kernel.onnx_nodes[0]);
    for (const std::string& node : kernel.onnx_nodes) parent_[root(id(phase, node))] = root(first);
  }
  std::size_t group(const KernelInfo& kernel) {
    return root(id(table_phase(kernel.phase), kernel.onnx_nodes.empty() ? "" : kernel.onnx_nodes[0]));
  }
  // What each group is called: its first three ONNX nodes.
  std::map<std::size_t, std::string> names() {
    std::map<std::size_t, std::string> texts;
    std::map<std::size_t, int> counts;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const std::size_t group = root(i);
      std::string& text = texts[group];
      if (++counts[group] > 3) continue;
      text += (text.empty() ? "" : " + ") +
              (keys_[i].second.empty() ? "(" + keys_[i].first + ")" : keys_[i].second);
    }
    for (const auto& [group, count] : counts)
      if (count > 3) texts[group] += " + " + std::to_string(count - 3) + " more";
    return texts;
  }

 private:
  std::size_t id(const std::string& phase, const std::string& node) {
    const auto [at, fresh] = ids_.try_emplace({phase, node}, keys_.size());
    if (fresh) {
      keys_.push_back(at->first);
      parent_.push_back(parent_.size());
    }
    return at->second;
  }
  std::size_t root(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  std::map<std::pair<std::string, std::string>, std::size_t> ids_;
  std::vector<std::pair<std::string, std::string>> keys_;
  std::vector<std::size_t> parent_;
};

// Sums the kernels of both sides into rows by key; medians and p-values over the timed steps.
class Table {
 public:
  explicit Table(bool name_nodes) : name_nodes_(name_nodes) {}
  void add(const std::string& key, const std::string& name, const std::string& phase,
           const TimedKernel& kernel, bool is_b) {
    const auto [at, fresh] = rows_.try_emplace(key);
    Sums& sums = at->second;
    if (fresh) sums.row.name = name, sums.row.phase = phase;
    (is_b ? sums.row.b_kernels : sums.row.a_kernels) += kernel.launches;
    std::vector<double>& total = is_b ? sums.b : sums.a;
    total.resize(std::max(total.size(), kernel.ns.size()));
    for (std::size_t i = 0; i < kernel.ns.size(); ++i) total[i] += kernel.ns[i];
    if (!name_nodes_) return;  // a phase is its name, a stream has no nodes
    sums.nodes.insert(kernel.info->onnx_nodes.begin(), kernel.info->onnx_nodes.end());
    if (kernel.info->onnx_nodes.empty()) sums.nodes.insert(kernel.info->node);
  }
  std::vector<ComparedRow> finish() {
    std::vector<ComparedRow> rows;
    std::vector<double> p_values;
    std::vector<std::size_t> tested;
    for (auto& [key, sums] : rows_) {
      sums.row.a_ns = median(sums.a);
      sums.row.b_ns = median(sums.b);
      if (sums.a.size() > 1 && sums.b.size() > 1) {
        tested.push_back(rows.size());
        p_values.push_back(mann_whitney_p(sums.a, sums.b));
      }
      sums.row.nodes.assign(sums.nodes.begin(), sums.nodes.end());
      rows.push_back(sums.row);
    }
    const std::vector<double> adjusted = holm(p_values);
    for (std::size_t i = 0; i < tested.size(); ++i) rows[tested[i]].p = adjusted[i];
    std::stable_sort(rows.begin(), rows.end(), [](const ComparedRow& x, const ComparedRow& y) {
      return std::abs(x.a_ns - x.b_ns) > std::abs(y.a_ns - y.b_ns);
    });
    return rows;
  }

 private:
  struct Sums {
    ComparedRow row;
    std::vector<double> a, b;
    std::set<std::string> nodes;
  };
  bool name_nodes_;
  std::map<std::string, Sums> rows_;
};

// Modules of two runs that name them in different detail.
class CommonScopes {
 public:
  CommonScopes(const std::vector<TimedKernel>& a, const std::vector<TimedKernel>& b) {
    const std::vector<TimedKernel>* const sides[2] = {&a, &b};
    for (int side = 0; side < 2; ++side)
      for (const TimedKernel& kernel : *sides[side]) add(kernel.info->scope, side);
  }
  // The innermost module around it that both have; empty: there is none.
  std::string of(std::string scope) const {
    while (!scope.empty()) {
      const auto at = sides_.find(scope);
      if (at != sides_.end() && at->second == 3) return scope;
      scope = outer(scope);
    }
    return scope;
  }

 private:
  static std::string outer(const std::string& scope) {
    const std::size_t slash = scope.rfind('/');
    return slash == std::string::npos ? "" : scope.substr(0, slash);
  }
  void add(std::string scope, int side) {
    for (; !scope.empty(); scope = outer(scope)) {
      int& sides = sides_[scope];
      if ((sides & (1 << side)) != 0) return;  // and all around it
      sides |= 1 << side;
    }
  }
  std::map<std::string, int> sides_;  // bit 0: A has it, bit 1: B
};

void fill_by_scope(const std::vector<TimedKernel>& a, const std::vector<TimedKernel>& b, Comparison& result) {
  const CommonScopes common(a, b);
  Table kernels(true), phases(false), scopes(true);
  for (const auto* side : {&a, &b}) {
    for (const TimedKernel& kernel : *side) {
      const std::string phase = table_phase(kernel.info->phase), scope = common.of(kernel.info->scope);
      const std::string name = scope.empty() ? "(no module)" : scope;
      kernels.add(name + '\0' + phase, name, phase, kernel, side == &b);
      phases.add(phase, phase, phase, kernel, side == &b);
      scopes.add(name, name, "", kernel, side == &b);
    }
  }
  result.by_scope = true;
  result.kernels = kernels.finish();
  result.phases = phases.finish();
  result.scopes = scopes.finish();
}

void fill_tables(const std::vector<TimedKernel>& a, const std::vector<TimedKernel>& b, Comparison& result) {
  Provenance provenance;
  for (const auto* side : {&a, &b}) {
    for (const TimedKernel& kernel : *side) provenance.add(*kernel.info);
  }
  const std::map<std::size_t, std::string> names = provenance.names();
  Table kernels(true), phases(false), scopes(true);
  for (const auto* side : {&a, &b}) {
    for (const TimedKernel& kernel : *side) {
      const std::string phase = table_phase(kernel.info->phase);
      const std::size_t group = provenance.group(*kernel.info);
      kernels.add(std::to_string(group), names.at(group), phase, kernel, side == &b);
      phases.add(phase, phase, phase, kernel, side == &b);
      const std::string scope = kernel.info->scope.empty() ? "(" + phase + ")" : kernel.info->scope;
      scopes.add(scope, scope, "", kernel, side == &b);
    }
  }
  result.kernels = kernels.finish();
  result.phases = phases.finish();
  result.scopes = scopes.finish();
}

void fill_streams(const std::map<std::string, TimedKernel>& a, const std::map<std::string, TimedKernel>& b,
                  Comparison& result) {
  Table streams(false);
  for (const auto* side : {&a, &b}) {
    for (const auto& [name, row] : *side) streams.add(name, name, "", row, side == &b);
  }
  result.streams = streams.finish();
}

// How far A against A (and B against B) may be from 1 by chance: the far end of the
// interval of their median ratio.
double noise_of(const std::vector<double>& own_ratios) {
  const Interval own = bootstrap_median(own_ratios);
  return std::max(std::abs(own.low - 1), std::abs(own.high - 1));
}

// What may be different between two stored runs beside what is compared.
std::string stored_note(const RunSummary& a, const RunSummary& b, bool foreign) {
  std::string note =
      foreign ? "runs of other programs may have had other data, precision and machines, and a profiler "
                "slows the steps that it records"
              : "the runs were made one after the other: load and clock of the machine may have "
                "changed between them";
  if (a.model_hash == b.model_hash) return note;
  const bool unknown = foreign && (a.model_hash.empty() || b.model_hash.empty());
  return note + (unknown ? "; the model of one is not known" : "; they are of different models");
}

// Four blocks, ABBA or BAAB, that end `seconds()` after the beginning.
Result<ComparedGroup> measure_group(Side (&sides)[2], bool b_first, std::int64_t block_steps,
                                    std::stop_token stop, const std::function<double()>& seconds) {
  const std::vector<int> order = b_first ? std::vector<int>{1, 0, 0, 1} : std::vector<int>{0, 1, 1, 0};
  std::vector<double> times[2];
  for (const int which : order) {
    if (stop.stop_requested()) return Error{Errc::interrupted, "comparison interrupted"};
    times[which].push_back(TRY(sides[which].measure(block_steps)));
  }
  return ComparedGroup{seconds(), {times[0][0], times[0][1]}, {times[1][0], times[1][1]}};
}

}  // namespace

Result<Comparison> compare_interleaved(Resident& a, Resident& b, const CompareOptions& options,
                                       std::stop_token stop,
                                       const std::function<void(const CompareProgress&)>& progress) {
  const std::int64_t start_ns = monotonic_ns();
  const auto seconds = [&] { return static_cast<double>(monotonic_ns() - start_ns) * 1e-9; };
  Comparison result;
  result.a = a.name;
  result.b = b.name;
  Side sides[2] = {{&a}, {&b}};

  double slowest_ns = 1;
  for (Side& side : sides) {
    const Block block = TRY(side.run(std::max<std::int64_t>(1, options.warmup_steps), false));
    slowest_ns = std::max(slowest_ns, static_cast<double>(block.step_ns.back()));
  }
  const std::int64_t block_steps =
      options.block_steps > 0 ? options.block_steps
                              : std::clamp<std::int64_t>(std::llround(kBlockNs / slowest_ns), 1, 1000);
  result.block_steps = block_steps;

  std::vector<double> ratios, own_ratios;
  std::int64_t next_look = std::max<std::int64_t>(2, options.min_groups);
  bool looked = false;
  for (bool decided = false; !decided;) {
    const ComparedGroup group = TRY(measure_group(sides, result.groups % 2 == 1, block_steps, stop, seconds));
    ++result.groups;
    result.measured.push_back(group);
    ratios.push_back(group.ratio());
    // One side first to second, the other second to first: steady drift of the machine cancels here too.
    own_ratios.push_back(group.a_ns[0] / group.a_ns[1]);
    own_ratios.push_back(group.b_ns[1] / group.b_ns[0]);

    const bool time_up = seconds() >= options.max_seconds;
    const bool enough = std::min(sides[0].measured_ns, sides[1].measured_ns) >= kMinMeasuredNs;
    if (time_up || (result.groups >= next_look && enough)) {
      result.noise = noise_of(own_ratios);
      result.ratio = bootstrap_median(ratios);
      looked = true;
      const bool certain =
          decide(bootstrap_median(ratios, kEarlyConfidence), result.noise) != Verdict::unsure;
      decided = time_up || certain;
      // Few groups say nothing, whatever their interval.
      if (decided && result.groups >= std::min<std::int64_t>(6, options.min_groups))
        result.verdict = decide(result.ratio, result.noise);
      if (time_up && result.groups < options.min_groups)
        result.note = "stopped by the time limit after few blocks";
      next_look = result.groups + std::max<std::int64_t>(2, result.groups / 4);
    }
    if (!progress) continue;
    CompareProgress now{seconds(), std::min(1.0, seconds() / options.max_seconds), group, {}};
    if (looked) now.ratio = result.ratio;
    progress(now);
  }

  const std::int64_t half = std::max<std::int64_t>(1, options.timed_steps / 2);
  for (const int which : {0, 1, 1, 0}) {
    if (options.timed_steps <= 0) break;
    if (stop.stop_requested()) return Error{Errc::interrupted, "comparison interrupted"};
    TRY(sides[which].time_kernels(half));
  }
  fill_tables(sides[0].kernels, sides[1].kernels, result);
  fill_streams(sides[0].streams, sides[1].streams, result);
  result.a_step_ns = median(sides[0].step_ns);
  result.b_step_ns = median(sides[1].step_ns);
  compare_losses(sides[0].losses, sides[1].losses, result);
  result.seconds = seconds();
  return result;
}

Result<Comparison> compare_runs(const RunRecord& a, const RunRecord& b) {
  Comparison result;
  const auto name = [](const RunRecord& run) {
    return run.summary.name.empty() ? "run " + std::to_string(run.summary.id) : run.summary.name;
  };
  result.a = name(a);
  result.b = name(b);
  result.interleaved = false;
  const bool foreign = a.summary.is_import() || b.summary.is_import();
  result.note = stored_note(a.summary, b.summary, foreign);

  std::vector<double> times[2];
  Losses losses[2];
  std::vector<TimedKernel> kernels[2];
  const RunRecord* const runs[2] = {&a, &b};
  for (int side = 0; side < 2; ++side) {
    for (const StepRow& step : runs[side]->steps) {
      if (runs[side]->summary.has_loss()) losses[side].emplace_back(step.step, step.loss);
      if (step.step > runs[side]->summary.last_warmup_step() && !step.timed)
        times[side].push_back(static_cast<double>(step.step_ns));
    }
    if (times[side].empty()) {
      for (const StepRow& step : runs[side]->steps) times[side].push_back(static_cast<double>(step.step_ns));
    }
    if (times[side].empty()) return Error{Errc::bad_input, name(*runs[side]) + " has no steps"};
    for (const KernelRow& row : runs[side]->kernels) {
      kernels[side].push_back({&row.info, row.launches(), {static_cast<double>(row.step_ns)}});
    }
  }
  result.ratio = bootstrap_ratio(times[0], times[1]);
  // Each run against itself, even against odd steps, stands for A against A.
  std::vector<double> own;
  for (const std::vector<double>& side : times) {
    for (std::size_t i = 0; i + 1 < side.size(); i += 2)
      own.push_back(side[i + 1] > 0 ? side[i] / side[i + 1] : 1);
  }
  result.noise = own.empty() ? HUGE_VAL : noise_of(own);
  const bool enough = times[0].size() >= 10 && times[1].size() >= 10;
  result.verdict = enough ? decide(result.ratio, result.noise) : Verdict::unsure;
  if (!enough) result.note += "; fewer than 10 steps";
  result.a_step_ns = median(times[0]);
  result.b_step_ns = median(times[1]);
  result.groups = static_cast<std::int64_t>(std::min(times[0].size(), times[1].size()));
  result.block_steps = 1;
  compare_losses(losses[0], losses[1], result);
  if (foreign)
    fill_by_scope(kernels[0], kernels[1], result);
  else
    fill_tables(kernels[0], kernels[1], result);
  std::map<std::string, TimedKernel> streams[2];
  for (int side = 0; side < 2; ++side) {
    for (const StreamRow& row : runs[side]->streams) {
      const auto steps = static_cast<double>(row.ns.size());
      const std::int64_t launches = std::llround(static_cast<double>(row.count) / std::max(1.0, steps));
      streams[side][stream_row(row.kind, row.stream)] = {
          nullptr, launches, {median(row.ns)}};  // no test: the runs are not interleaved
    }
    if (!runs[side]->has_times()) result.note += "; " + name(*runs[side]) + " was not timed kernel by kernel";
    const std::string disturbed = gpu_disturbances(runs[side]->environment);
    if (!disturbed.empty()) result.note += "; " + name(*runs[side]) + ": " + disturbed;
  }
  fill_streams(streams[0], streams[1], result);
  return result;
}

}  // namespace gradloom
