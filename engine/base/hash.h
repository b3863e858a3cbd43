// Content hashes (XXH3, 64 and 128 bit): plan hashes, model hashes, compile keys.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace gradloom {

std::uint64_t hash64(std::string_view bytes, std::uint64_t seed = 0);
std::string hash_hex(std::string_view bytes);  // 32 hex digits (XXH3-128)
// The same of bytes that come in pieces.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  void add(std::string_view bytes);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
Result<std::string> hash_file_hex(const std::string& path);
std::uint64_t fnv1a64(std::string_view bytes);  // keys of random streams: stable and easy to re-implement

}  // namespace gradloom
