// Runs a plan step by step on a device. All tensor memory is taken once in `create`.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/train/train_graph.h"

namespace gradloom {

// One timed kernel execution: indices into Plan::steps, monotonic clock.
struct KernelSample {
  std::int32_t plan_step = 0;
  std::int32_t micro = 0;
  std::int64_t start_ns = 0, duration_ns = 0;
};

struct StepOptions {
  std::int64_t step = 1;                          // 1-based; feeds Graph hyper input and random numbers
  double lr = 0;
  std::uint64_t seed = 0;
  std::int64_t micro_batches = 1;
  std::vector<KernelSample>* samples = nullptr;   // timed when set; capacity must have been reserved
};

class Executor {
 public:
  // Keeps references to graph and plan: they must outlive the executor.
  static Result<std::unique_ptr<Executor>> create(const Graph& graph, const Plan& plan, Device& device);
  ~Executor();

  Status feed(ValueId input, const Tensor& data);                       // type-checked
  // Runs one optimizer step. `feed_micro(k)` is called before micro-batch k to feed its inputs (may be empty).
  Status step(const StepNames& names, const StepOptions& options, const std::function<Status(std::int64_t)>& feed_micro);
  Status run_forward(std::uint64_t seed = 0, std::uint64_t step = 0);   // all steps once, without hyper inputs (check, evaluation)

  Result<Tensor> read(ValueId value) const;                             // any materialized value (outputs and states always are)
  Status write(ValueId state, const Tensor& data);
  Result<double> read_scalar(ValueId value) const;
  Status reset();                                                       // states back to their initial contents
  void poison();                                                        // fills the arena with NaN bytes (tests)
  std::int64_t measured_peak_bytes() const;                             // bytes really taken from the device

 private:
  struct Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradloom
