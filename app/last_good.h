// The way back to the parameters before a step that went wrong.
//
// Where the loss is NaN the parameters are lost too: the step's update has spread it, or the one before left
// numbers that the next forward pass overflows on. Training is repeatable bit for bit, so the parameters
// before are found again by running the steps once more: from the start, or from a copy of all states that is
// taken now and then. A copy costs memory as large as the states, and at most 1 % of the time. The start is
// in the model's file, which must not have been written over since (a new file under its name is no harm).
//
// Several ranks go back together: all take copies after the same step, and all call what goes back. A copy that one of them has
// no memory for is none, and a stop that one of them was asked for is one of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "app/finite_parameters.h"
#include "app/job.h"

namespace gradloom {

// Tensors of their own instead of views.
std::map<std::string, Tensor> copied(std::map<std::string, Tensor> views);

class LastGood {
 public:
  // `apart_ns`: between two copies at least; also the time that finding may take.
  explicit LastGood(Job& job, std::int64_t apart_ns = 10'000'000'000);
  bool due() const;  // a copy should be taken after this step: let nothing be pending then
  // Takes it after `step`, unless a parameter is not finite. REQUIRES nothing pending.
  Status keep(std::int64_t step);

  struct Found {
    std::int64_t step = 0;  // the parameters are those after this step; 0: the model's own
    std::map<std::string, Tensor> parameters;
  };
  // After the latest step before `failed` that left only finite numbers. A requested stop, and a step that cannot be made
  // again, end the search with what is found by then. The job's states are those of a step before afterwards.
  Result<Found> before(std::int64_t failed, const std::stop_token& stop);
  // The job's states are those after `step` then, which before() found or one before it. Errc::interrupted: a stop.
  Status go_back_to(std::int64_t step, const std::stop_token& stop);
  Status agree();  // with the other ranks on where they can go back to, once before they do
  std::int64_t first_step() const { return step_; }  // to which it can go back

 private:
  Job& job_;
  FiniteParameters finite_;
  std::int64_t apart_ns_, last_ns_, pause_ns_;
  std::int64_t step_;              // of the copy, or with which the job began
  std::vector<std::byte> states_;  // empty: the initial ones
};

}  // namespace gradloom
