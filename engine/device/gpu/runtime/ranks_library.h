// The vendor's library by which the devices of several ranks exchange numbers: NCCL, or RCCL, opened at run time. One communicator per
// context. GRADLOOM_NCCL=0 leaves it out.
//
// Its sums have an order of their own: the same ranks, library and machines give the same bits, and all ranks have the same; not those
// of the CPU's order (engine/ranks/world.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/device/gpu/plugin.h"
#include "engine/device/gpu/runtime/answer.h"

namespace gradloom::kernels::gpu {

class RanksLibrary;  // a communicator
struct CloseRanksLibrary {
  void operator()(RanksLibrary* library) const;  // gives up what is under way, and waits for nobody
};
using RanksLibraryPtr = std::unique_ptr<RanksLibrary, CloseRanksLibrary>;

// "nccl 2.28.9"; "" when there is none, or it is not wanted: *why.
std::string ranks_library_version(Answer* why);
// Rank 0's, of GPU_RANKS_ID_BYTES; all ranks join with it. Not taken: it failed.
Answer new_ranks_id(std::uint8_t* id);
// Null: *why. Waits for the other ranks, for `limit_ns` at most; where they do not come a thread of the library is left waiting.
RanksLibraryPtr open_ranks(const std::uint8_t* id, int device, int rank, int size, std::int64_t limit_ns,
                           Answer* why);
// Queues it on `stream` (cudaStream_t). Not taken: it failed, and the ranks are no longer together.
Answer run_exchange(RanksLibrary& library, const GpuExchange& exchange, void* stream);
// Not taken: what has gone wrong in work that was queued.
Answer exchanges_state(RanksLibrary& library);

}  // namespace gradloom::kernels::gpu
