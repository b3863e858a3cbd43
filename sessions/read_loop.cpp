// Reading what the thread of a recorded loop did.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/base/text.h"
#include "sessions/store.h"
#include "sessions/store_impl.h"

namespace gradloom {
namespace {

// Names differ at most so often: what is summed by name must not grow with the square of a file's rows.
constexpr std::size_t kMostLoopParts = 4096;

// Of which steps the numbers of a loop are (loop.h).
std::set<std::int64_t> counted_steps(const std::vector<StepRow>& steps, std::int64_t warmup) {
  const auto chosen = [&](bool timed, bool warm) {
    std::set<std::int64_t> found;
    for (const StepRow& row : steps)
      if ((row.timed || !timed) && (row.step > warmup || !warm)) found.insert(row.step);
    return found;
  };
  const bool any_timed = std::any_of(steps.begin(), steps.end(), [](const StepRow& r) { return r.timed; });
  std::set<std::int64_t> found = chosen(any_timed, true);
  return found.empty() ? chosen(any_timed, false) : found;
}

}  // namespace

Status Store::Impl::read_host_spans(std::int64_t run,
                                    const std::function<bool(std::vector<HostSpan>&)>& take) {
  if (TRY(version()) < 7) return {};
  Statement row =
      TRY(database.prepare("SELECT step, span, parent, kind, name, start_ns, duration_ns FROM host_span "
                           "WHERE run = ? ORDER BY step, span"));
  row.bind(1, run);
  std::vector<HostSpan> step;
  while (TRY(row.row())) {
    if (!step.empty() && row.integer(0) != step.front().step) {
      if (!take(step)) return {};
      step.clear();
    }
    const auto number = static_cast<std::int64_t>(step.size());
    const std::int64_t parent = row.is_null(2) ? -1 : row.integer(2);
    if (row.integer(1) != number || parent >= number || (number > 0 && parent < 0) || parent < -1)
      return misnumbered(run, "host_span");
    HostSpan span;
    span.step = row.integer(0);
    span.parent = static_cast<std::int32_t>(parent);
    span.kind = row.text(3);
    span.name = row.text(4);
    span.start_ns = clock_ns(row, 5);
    span.duration_ns = row.size(6);
    if (find_host_kind(span.kind) == nullptr)
      return Error{Errc::bad_input, fmt::format("run {} is damaged (a span of kind '{}')", run,
                                                escaped(span.kind.substr(0, 40)))};
    step.push_back(std::move(span));
  }
  if (!step.empty()) take(step);
  return {};
}

Status Store::Impl::read_loop(std::int64_t run, const std::vector<StepRow>& steps,
                              const std::vector<KernelRow>& kernels, std::optional<LoopShares>& loop) {
  const std::set<std::int64_t> counted = counted_steps(steps, TRY(last_warmup_step(run)));
  LoopSums sums;
  bool any = false;
  std::set<std::pair<std::string, std::string>> names;
  TRY(read_host_spans(run, [&](std::vector<HostSpan>& step) {
    any = true;
    for (HostSpan& span : step)
      if (names.size() < kMostLoopParts)
        names.emplace(span.kind, span.name);
      else if (names.count({span.kind, span.name}) == 0)
        span.name = "others";
    if (counted.count(step.front().step) != 0) sums.add(step);
    return true;
  }));
  double kernel_ns = 0;
  for (const KernelRow& kernel : kernels) kernel_ns += static_cast<double>(kernel.total_ns);
  if (any) loop = sums.shares(kernel_ns);
  return {};
}

Status Store::Impl::read_host_steps(std::int64_t run, std::size_t max_spans, TraceDocument& document) {
  std::set<std::int64_t> shown;
  for (const TraceStep& step : document.steps) shown.insert(step.step);
  const bool all = shown.empty();  // no step was timed kernel by kernel
  TRY(read_host_spans(run, [&](std::vector<HostSpan>& step) {
    if (document.host.size() + step.size() > max_spans) return false;
    const HostSpan& whole = step.front();
    if (!all && shown.count(whole.step) == 0) return true;
    if (all) document.steps.push_back({whole.step, whole.start_ns, whole.duration_ns});
    for (HostSpan& span : step) document.host.push_back(std::move(span));
    return true;
  }));
  return {};
}

}  // namespace gradloom
