// What a rank's plan is predicted to take on other numbers of ranks: of the rank that has most.
//
// From the lifetimes of a plan whose ranks keep all of the optimizer's states. With pass zero a rank keeps the states of its own
// parameters or parts of them, and these in f32 where the step reads 16 bits alone; gradients of which it owns nothing live until their exchange is waited for, or the norm of all has read
// them (stage 1), or it gets its part alone (stage 2); and what exchanges need beside them changes with the number of ranks.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "app/job.h"

namespace gradloom {

// At the moment at which the rank needs most.
struct RankPeak {
  std::int64_t bytes = 0;  // all of these:
  // With what else every rank keeps from step to step: running statistics, averages.
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;    // that are there then, and those that micro-batches add up in
  std::int64_t state = 0;        // of the optimizer
  std::int64_t activations = 0;  // and all other results, inputs and constants, and what lies between tensors
  std::int64_t buckets = 0;      // what exchanges need beside the tensors
};
struct RankPeaks {
  RankPeak whole, zero, zero2;  // without pass zero, with stage 1, with stage 2
};

class PeakPrediction {
 public:
  // REQUIRES a plan of at least two ranks.
  explicit PeakPrediction(const Prepared& prepared);
  RankPeaks of(std::int64_t ranks) const;

 private:
  struct Life {
    std::int64_t bytes = 0;
    std::int32_t first = 0, last = 0;
  };
  // A parameter that is trained.
  struct Trained {
    std::int64_t elements = 0, state_bytes = 0;
    std::int64_t copy_bytes = 0;  // of its 16-bit copy, which the update writes
    std::int64_t master_bytes =
        0;          // of the parameter, where the step reads that alone; else zero leaves no copy
    Life computed;  // of the gradient that this rank computes, where that is another tensor than the mean
    // Of its gradient's mean; 0: it has none of its own.
    std::int64_t bytes = 0, buffer_bytes = 0;
    std::size_t exchange = 0;
    std::int32_t first = 0, begun = 0, needed = 0, last = 0;  // needed: by what runs on every rank
    bool in_place = false;                                    // over what this rank has computed
    // Where gradients are exchanged in 16 bits: the mean as the update reads it; 0 bytes: it reads what was exchanged.
    std::int64_t wide_bytes = 0, wide_buffer_bytes = 0;
    std::int32_t wide_first = 0, wide_last = 0;
    std::int32_t wide_needed = -1;  // by the norm; -1: by nothing on every rank
  };
  // What goes together, and its workspace.
  struct Exchange {
    DType type = DType::f32;
    std::int64_t count = 0, workspace_bytes = 0;
    std::int32_t first = 0, last = 0;  // while the workspace is there
  };
  enum class Stage { none, states, gradients };

  void read_states(const Compiled& compiled);
  void read_copies(const Compiled& compiled, bool masters_apart);
  void read_exchanges(const Compiled& compiled);
  void read_gradients(const Compiled& compiled);
  static Life computed_gradient(const Compiled& compiled, NodeId exchange, ValueId mean);
  // What one rank owns of a parameter.
  struct Share {
    bool divided = false;    // false: every rank keeps all
    std::int64_t count = 0;  // elements
    auto operator<=>(const Share&) const = default;
  };
  using Shares = std::vector<Share>;
  std::vector<Shares> shares(Stage stage, std::int64_t ranks) const;  // by rank
  RankPeak peak_of(Stage stage, std::int64_t ranks) const;
  RankPeak peak_of(Stage stage, std::int64_t ranks, const Shares& own) const;
  void add_gradients(Stage stage, const Shares& own, std::vector<std::int64_t>& changes) const;
  void add_workspaces(Stage stage, const Shares& own, std::int64_t ranks,
                      std::vector<std::int64_t>& changes) const;

  bool cut_ = false;              // whether the optimizer updates ranges of parameters
  std::vector<Trained> trained_;  // in the order in which pass zero shares them out
  std::vector<Exchange> exchanges_;
  std::vector<std::int64_t> live_;                 // changes of the arena's live bytes, by step
  std::vector<std::int64_t> gradients_, buckets_;  // of those the gradients, and what exchanges need
  std::int64_t parameter_bytes_ = 0, accumulator_bytes_ = 0;
  std::int64_t others_bytes_ = 0;  // these, inputs, constants
  double waste_ = 1;               // the arena against its live bytes
};

}  // namespace gradloom
