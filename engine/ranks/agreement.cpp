#include "engine/ranks/agreement.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "engine/base/hash.h"

namespace gradloom {

Result<std::optional<OtherText>> other_text(World& world, std::string mine) {
  const std::vector<std::int64_t> hashes = TRY(world.exchange(static_cast<std::int64_t>(fnv1a64(mine))));
  const auto other =
      std::find_if(hashes.begin(), hashes.end(), [&](std::int64_t hash) { return hash != hashes[0]; });
  if (other == hashes.end()) return std::optional<OtherText>();
  OtherText found{static_cast<int>(other - hashes.begin()), mine, std::move(mine)};
  const std::vector<std::int64_t> sizes = TRY(world.exchange(std::ssize(found.first)));
  const auto block = [&](std::string& text, int owner) {
    text.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(owner)]));
    return World::Block{text.data(), std::ssize(text), owner};
  };
  const std::array<World::Block, 2> blocks{block(found.first, 0), block(found.theirs, found.rank)};
  TRY(world.share(blocks));
  return std::optional(std::move(found));
}

}  // namespace gradloom
