#include "engine/run/input_slots.h"

#include <algorithm>
#include <cstring>

namespace gradloom {

InputSlots::InputSlots(const Graph& graph, const Plan& plan, Device& device, Blocks& blocks)
    : graph_(graph), plan_(plan), device_(device), blocks_(blocks), queued_(device.info().queued) {}

InputSlots::~InputSlots() {
  for (Slot& s : slots_) {
    if (s.pinned) device_.release(s.pinned);
    if (s.staging) device_.release(s.staging);
  }
}

std::size_t InputSlots::upload_bytes() const {
  return static_cast<std::size_t>(plan_.input_bytes) + sizeof(kernels::RandomState);
}

std::size_t InputSlots::block_bytes() const {
  return queued_ ? upload_bytes() : static_cast<std::size_t>(plan_.input_bytes);
}

Status InputSlots::allocate() {
  if (!queued_) return {};
  const auto take = [&](Memory memory) -> Result<std::byte*> {
    return static_cast<std::byte*>(TRY(device_.allocate(upload_bytes(), memory)));
  };
  for (Slot& s : slots_) {
    s.pinned = TRY(take(Memory::pinned));
    s.staging = TRY(take(Memory::device));
    std::memset(s.pinned, 0, upload_bytes());
    s.fed.assign(graph_.values.size(), false);
  }
  random_ = reinterpret_cast<const kernels::RandomState*>(blocks_.of(Place::input) + plan_.input_bytes);
  return {};
}

bool InputSlots::holds(ValueId v) const {
  return queued_ && graph_.values[v].producer == kNone && plan_.buffer_of[v] >= 0 &&
         buffer(v).place == Place::input;
}

Status InputSlots::write(ValueId v, const void* data, std::size_t bytes) {
  if (!holds(v)) return device_.upload(blocks_.address(v), data, bytes);
  TRY(take_slot());
  std::memcpy(slots_[slot_].pinned + buffer(v).offset, data, bytes);
  slots_[slot_].fed[v] = true;
  return {};
}

Status InputSlots::take_slot() {
  if (slot_ready_) return {};
  Slot& s = slots_[slot_];
  if (s.used >= 0) TRY(device_.wait(s.used));
  std::fill(s.fed.begin(), s.fed.end(), false);
  slot_ready_ = true;
  return {};
}

void InputSlots::carry_over() {
  Slot& s = slots_[slot_];
  const Slot& previous = slots_[(slot_ + kSlots - 1) % kSlots];
  for (ValueId v = 0; v < graph_.values.size(); ++v) {
    if (!holds(v) || s.fed[v]) continue;
    const Buffer& b = buffer(v);
    std::memcpy(s.pinned + b.offset, previous.pinned + b.offset, static_cast<std::size_t>(b.bytes));
  }
}

Status InputSlots::send(const kernels::RandomState& random) {
  if (!queued_) {
    host_random_ = random;
    return {};
  }
  TRY(take_slot());
  carry_over();
  Slot& s = slots_[slot_];
  std::memcpy(s.pinned + plan_.input_bytes, &random, sizeof random);
  TRY(device_.copy(Queue::upload, s.staging, s.pinned, upload_bytes()));
  TRY(device_.order(Queue::upload, Queue::compute));
  TRY(device_.copy(Queue::compute, blocks_.of(Place::input), s.staging, upload_bytes()));
  s.used = TRY(device_.fence());
  slot_ = (slot_ + 1) % kSlots;
  slot_ready_ = false;
  return {};
}

const void* InputSlots::sent(ValueId v) const {
  return holds(v) ? slots_[(slot_ + kSlots - 1) % kSlots].pinned + buffer(v).offset : nullptr;
}

void InputSlots::set_random_step(std::uint64_t step) {
  if (!queued_) host_random_.step = step;
}

}  // namespace gradloom
