#include "engine/run/step_results.h"

#include <algorithm>
#include <cstring>

namespace gradloom {
namespace {

constexpr double StepOutcome::*kReported[StepNames::kReported.size()] = {
    &StepOutcome::loss, &StepOutcome::grad_norm, &StepOutcome::loss_scale, &StepOutcome::skipped};

double scalar(DType type, const void* from) {
  double f64 = 0;
  float f32 = 0;
  switch (type) {
    case DType::f64: std::memcpy(&f64, from, sizeof f64); return f64;
    case DType::f32: std::memcpy(&f32, from, sizeof f32); return static_cast<double>(f32);
    default: {
      Tensor t(type, {});
      std::memcpy(t.mutable_data(), from, t.bytes());
      return t.at(0);
    }
  }
}

}  // namespace

StepResults::~StepResults() {
  if (results_) device_.release(results_);
}

Status StepResults::allocate() {
  if (!queued_) return {};
  results_ =
      static_cast<std::byte*>(TRY(device_.allocate(kOutcomes * kScalars * kScalarBytes, Memory::pinned)));
  return {};
}

Status StepResults::push(const StepNames& names, StepOutcome outcome) {
  Pending next;
  next.outcome = std::move(outcome);
  TRY(fetch(names, next));
  next.done = TRY(device_.fence());
  pending_.push_back(std::move(next));
  return {};
}

Status StepResults::fetch(const StepNames& names, Pending& p) {
  p.result = next_result_++ % kOutcomes;
  for (std::size_t i = 0; i < kScalars; ++i) {
    const ValueId id = names.*StepNames::kReported[i];
    const void* const from = blocks_.address(id);
    if (from == nullptr) continue;
    p.scalars[i] = &graph_.values[id];
    if (queued_)
      TRY(device_.copy(Queue::compute, result_address(p, i), from, byte_size(p.scalars[i]->type)));
    else
      p.outcome.*kReported[i] = scalar(p.scalars[i]->type.dtype, from);
  }
  return {};
}

Status StepResults::finish(Pending& p) {
  if (p.finished) return {};
  p.outcome.end_ns = TRY(device_.wait(p.done));
  for (std::size_t i = 0; queued_ && i < kScalars; ++i)
    if (p.scalars[i] != nullptr)
      p.outcome.*kReported[i] = scalar(p.scalars[i]->type.dtype, result_address(p, i));
  p.outcome.start_ns = std::max(p.outcome.start_ns, last_end_ns_);
  // The device's clock and the host's agree within a microsecond.
  p.outcome.end_ns = std::max(p.outcome.end_ns, p.outcome.start_ns);
  last_end_ns_ = p.outcome.end_ns;
  p.finished = true;
  return {};
}

Status StepResults::finish_all() {
  for (Pending& p : pending_) TRY(finish(p));
  return {};
}

Result<StepOutcome> StepResults::pop() {
  TRY(finish(pending_.front()));
  StepOutcome outcome = std::move(pending_.front().outcome);
  pending_.pop_front();
  return outcome;
}

}  // namespace gradloom
