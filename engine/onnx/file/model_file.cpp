// A file is scanned on the wire before protobuf sees it; one read serves the hash, the scan and the parser.
#include "engine/onnx/file/model_file.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <exception>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/base/input_file.h"
#include "engine/onnx/file/wire_scan.h"

namespace gradloom {

namespace {

// Bytes that are given back to the system as the parser leaves them behind: the contents of a large file are
// never in memory twice.
class ConsumedBytes : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit ConsumedBytes(std::string& bytes) : bytes_(bytes) {}
  bool Next(const void** data, int* size) override {
    release(position_);
    const std::size_t left = bytes_.size() - position_;
    *data = bytes_.data() + position_;
    *size = static_cast<int>(std::min<std::size_t>(left, kBlockBytes));
    position_ += static_cast<std::size_t>(*size);
    return left > 0;
  }
  void BackUp(int count) override { position_ -= static_cast<std::size_t>(count); }
  bool Skip(int count) override {
    const std::size_t step = std::min(static_cast<std::size_t>(count), bytes_.size() - position_);
    position_ += step;
    return step == static_cast<std::size_t>(count);
  }
  std::int64_t ByteCount() const override { return static_cast<std::int64_t>(position_); }

 private:
  static constexpr std::size_t kBlockBytes = 4 << 20;

  void release(std::size_t end) {
    if (end - released_ < kBlockBytes) return;
    release_pages(bytes_.data() + released_, end - released_);
    released_ = end;
  }

  std::string& bytes_;
  std::size_t position_ = 0, released_ = 0;
};

// `bytes` is of no use after it.
template <class Proto>
Status parse(std::string& bytes, const Limits& limits, Proto* proto) {
  ConsumedBytes consumed(bytes);
  google::protobuf::io::CodedInputStream stream(&consumed);
  stream.SetRecursionLimit(static_cast<int>(4 * limits.nesting + 32));  // the wire scan was stricter
  if (!proto->ParseFromCodedStream(&stream))
    return Error{Errc::bad_input, "not an ONNX file: protobuf cannot parse it"};
  return {};
}

// A large file of another kind is refused without reading it. What cannot be read is the
// business of whoever reads all.
Status check_beginning(const std::string& path, WireRoot root, const Limits& limits) {
  constexpr std::int64_t kBytes = 4096;
  const Result<InputFile> file = InputFile::open(path);
  if (!file.ok() || file->size() <= kBytes || file->size() > limits.file_bytes) return {};
  std::string beginning(kBytes, '\0');
  if (!file->read_at(0, beginning.data(), kBytes).ok()) return {};
  const Status status = scan_wire_beginning(beginning, root, limits);
  return status.ok() ? Status{} : Status{with_context(status.error(), escaped(path))};
}

template <class Proto>
Result<std::string> read_proto(const std::string& path, WireRoot root, const Limits& limits, Proto* proto) {
  TRY(check_beginning(path, root, limits));
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;  // that the library reads
  Result<std::string> read = read_file_limited(path, std::min(limits.file_bytes, kMost));
  if (!read.ok() && read.error().code == Errc::limit && limits.file_bytes < kMost)
    return Error{Errc::limit, read.error().message + raised_by("file_bytes")};
  std::string bytes = TRY(std::move(read));
  std::string hash;
  try {
    Status status = scan_wire(bytes, root, limits);
    if (status.ok()) hash = hash_hex(bytes);
    if (status.ok()) status = parse(bytes, limits, proto);
    if (!status.ok()) return with_context(status.error(), escaped(path));
  } catch (const std::exception& e) {
    return Error{Errc::limit, escaped(path) + ": " + e.what()};
  }
  return hash;
}

}  // namespace

Result<ModelFile> read_model_file(const std::string& path, const Limits& limits) {
  ModelFile file;
  file.content_hash = TRY(read_proto(path, WireRoot::model, limits, &file.model));
  return file;
}

Result<onnx::TensorProto> read_tensor_proto(const std::string& path, const Limits& limits) {
  onnx::TensorProto proto;
  TRY(read_proto(path, WireRoot::tensor, limits, &proto));
  return proto;
}

}  // namespace gradloom
