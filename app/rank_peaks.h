// What a rank's plan is predicted to take on other numbers of ranks: of the rank that has most.
//
// From the lifetimes of a plan whose ranks keep all of the optimizer's states. With pass zero a rank keeps the states of its own
// parameters or parts of them; gradients of which it owns nothing live until their exchange is waited for, or the norm of all has read
// them (stage 1), or it gets its part alone (stage 2); and what exchanges need beside them changes with the number of ranks.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "app/job.h"

namespace gradloom {

struct RankPeaks {
  std::int64_t whole_bytes = 0, zero_bytes = 0,
               zero2_bytes = 0;  // without pass zero, with stage 1, with stage 2
};

class PeakPrediction {
 public:
  // REQUIRES a plan of at least two ranks.
  explicit PeakPrediction(const Prepared& prepared);
  RankPeaks of(std::int64_t ranks) const;

 private:
  // A parameter that is trained.
  struct Trained {
    std::int64_t elements = 0, state_bytes = 0;
    // Of its gradient's mean; 0: it has none of its own.
    std::int64_t bytes = 0, buffer_bytes = 0;
    std::size_t exchange = 0;
    std::int32_t begun = 0, needed = 0, last = 0;  // needed: by what runs on every rank
    bool in_place = false;                         // over what this rank has computed
  };
  // What goes together, and its workspace.
  struct Exchange {
    DType type = DType::f32;
    std::int64_t count = 0, workspace_bytes = 0;
    std::int32_t first = 0, last = 0;  // while the workspace is there
  };
  enum class Stage { none, states, gradients };

  void read_states(const Compiled& compiled);
  void read_exchanges(const Compiled& compiled);
  void read_gradients(const Compiled& compiled);
  // What one rank owns of a parameter.
  struct Share {
    bool divided = false;    // false: every rank keeps all
    std::int64_t count = 0;  // elements
    auto operator<=>(const Share&) const = default;
  };
  using Shares = std::vector<Share>;
  std::vector<Shares> shares(Stage stage, std::int64_t ranks) const;  // by rank
  std::int64_t peak_of(Stage stage, std::int64_t ranks) const;
  void add_gradients(Stage stage, const Shares& own, std::vector<std::int64_t>& changes) const;
  void add_workspaces(Stage stage, const Shares& own, std::int64_t ranks,
                      std::vector<std::int64_t>& changes) const;

  bool cut_ = false;              // whether the optimizer updates ranges of parameters
  std::vector<Trained> trained_;  // in the order in which pass zero shares them out
  std::vector<Exchange> exchanges_;
  std::vector<std::int64_t> live_;  // changes of the arena's live bytes, by step
  std::int64_t others_bytes_ = 0;   // states but the optimizer's, inputs, constants
  double waste_ = 1;                // the arena against its live bytes
};

}  // namespace gradloom
