#include "engine/run/blocks.h"

namespace gradloom {

Blocks::~Blocks() {
  for (std::byte* block : blocks_)
    if (block) device_.release(block);
}

Status Blocks::allocate(std::size_t input_bytes) {
  const std::pair<Place, std::int64_t> sizes[] = {{Place::arena, plan_.arena_bytes},
                                                  {Place::state, plan_.state_bytes},
                                                  {Place::input, static_cast<std::int64_t>(input_bytes)},
                                                  {Place::constant, plan_.constant_bytes}};
  for (const auto& [place, bytes] : sizes)
    if (bytes > 0)
      blocks_[static_cast<std::size_t>(place)] =
          static_cast<std::byte*>(TRY(device_.allocate(static_cast<std::size_t>(bytes))));
  return {};
}

void* Blocks::address(ValueId v) const {
  if (v == kNone || plan_.buffer_of[v] < 0) return nullptr;
  const Buffer& b = plan_.buffers[static_cast<std::size_t>(plan_.buffer_of[v])];
  return of(b.place) + b.offset;
}

}  // namespace gradloom
