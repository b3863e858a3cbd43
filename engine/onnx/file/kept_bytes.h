// The bytes of a model file that the scan keeps for protobuf: all but the contents of large tensors, which stay
// in the file. They are held in blocks, so that growing copies nothing, and given back block by block as protobuf reads.
#pragma once

#include <google/protobuf/io/zero_copy_stream.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace gradloom {

class KeptBytes {
 public:
  std::size_t size() const { return size_; }
  void append(std::string_view bytes);
  void overwrite(std::size_t at, std::string_view bytes);  // REQUIRES that they are there

 private:
  friend class KeptBytesStream;
  static constexpr std::size_t kBlockBytes = 1 << 20;
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::size_t size_ = 0;
};

// From the first byte to the last, once: blocks that were read are gone.
class KeptBytesStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit KeptBytesStream(KeptBytes bytes) : bytes_(std::move(bytes)) {}
  bool Next(const void** data, int* size) override;
  void BackUp(int count) override { position_ -= static_cast<std::size_t>(count); }
  bool Skip(int count) override;
  std::int64_t ByteCount() const override { return static_cast<std::int64_t>(position_); }

 private:
  KeptBytes bytes_;
  std::size_t position_ = 0, released_ = 0;  // blocks
};

}  // namespace gradloom
