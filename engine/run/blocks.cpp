#include "engine/run/blocks.h"

#include <algorithm>

namespace gradloom {

Blocks::Blocks(const Plan& plan, Device& device, const LentMemory& lent)
    : plan_(plan), device_(device), lent_(plan.buffers.size(), nullptr) {
  for (const auto& [value, memory] : lent.states)
    if (const std::int32_t buffer = plan.buffer_of[value]; buffer >= 0)
      lent_[static_cast<std::size_t>(buffer)] = memory;
  for (const Buffer& b : plan.buffers) offsets_.push_back(b.offset);
  state_bytes_ = lent.states.empty() ? plan.state_bytes : 0;
  for (std::size_t i = 0; i < lent_.size(); ++i)
    if (!lent.states.empty() && plan.buffers[i].place == Place::state && lent_[i] == nullptr) {
      offsets_[i] = state_bytes_;
      state_bytes_ += plan.buffers[i].bytes;
    }
  lent_arena_ = lent.arena != nullptr && plan.arena_bytes <= lent.arena_bytes;
  if (lent_arena_) blocks_[static_cast<std::size_t>(Place::arena)] = lent.arena;
}

Blocks::~Blocks() {
  if (lent_arena_) blocks_[static_cast<std::size_t>(Place::arena)] = nullptr;
  for (std::byte* block : blocks_)
    if (block) device_.release(block);
}

Status Blocks::allocate(std::size_t input_bytes) {
  const std::pair<Place, std::int64_t> sizes[] = {{Place::arena, lent_arena_ ? 0 : plan_.arena_bytes},
                                                  {Place::state, state_bytes_},
                                                  {Place::input, static_cast<std::int64_t>(input_bytes)},
                                                  {Place::constant, plan_.constant_bytes}};
  for (const auto& [place, bytes] : sizes)
    if (bytes > 0)
      blocks_[static_cast<std::size_t>(place)] =
          static_cast<std::byte*>(TRY(device_.allocate(static_cast<std::size_t>(bytes))));
  if (plan_.host_bytes > 0)
    blocks_[static_cast<std::size_t>(Place::host)] = static_cast<std::byte*>(
        TRY(device_.allocate(static_cast<std::size_t>(plan_.host_bytes), Memory::pinned)));
  return {};
}

void* Blocks::address(ValueId v) const {
  if (v == kNone || plan_.buffer_of[v] < 0) return nullptr;
  const auto buffer = static_cast<std::size_t>(plan_.buffer_of[v]);
  std::byte* const begin =
      lent_[buffer] != nullptr ? lent_[buffer] : of(plan_.buffers[buffer].place) + offsets_[buffer];
  return begin + plan_.offset_in_buffer(v);
}

bool Blocks::lent(ValueId v) const {
  return plan_.buffer_of[v] >= 0 && lent_[static_cast<std::size_t>(plan_.buffer_of[v])] != nullptr;
}

bool Blocks::lends() const {
  return std::any_of(lent_.begin(), lent_.end(), [](const std::byte* memory) { return memory != nullptr; });
}

}  // namespace gradloom
