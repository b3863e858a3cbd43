#include "engine/onnx/file/kept_bytes.h"

#include <algorithm>
#include <cstring>

namespace gradloom {

void KeptBytes::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t at = size_ % kBlockBytes, count = std::min(bytes.size(), kBlockBytes - at);
    if (at == 0) blocks_.push_back(std::make_unique_for_overwrite<char[]>(kBlockBytes));
    std::memcpy(blocks_.back().get() + at, bytes.data(), count);
    size_ += count;
    bytes.remove_prefix(count);
  }
}

void KeptBytes::overwrite(std::size_t at, std::string_view bytes) {
  for (const char byte : bytes) {
    blocks_[at / kBlockBytes][at % kBlockBytes] = byte;
    ++at;
  }
}

bool KeptBytesStream::Next(const void** data, int* size) {
  constexpr std::size_t kBlock = KeptBytes::kBlockBytes;
  for (; (released_ + 1) * kBlock <= position_; ++released_) bytes_.blocks_[released_] = nullptr;
  if (position_ == bytes_.size()) return false;
  const std::size_t at = position_ % kBlock, count = std::min(kBlock - at, bytes_.size() - position_);
  *data = bytes_.blocks_[position_ / kBlock].get() + at;
  *size = static_cast<int>(count);
  position_ += count;
  return true;
}

bool KeptBytesStream::Skip(int count) {
  const std::size_t step = std::min(static_cast<std::size_t>(count), bytes_.size() - position_);
  position_ += step;
  return step == static_cast<std::size_t>(count);
}

}  // namespace gradloom
