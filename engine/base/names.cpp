#include "engine/base/names.h"

#include <unistd.h>

#include <random>

#include "engine/base/hash.h"

namespace gradloom {

namespace {

std::uint64_t new_seed() {
  std::uint64_t seed = 0;
  if (::getentropy(&seed, sizeof seed) != 0) seed = std::random_device{}();
  return seed;
}

}  // namespace

std::size_t NameHash::operator()(std::string_view name) const {
  static const std::uint64_t seed = new_seed();
  return hash64(name, seed);
}

}  // namespace gradloom
