// The memory of a plan on its device: a block per place, taken once, and where values lie in them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "engine/device/device.h"
#include "engine/plan/plan.h"

namespace gradloom {

// Memory of another plan on the same device that a plan works in, while the other does not run.
struct LentMemory {
  std::map<ValueId, std::byte*> states;  // where parameters and states of the plan lie
  std::byte* arena = nullptr;
  std::int64_t arena_bytes = 0;  // the plan takes one of its own when this is too small
};

class Blocks {
 public:
  Blocks(const Plan& plan, Device& device, const LentMemory& lent = {});
  ~Blocks();  // nothing may use the memory any more
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  Status allocate(std::size_t input_bytes);  // of the input block; the plan says the others
  // Null: the value has no memory, or is none (kNone).
  void* address(ValueId v) const;
  bool lent(ValueId v) const;  // its contents are another's
  bool lends() const;          // some are
  std::byte* of(Place place) const { return blocks_[static_cast<std::size_t>(place)]; }  // null: none

 private:
  const Plan& plan_;
  Device& device_;
  std::array<std::byte*, kPlaces> blocks_{};
  std::vector<std::byte*> lent_;  // by buffer; null: it lies in its block
  // By buffer: where in its block. As in the plan, but where some states are lent the others lie one behind the other.
  std::vector<std::int64_t> offsets_;
  std::int64_t state_bytes_ = 0;  // of the block of states
  bool lent_arena_ = false;
};

}  // namespace gradloom
