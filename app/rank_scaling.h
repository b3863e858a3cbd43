// What a plan for several ranks is predicted to do on more of them: how long a step takes, how much of the exchanges the backward
// pass hides, where it stops to pay. From the plan's order, the times of its kernels and what the links carry.
//
// On GPUs by NCCL an exchange takes what nccl_times.h says, and kernels what was measured of them or what is expected under the roofs of a
// card (cluster.h). What GPUs exchange through their hosts (AdaSum, trees and rings, ranks that share parameters) is copied down and up besides.
//
// Else an exchange of B bytes on N ranks, L to a machine, is predicted as engine/ranks/world.h makes it: 2 L (N - L) / N B bytes leave a
// machine over its link, 2 L (L - 1) / N B move inside, at the same time; then come two latencies, half a microsecond for each of the
// 2 (N - 1) messages, and the sum of B bytes at 4 GB/s. In a ring (recipe's `reduce`) B / N bytes leave a machine, and L - 1 times as
// many move inside, in each of 2 (N - 1) turns of a latency and a message; in a tree L times B / 2, B / 4, .. in its turns, the first
// ones inside; by AdaSum L B in each of log2(N) rounds, as near. What goes one way alone (zero) counts as half, and is never of a tree or
// ring. Exchanges are made one after the other; those that the plan begins in the
// background cost a step only what their wait is longer than the kernels before it. Groups of ranks that share parameters exchange at the same
// time, and those at the same place of theirs do: each has its part of a machine's links and cores. Every rank has as many samples as now.
//
// Where the ranks of a machine have more threads than it has cores, all that they compute takes as many times longer: kernels, and sums. Where
// no core is left for the thread that exchanges in the background, what it does is taken from the kernels beside it: 0.4 ns for each byte that goes
// or comes (chosen by gpt-char on 2 and 4 ranks of two cores, over MPI and TCP: bench/README.md), and the sums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/cluster.h"
#include "app/job.h"
#include "app/output.h"
#include "app/rank_peaks.h"

namespace gradloom {

struct ScalingRow {
  std::int64_t ranks = 1;
  double step_ns = 0, exchange_ns = 0;
  double exposed_ns = 0;  // that kernels wait for exchanges, or are slower beside them
  double efficiency = 1;  // samples per second against as many single ranks
  double crowding = 1;    // threads of a machine's ranks for each of its cores, 1 at least
  RankPeaks peaks;
};
struct RankScaling {
  std::int64_t exchanges = 0;  // in a step
  std::int64_t sharing =
      1;  // ranks that share parameters (pass tensor-parallel): rows are of multiples of them, against one such group
  double bytes = 0;       // that are exchanged
  double sent_bytes = 0;  // by a rank in a step; in a tree by the busiest
  bool measured = false;  // the kernels' times come from a run
  std::string hardware;   // under whose roofs kernels are expected to take theirs; empty: none
  std::string figures;    // Cluster::figures
  Exchanger exchanger = Exchanger::world;
  std::vector<ScalingRow> rows;  // 1, 2, 4, .. 1024, and the plan's own number of ranks
  std::string bend;              // where efficiency falls below 90 %, and why; empty: it does not
};
// REQUIRES a plan of at least two ranks.
RankScaling predict_scaling(const Prepared& prepared, const Cluster& cluster);
// That kernels of the plan wait for its exchanges, or are slower beside them, with the ranks that it has.
double predict_exposed_ns(const Prepared& prepared, const Cluster& cluster);

Json scaling_json(const RankScaling& scaling);
void print_scaling(const Output& out, const RankScaling& scaling, const Prepared& prepared,
                   const Cluster& cluster);

}  // namespace gradloom
