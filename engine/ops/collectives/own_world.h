// How kernels of exchanges find the ranks of their process. Private to this folder.
#pragma once

#include "engine/ir/op.h"
#include "engine/ops/kernel_failed.h"
#include "engine/ranks/world.h"

namespace gradloom {

// The ranks that make an exchange, as its node says it (all_reduce.h), and how many there are of all.
struct ExchangeRanks {
  RankGroup group;
  int world = 1;
};
inline ExchangeRanks exchange_ranks(const Attrs& attrs) {
  const auto ranks = static_cast<int>(attrs.integer("ranks")),
             world = static_cast<int>(attrs.integer("world", ranks));
  if (world == ranks) return {{}, world};
  return {{ranks, static_cast<int>(attrs.integer("stride", 1))}, world};
}

// Throws KernelFailed: the process is not one of so many.
inline World& own_world(int ranks) {
  World* const world = World::current();
  if (world == nullptr || world->size() != ranks)
    throw KernelFailed{{Errc::usage, "the plan is one of " + std::to_string(ranks) +
                                         " ranks, this process is one of " +
                                         std::to_string(world == nullptr ? 1 : world->size())}};
  return *world;
}

// The same kernel of a GPU: its device makes the exchange (host_work.h), where workspace is not of the plan.
inline Result<Kernel> made_by_device(Result<Kernel> kernel) {
  if (!kernel) return kernel;
  return Kernel{kernel->name, 0, [](const LaunchArgs&) {}};
}

inline void demand(const Status& status) {
  if (!status.ok()) throw KernelFailed{status.error()};
}

}  // namespace gradloom
