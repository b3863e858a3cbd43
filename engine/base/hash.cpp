#include "engine/base/hash.h"

#include <xxhash.h>

#include <cstdio>
#include <memory>
#include <new>
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

struct StreamHash::State {
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash{XXH3_createState(), &XXH3_freeState};
};

StreamHash::StreamHash() : state_(std::make_unique<State>()) {
  if (state_->hash == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_->hash.get());
}
StreamHash::~StreamHash() = default;

void StreamHash::add(std::string_view bytes) {
  XXH3_128bits_update(state_->hash.get(), bytes.data(), bytes.size());
}

std::string StreamHash::hex() const { return gradloom::hex(XXH3_128bits_digest(state_->hash.get())); }

Result<std::string> hash_file_hex(const std::string& path) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return Error{Errc::io, "cannot read '" + path + "'"};
  StreamHash hash;
  std::vector<char> block(1 << 20);
  while (const std::size_t n = std::fread(block.data(), 1, block.size(), file.get()))
    hash.add({block.data(), n});
  if (std::ferror(file.get())) return Error{Errc::io, "reading '" + path + "' failed"};
  return hash.hex();
}

std::uint64_t fnv1a64(std::string_view bytes) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (unsigned char c : bytes) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

}  // namespace gradloom
