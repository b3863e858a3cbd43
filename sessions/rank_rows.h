// The ranks of a run of several: who they are, what each did in the steps that were timed kernel by kernel, and how their times
// add up. Times are on rank 0's clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/run/executor.h"

namespace gradloom {

struct RankRow {
  std::int64_t rank = 0;
  std::string host;  // name of its machine
  std::int64_t local_rank = 0, threads = 0;
  std::string cpu_model;
  std::int64_t clock_offset_ns = 0, clock_error_ns = 0;  // against rank 0's, when the run began
  std::map<std::string, std::string> environment;        // as a run's (RunRecord); of rank 0 it is the run's
};

// An exchange between the ranks, as one took part in it.
struct ExchangeRow {
  std::int64_t rank = 0;
  std::int32_t micro = 0, plan_step = 0;       // of the kernel that made or began it
  std::int64_t start_ns = 0, duration_ns = 0;  // from when this rank was ready to its end
  std::int64_t wait_ns = 0;                    // of it, until the last rank was ready
  std::int64_t sent_bytes = 0;
};

// One timed step of all ranks; rank 0's kernels are where those of any run are.
struct RankStep {
  std::vector<std::pair<std::int64_t, KernelSample>> samples;  // with their rank
  std::vector<ExchangeRow> exchanges;
};

// The exchanges of a step wait for the rank that is ready last: sets `wait_ns` of all. Rows of one micro-batch and plan step are one
// exchange.
void set_waits(std::vector<ExchangeRow>& exchanges);

// What one rank does in a timed step: medians over the steps.
struct RankShares {
  RankRow rank;
  std::int64_t steps = 0;
  double kernels_ns = 0;                // of all that compute
  double exchange_ns = 0, wait_ns = 0;  // of all exchanges; of that, until the last rank was ready
  double exposed_ns = 0;                // that its kernels stood still for exchanges
  double sent_bytes = 0;
  double transfer_ns() const { return exchange_ns - wait_ns; }
  double hidden() const { return exchange_ns > 0 ? 1 - exposed_ns / exchange_ns : 0; }
};
// "rank 1 computes longest (12.1 ms of 14.0 ms): rank 0 waits 1.9 ms a step for it"; empty: no rank waits 2 % of a step.
std::string slowest_text(const std::vector<RankShares>& ranks);
// "rank 1 has another isa than rank 0: x86-64-v3, not x86-64-v4": of what makes numbers or times differ, the first few. `first`: rank 0's environment.
std::vector<std::string> other_environments(const std::map<std::string, std::string>& first,
                                            const std::vector<RankShares>& ranks);
// "means are added as a tree"; empty: in the order of the ranks, or the run has no recipe.
std::string reduce_text(const std::string& recipe_json);

}  // namespace gradloom
