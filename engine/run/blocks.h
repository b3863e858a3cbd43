// The memory of a plan on its device: a block per place, taken once, and where values lie in them.
#pragma once

#include <array>
#include <cstddef>

#include "engine/device/device.h"
#include "engine/plan/plan.h"

namespace gradloom {

class Blocks {
 public:
  Blocks(const Plan& plan, Device& device) : plan_(plan), device_(device) {}
  ~Blocks();  // nothing may use the memory any more
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  Status allocate(std::size_t input_bytes);  // of the input block; the plan says the others
  // Null: the value has no memory, or is none (kNone).
  void* address(ValueId v) const;
  std::byte* of(Place place) const { return blocks_[static_cast<std::size_t>(place)]; }  // null: none

 private:
  const Plan& plan_;
  Device& device_;
  std::array<std::byte*, 5> blocks_{};
};

}  // namespace gradloom
