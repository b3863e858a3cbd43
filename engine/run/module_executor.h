// Runs a plan in two parts (PlanOptions::forward_outputs), in memory of the device that every call brings: what is kept from
// forward to backward lies in the call's arena, so several forwards may wait for their backwards, each in an arena of its
// own. Of its own it has constants and the objects of the kernels. One call is made at a time. On a device that queues, calls return when
// their work is queued; it is ordered with a stream of the caller, and becomes a part of what the caller records there (CUDA graph). Where a
// plan draws random numbers, each replay of a recorded forward draws others: step is that of the first recorded one plus how many forwards
// were replayed, this one included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/run/executor.h"
#include "kernels/arguments/elements.h"

namespace gradloom {

// Memory of one call. Every address has at least the alignment of its elements, the arena kAlignmentBytes, on GPUs
// kernels::at_library_boundary's.
struct ModuleMemory {
  std::byte* arena = nullptr;       // Plan::arena_bytes
  std::vector<std::byte*> sources;  // as given to create; null where no kernel reads the value
  std::vector<std::byte*> results;  // in the order of Graph::outputs; those of the other part may be null
  kernels::RandomState random{};    // seed and step: backward takes those of its forward
  bool recorded = false;            // backward: what its forward returned
  // On a device that queues: in its memory, kept from forward to backward, where a recorded call has its random state.
  kernels::RandomState* drawn = nullptr;
  std::vector<KernelSample>* samples = nullptr;  // not null: every kernel is timed, and appended here; CPU
  void* stream = nullptr;                        // of the caller (Device::follow_stream)
};

class ModuleExecutor {
 public:
  // `sources`: the graph's inputs, parameters and states in the order in which calls have their memory. Keeps references to
  // graph and plan, which must outlive it. Errc::device: the plan has work for queues beside the compute queue.
  static Result<std::unique_ptr<ModuleExecutor>> create(const Graph& graph, const Plan& plan, Device& device,
                                                        const std::vector<ValueId>& sources);
  ~ModuleExecutor();
  ModuleExecutor(const ModuleExecutor&) = delete;
  ModuleExecutor& operator=(const ModuleExecutor&) = delete;

  Result<bool> forward(const ModuleMemory& memory);  // true: the caller recorded it, nothing has run
  Status backward(const ModuleMemory& memory);
  bool reads(std::size_t source) const;  // some kernel or result needs the memory of this source

 private:
  // An address that a call resolves: base of a kind of memory, or one of the call's pointers.
  struct Operand {
    enum class Base : std::uint8_t { none, arena, constant, source, result } base = Base::none;
    std::int64_t at = 0;      // offset in arena or constants; number of the source or result
    std::int64_t offset = 0;  // bytes from there to a part of it
  };
  struct Step {
    std::unique_ptr<PreparedKernel> kernel;
    std::size_t inputs = 0, outputs = 0, workspace = 0;  // places in operands_, one behind the other
  };
  // A result that lies elsewhere: in the arena, because the backward part needs it, in another result, or in a source.
  struct Copy {
    std::size_t result = 0;
    Operand from;
    std::size_t bytes = 0;
  };
  ModuleExecutor(const Graph& graph, const Plan& plan, Device& device)
      : graph_(graph), plan_(plan), device_(device) {}
  Status load_constants();
  Status make_random();
  // Of the plan: steps, and results that they make.
  struct Part {
    bool forward;
    std::size_t first, last, first_result, last_result;
  };
  Result<const kernels::RandomState*> random_of(const Part& part, const ModuleMemory& memory, bool recorded);
  Result<const kernels::RandomState*> send_random(const ModuleMemory& memory);
  Result<const kernels::RandomState*> record_random(const Part& part, const ModuleMemory& memory);
  Status add(void* to, const void* count);
  void place_buffers(const std::vector<ValueId>& sources);
  Status prepare();
  Operand operand(ValueId v) const;
  std::byte* resolve(const Operand& operand, const ModuleMemory& memory) const;
  Result<bool> run(const Part& part, const ModuleMemory& memory);
  Status run_steps(const Part& part, const ModuleMemory& memory, const kernels::RandomState* random);

  const Graph& graph_;
  const Plan& plan_;
  Device& device_;
  std::byte* constants_ = nullptr;
  bool queued_ = false;
  // Where a plan draws random numbers on a device that queues: where kernels read the call's random state; in pinned memory those on
  // their way there, and behind them those that recordings read whenever they are replayed.
  static constexpr std::size_t kUnderWay = 32, kRecordings = 256;
  kernels::RandomState *random_ = nullptr, *sent_ = nullptr;
  std::vector<Fence> fences_;
  std::size_t calls_ = 0, recordings_ = 0;
  // Step of the first forward that was recorded: all count on from it, so that no two draw the same.
  std::optional<std::uint64_t> recorded_step_;
  struct Replays {
    std::int64_t count, one;
  };
  Replays* replays_ = nullptr;  // of all recorded forwards, on the device
  std::unique_ptr<PreparedKernel> add_;
  std::vector<Operand> buffers_;  // by buffer of the plan
  std::vector<Operand> operands_;
  std::vector<void*> addresses_;  // of operands_, in the call that runs
  std::vector<Step> steps_;
  std::vector<Copy> copies_;
  std::vector<bool> read_;  // by source
};

}  // namespace gradloom
