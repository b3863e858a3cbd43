// A file is scanned on the wire before protobuf sees it; one read serves the hash, the scan and the parser.
#include "engine/onnx/file/model_file.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <exception>

#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/onnx/file/kept_bytes.h"
#include "engine/onnx/file/wire_scan.h"

namespace gradloom {

namespace {

Result<InputFile> open_limited(const std::string& path, const Limits& limits) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;  // that protobuf reads
  Result<InputFile> file = InputFile::open(path);
  if (!file.ok()) return Error{Errc::io, file.error().message};
  const std::int64_t most = std::min(limits.file_bytes, kMost);
  if (file->size() > most)
    return Error{Errc::limit, escaped(path) + ": longer than the limit of " + std::to_string(most) +
                                  " bytes" + (limits.file_bytes < kMost ? raised_by("file_bytes") : "")};
  return file;
}

Status parse(KeptBytes bytes, const Limits& limits, google::protobuf::Message* proto) {
  KeptBytesStream kept(std::move(bytes));
  google::protobuf::io::CodedInputStream stream(&kept);
  stream.SetRecursionLimit(static_cast<int>(4 * limits.nesting + 32));  // the wire scan was stricter
  if (!proto->ParseFromCodedStream(&stream))
    return Error{Errc::bad_input, "not an ONNX file: protobuf cannot parse it"};
  return {};
}

// Reads `file` into `proto`; its content hash.
Result<std::string> read_proto(const InputFile& file, WireRoot root, const Limits& limits,
                               google::protobuf::Message* proto) {
  constexpr std::int64_t kBlockBytes = 1 << 20;
  std::string block;
  StreamHash hash;
  std::int64_t done = 0;
  const WireBlocks blocks{file.size(), [&]() -> Result<std::string_view> {
                            block.resize(static_cast<std::size_t>(std::min(kBlockBytes, file.size() - done)));
                            const auto bytes = static_cast<std::int64_t>(block.size());
                            TRY(file.read_unchanged(done, block.data(), bytes));
                            done += bytes;
                            hash.add(block);
                            return std::string_view(block);
                          }};
  KeptBytes kept;
  TRY(scan_wire(blocks, root, limits, &kept, root == WireRoot::model));
  TRY(parse(std::move(kept), limits, proto));
  return hash.hex();
}

// The same; errors name the path.
Result<std::string> read_named(const std::string& path, const InputFile& file, WireRoot root,
                               const Limits& limits, google::protobuf::Message* proto) {
  try {
    Result<std::string> hash = read_proto(file, root, limits, proto);
    if (hash.ok() || hash.error().code == Errc::io) return hash;  // those of the file name it
    return with_context(hash.error(), escaped(path));
  } catch (const std::exception& e) {
    return Error{Errc::limit, escaped(path) + ": " + e.what()};
  }
}

}  // namespace

Result<ModelFile> read_model_file(const std::string& path, const Limits& limits) {
  ModelFile read;
  read.file = std::make_shared<const InputFile>(TRY(open_limited(path, limits)));
  read.content_hash = TRY(read_named(path, *read.file, WireRoot::model, limits, &read.model));
  return read;
}

Result<onnx::TensorProto> read_tensor_proto(const std::string& path, const Limits& limits) {
  const InputFile file = TRY(open_limited(path, limits));
  onnx::TensorProto proto;
  TRY(read_named(path, file, WireRoot::tensor, limits, &proto));
  return proto;
}

}  // namespace gradloom
