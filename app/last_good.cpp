#include "app/last_good.h"

#include <algorithm>
#include <cstdint>
#include <new>

#include "app/ranks.h"
#include "engine/base/text.h"

namespace gradloom {

constexpr std::int64_t kShare = 100;  // a copy may take this part of the time between two

LastGood::LastGood(Job& job, std::int64_t apart_ns)
    : job_(job),
      finite_(job.compiled().train.graph),
      apart_ns_(apart_ns),
      last_ns_(monotonic_ns()),
      pause_ns_(apart_ns),
      step_(job.steps_before()) {}

std::map<std::string, Tensor> copied(std::map<std::string, Tensor> views) {
  for (auto& [name, tensor] : views) tensor.mutable_data();  // a view shares its memory, so this makes a copy
  return views;
}

bool LastGood::due() const { return monotonic_ns() - last_ns_ >= pause_ns_; }

Status LastGood::keep(std::int64_t step) {
  const std::int64_t start_ns = monotonic_ns();
  try {
    if (TRY(finite_.finite(TRY(job_.parameter_views())))) {
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

Status LastGood::agree() {
  const std::vector<std::int64_t> steps = TRY(of_all_ranks(step_));
  if (std::all_of(steps.begin(), steps.end(), [&](std::int64_t step) { return step == step_; })) return {};
  states_.clear();
  step_ = job_.steps_before();
  return {};
}

Status LastGood::go_back_to(std::int64_t step, const std::stop_token& stop) {
  while (job_.pending() > 0) TRY(job_.collect());
  if (states_.empty() && job_.uses_callers_memory())
    return Error{Errc::usage, "the parameters that training began with are in the caller's memory no more"};
  TRY(states_.empty() ? job_.executor().reset() : job_.executor().restore(states_));
  for (std::int64_t next = step_ + 1; next <= step; ++next) {
    if (TRY(on_any_rank(stop.stop_requested()))) return Error{Errc::interrupted, "interrupted"};
    TRY(job_.step(next));
  }
  return {};
}

Result<LastGood::Found> LastGood::before(std::int64_t failed, const std::stop_token& stop) {
  TRY(go_back_to(step_, stop));
  Found found{step_, copied(TRY(job_.result_views()))};
  for (std::int64_t step = step_ + 1; step < failed; ++step) {
    if (TRY(on_any_rank(stop.stop_requested()))) break;
    if (const auto made = job_.step(step); !made) break;  // batches of a caller are there no more
    TRY(gather_parameters(job_));
    if (!TRY(on_all_ranks(TRY(finite_.finite(TRY(job_.parameter_views())))))) break;
    found = {step, copied(TRY(job_.result_views()))};
  }
  return found;
}

}  // namespace gradloom
