// How the devices of several ranks come together by a library of theirs (NCCL), and what their host does while they exchange. Private to this
// folder.
#pragma once

#include <string>

#include "engine/device/gpu/plugin.h"
#include "engine/device/plugin.h"

namespace gradloom {

struct MetRanks {
  bool joined = false;
  std::string why_not;  // of some rank; empty: nobody has such a library, and nobody lacks it
  bool failed = false;  // it is a library that is missing or that failed
};

// All ranks call it at the same time; what one of them lacks, none uses. `uuid`: of this rank's device. Errors: those of
// the ranks' world; Errc::usage, means are to be a tree or a ring, which the library cannot be told.
Result<MetRanks> meet_ranks(const Plugin& plugin, GpuContext* context, const std::string& uuid);
// Waits for an event behind exchanges by the library. A rank that ends, or stays away for longer than the world's limit, ends the waiting: the
// library gives up what is under way. `who`: the device, for errors.
Status wait_for_ranks(const Plugin& plugin, GpuContext* context, std::int32_t event, const std::string& who);

}  // namespace gradloom
