#include "app/last_good.h"

#include <algorithm>
#include <cstdint>
#include <new>

#include "app/model_summary.h"
#include "engine/base/text.h"

namespace gradloom {

constexpr std::int64_t kShare = 100;  // a copy may take this part of the time between two

LastGood::LastGood(Job& job, std::int64_t apart_ns)
    : job_(job), apart_ns_(apart_ns), last_ns_(monotonic_ns()), pause_ns_(apart_ns) {}

bool LastGood::due() const { return monotonic_ns() - last_ns_ >= pause_ns_; }

bool LastGood::finite(const std::map<std::string, Tensor>& parameters) {
  const Graph& graph = job_.compiled().train.graph;
  if (!looked_)
    for (const ValueId id : graph.parameters)
      if (const Value& v = graph.values[id]; v.data.defined() && any_not_finite(v.data))
        never_finite_.insert(v.name);
  looked_ = true;
  return std::none_of(parameters.begin(), parameters.end(), [&](const auto& named) {
    return never_finite_.count(named.first) == 0 && any_not_finite(named.second);
  });
}

Status LastGood::keep(std::int64_t step) {
  const std::int64_t start_ns = monotonic_ns();
  try {
    if (finite(TRY(job_.parameters()))) {
      states_ = TRY(job_.executor().states());
      step_ = step;
    }
  } catch (const std::bad_alloc&) {
    pause_ns_ = INT64_MAX;  // no memory for copies: what is found again takes longer
    return {};
  }
  last_ns_ = monotonic_ns();
  pause_ns_ = std::max(apart_ns_, kShare * (last_ns_ - start_ns));
  return {};
}

Result<LastGood::Found> LastGood::before(std::int64_t failed, const std::stop_token& stop) {
  while (job_.pending() > 0) TRY(job_.collect());
  TRY(states_.empty() ? job_.executor().reset() : job_.executor().restore(states_));
  Found found{step_, TRY(job_.parameters())};
  for (std::int64_t step = step_ + 1; step < failed && !stop.stop_requested(); ++step) {
    TRY(job_.step(step));
    std::map<std::string, Tensor> parameters = TRY(job_.parameters());
    if (!finite(parameters)) break;
    found = {step, std::move(parameters)};
  }
  return found;
}

}  // namespace gradloom
