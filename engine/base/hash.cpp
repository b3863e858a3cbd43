#include "engine/base/hash.h"

#include <xxhash.h>

#include <cstdio>
#include <memory>
#include <vector>

namespace gradloom {
namespace {

std::string hex(XXH128_hash_t h) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(h.high64),
                static_cast<unsigned long long>(h.low64));
  return text;
}

}  // namespace

std::uint64_t hash64(std::string_view bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string hash_hex(std::string_view bytes) { return hex(XXH3_128bits(bytes.data(), bytes.size())); }

Result<std::string> hash_file_hex(const std::string& path) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return Error{Errc::io, "cannot read '" + path + "'"};
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> block(1 << 20);
  while (const std::size_t n = std::fread(block.data(), 1, block.size(), file.get()))
    XXH3_128bits_update(state.get(), block.data(), n);
  if (std::ferror(file.get())) return Error{Errc::io, "reading '" + path + "' failed"};
  return hex(XXH3_128bits_digest(state.get()));
}

std::uint64_t fnv1a64(std::string_view bytes) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (unsigned char c : bytes) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

}  // namespace gradloom
