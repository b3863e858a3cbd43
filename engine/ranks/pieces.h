// What ranks exchange, as if its pieces lay one after the other. Private to this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/ranks/world.h"

namespace gradloom {

constexpr int kDataTag = 2;  // of all that is exchanged but how ranks end

// Calls f(piece, from, to) for the elements of each piece that are in [begin, end) of them all.
template <class F>
void for_pieces(std::span<const World::Piece> pieces, std::int64_t begin, std::int64_t end, const F& f) {
  std::int64_t at = 0;
  for (const World::Piece& piece : pieces) {
    const std::int64_t from = std::max(begin, at) - at, to = std::min(end, at + piece.count) - at;
    if (from < to) f(piece, from, to);
    at += piece.count;
  }
}

inline std::int64_t count_of(std::span<const World::Piece> pieces) {
  std::int64_t count = 0;
  for (const World::Piece& piece : pieces) count += piece.count;
  return count;
}

inline const char* at(const void* base, std::int64_t bytes) { return static_cast<const char*>(base) + bytes; }
inline char* at(void* base, std::int64_t bytes) { return static_cast<char*>(base) + bytes; }

}  // namespace gradloom
