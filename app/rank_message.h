// A message between ranks of the same program: numbers and texts, one behind the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace gradloom {

class RankMessage {
 public:
  explicit RankMessage(std::vector<std::byte> bytes = {}) : bytes_(std::move(bytes)) {}
  void add(std::int64_t number) { append(&number, sizeof number); }
  void add(const std::string& text) { add_bytes(text.data(), text.size()); }
  void add_bytes(const void* from, std::size_t size) {
    add(static_cast<std::int64_t>(size));
    append(from, size);
  }
  // In the order in which they were added; nothing, where no more is left.
  std::int64_t number() {
    std::int64_t found = 0;
    if (left() < sizeof found) {
      read_ = bytes_.size();
      return 0;
    }
    std::memcpy(&found, bytes_.data() + read_, sizeof found);
    read_ += sizeof found;
    return found;
  }
  std::span<const std::byte> bytes_next() {
    const auto size = static_cast<std::size_t>(number());
    const std::span<const std::byte> found(bytes_.data() + read_, std::min(left(), size));
    read_ += found.size();
    return found;
  }
  std::string text() {
    const std::span<const std::byte> found = bytes_next();
    return {reinterpret_cast<const char*>(found.data()), found.size()};
  }
  std::size_t left() const { return bytes_.size() - read_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  void append(const void* from, std::size_t size) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + size);
    if (size > 0) std::memcpy(bytes_.data() + at, from, size);
  }
  std::vector<std::byte> bytes_;
  std::size_t read_ = 0;
};

}  // namespace gradloom
