// The bytes that go to the device before each micro-batch: the inputs and, behind them, the random
// state. On the CPU they are written where the kernels read them. For a queued device they are written
// to a pinned slot, copied to a staging block while the step before runs, and from there to where the
// kernels read them. A slot is written again only after it was copied.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/run/blocks.h"
#include "kernels/arguments/elements.h"

namespace gradloom {

class InputSlots {
 public:
  InputSlots(const Graph& graph, const Plan& plan, Device& device, Blocks& blocks);
  ~InputSlots();
  InputSlots(const InputSlots&) = delete;
  InputSlots& operator=(const InputSlots&) = delete;

  std::size_t block_bytes() const;  // of the input block
  Status allocate();                // after the blocks
  // The value goes through a slot: it is fed, and the device is queued. Views of it share its
  // buffer and do not.
  bool holds(ValueId v) const;
  Status write(ValueId v, const void* data, std::size_t bytes);
  // What was written is on its way for the next launches; inputs that nobody fed keep what they had.
  Status send(const kernels::RandomState& random);
  // The contents of a value that went through a slot, as they were sent last; null: it went through none.
  const void* sent(ValueId v) const;
  // Where kernels read the random state.
  const kernels::RandomState* random() const { return random_; }
  // On the CPU: what kernels that run once per optimizer step read.
  void set_random_step(std::uint64_t step);

 private:
  struct Slot {
    std::byte* pinned = nullptr;
    std::byte* staging = nullptr;
    Fence used = -1;        // until then its contents are needed
    std::vector<bool> fed;  // by ValueId: written since the slot was taken
  };
  static constexpr std::size_t kSlots = 2;  // batches on their way: one in use, one going up

  const Buffer& buffer(ValueId v) const {
    return plan_.buffers[static_cast<std::size_t>(plan_.buffer_of[v])];
  }
  std::size_t upload_bytes() const;
  Status take_slot();
  void carry_over();

  const Graph& graph_;
  const Plan& plan_;
  Device& device_;
  Blocks& blocks_;
  const bool queued_;
  Slot slots_[kSlots];
  std::size_t slot_ = 0;
  bool slot_ready_ = false;
  kernels::RandomState host_random_{};
  const kernels::RandomState* random_ = &host_random_;
};

}  // namespace gradloom
