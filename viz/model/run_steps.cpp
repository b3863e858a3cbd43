#include "viz/model/run_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "engine/base/text.h"
#include "sessions/stats.h"

namespace gradloom {
namespace {

constexpr double kSpreads = 5, kLeastPart = 0.1;
constexpr double kNormal = 1.4826;  // standard deviation / median distance, of a normal distribution

double band(const RunStepKind& kind) {
  return std::max(kSpreads * kind.spread_ns, kLeastPart * kind.median_ns);
}

RunStepKind kind_of(const std::vector<double>& ns) {
  RunStepKind kind;
  kind.steps = ns.size();
  kind.median_ns = median(ns);
  std::vector<double> distances;
  for (const double one : ns) distances.push_back(std::abs(one - kind.median_ns));
  kind.spread_ns = kNormal * median(std::move(distances));
  return kind;
}

// Of "--checkpoint-every 100" in a command line; 0: it says none.
std::int64_t checkpoint_every(std::string_view command) {
  constexpr std::string_view kFlag = " --checkpoint-every";
  const std::size_t at = command.find(kFlag);
  if (at == std::string_view::npos || at + kFlag.size() >= command.size()) return 0;
  command.remove_prefix(at + kFlag.size() + 1);  // a space, or =
  std::int64_t every = 0;
  std::from_chars(command.data(), command.data() + command.size(), every);
  return std::max<std::int64_t>(every, 0);
}

}  // namespace

double RunStepKind::slow_ns() const { return median_ns + band(*this); }
double RunStepKind::fast_ns() const { return median_ns - band(*this); }

RunSteps run_steps(const RunRecord& run) {
  RunSteps out;
  if (run.steps.empty()) return out;
  const std::int64_t first = run.steps.front().step, every = checkpoint_every(run.summary.command);
  std::vector<double> ns[2], all[2];
  for (const StepRow& row : run.steps) {
    all[row.timed].push_back(static_cast<double>(row.step_ns));
    if (row.step > run.summary.last_warmup_step()) ns[row.timed].push_back(all[row.timed].back());
  }
  out.untimed = kind_of(ns[0].empty() ? all[0] : ns[0]);
  out.timed = kind_of(ns[1].empty() ? all[1] : ns[1]);
  auto evaluation = run.evaluations.begin();
  for (const StepRow& row : run.steps) {
    RunStep s;
    s.step = row.step;
    s.ns = static_cast<double>(row.step_ns);
    s.loss = row.loss;
    s.timed = row.timed;
    s.first = row.step <= run.summary.last_warmup_step();
    s.skipped = row.skipped > 0;
    s.checkpoint = every > 0 && row.step > first && (row.step - 1) % every == 0;
    while (evaluation != run.evaluations.end() && evaluation->step < row.step - 1) ++evaluation;
    if (evaluation != run.evaluations.end() && evaluation->step == row.step - 1)
      s.evaluation_ns = static_cast<double>(evaluation->eval_ns);
    const RunStepKind& kind = out.kind_of(s);
    s.ratio = kind.median_ns > 0 ? s.ns / kind.median_ns : 1;
    s.stands_out = s.ns > kind.slow_ns() ? 1 : s.ns < kind.fast_ns() ? -1 : 0;
    out.slow += s.stands_out > 0 ? 1 : 0;
    out.fast += s.stands_out < 0 ? 1 : 0;
    out.steps.push_back(s);
  }
  return out;
}

std::vector<std::string> known_causes(const RunStep& step) {
  std::vector<std::string> causes;
  if (step.first) causes.emplace_back("one of the first steps");
  if (step.skipped) causes.emplace_back("skipped by loss scaling");
  if (step.evaluation_ns >= 0)
    causes.push_back("after an evaluation of " + duration_text(step.evaluation_ns));
  if (step.checkpoint) causes.emplace_back("after a checkpoint was due");
  return causes;
}

std::string outliers_text(const RunSteps& steps) {
  const auto rule = [](const RunStepKind& kind) {
    return fmt::format("{:.0f} spreads of {}, and {:.0f} %, from the median of {}", kSpreads,
                       duration_text(kind.spread_ns), 100 * kLeastPart, duration_text(kind.median_ns));
  };
  const std::size_t found = steps.slow + steps.fast;
  std::string text = fmt::format("{} of {} {} out: more than ", found == 0 ? "none" : std::to_string(found),
                                 plural_text(static_cast<std::int64_t>(steps.steps.size()), "step"),
                                 found == 1 || found == 0 ? "stands" : "stand");
  text += rule(steps.untimed.steps > 0 ? steps.untimed : steps.timed);
  if (steps.untimed.steps > 0 && steps.timed.steps > 0) text += "; timed ones: " + rule(steps.timed);
  return text;
}

std::vector<StepColumn> step_columns(const RunSteps& steps, std::size_t columns) {
  std::vector<StepColumn> out;
  const std::size_t n = steps.steps.size();
  columns = std::min(columns, n);
  for (std::size_t c = 0; c < columns; ++c) {
    StepColumn column;
    column.first = c * n / columns;
    column.last = (c + 1) * n / columns - 1;
    column.longest = column.first;
    for (std::size_t i = column.first; i <= column.last; ++i) {
      const RunStep& s = steps.steps[i];
      if (s.ns > steps.steps[column.longest].ns) column.longest = i;
      column.timed |= s.timed;
      column.evaluation |= s.evaluation_ns >= 0;
    }
    out.push_back(column);
  }
  return out;
}

}  // namespace gradloom
