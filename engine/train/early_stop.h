// Early stop: training ends when the loss on held-out data has not become smaller for a while. As
// torch.optim.lr_scheduler.ReduceLROnPlateau counts, and Keras' EarlyStopping: an evaluation is better when its loss
// is below the best so far by more than `min_delta`; after `patience` in a row that are not the training ends.
// Errors: Errc::usage for an unknown option or a value out of range.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/fields.h"

namespace gradloom {

struct EarlyStopSpec {
  std::int64_t patience = 0;  // evaluations; 0: never
  double min_delta = 0;
  void fields(FieldVisitor& v);
};
Result<EarlyStopSpec> parse_early_stop(const std::string& text);  // "patience=3,min_delta=0.01"; "": never
std::string early_stop_syntax();

// The evaluations of one training.
class EarlyStop {
 public:
  explicit EarlyStop(EarlyStopSpec spec) : spec_(spec) {}
  // True: the best so far. A loss that is not finite is worse than any.
  bool add(std::int64_t step, double loss);
  bool due() const { return spec_.patience > 0 && state_.worse >= spec_.patience; }
  std::int64_t best_step() const { return state_.best_step; }  // -1: none was finite yet
  double best_loss() const { return state_.best_loss; }
  std::int64_t last_step() const { return state_.last_step; }  // that was evaluated; -1: none, or not known

  // What a checkpoint keeps of it.
  struct State {
    std::int64_t best_step = -1, worse = 0;  // worse: in a row
    double best_loss = 0;
    std::int64_t last_step = -1;  // that was evaluated; -1: not known
    bool operator==(const State&) const = default;
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  EarlyStopSpec spec_;
  State state_;
};

}  // namespace gradloom
