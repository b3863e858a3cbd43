// A file is scanned on the wire before protobuf sees it; one read serves the hash, the scan and the parser.
#include "engine/onnx/model_file.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <exception>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/onnx/wire_scan.h"

namespace gradloom {

namespace {

template <class Proto>
Status parse(const std::string& bytes, const Limits& limits, Proto* proto) {
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  stream.SetRecursionLimit(static_cast<int>(4 * limits.nesting + 32));  // the wire scan was stricter
  if (!proto->ParseFromCodedStream(&stream))
    return Error{Errc::bad_input, "not an ONNX file: protobuf cannot parse it"};
  return {};
}

template <class Proto>
Result<std::string> read_proto(const std::string& path, WireRoot root, const Limits& limits, Proto* proto) {
  const std::string bytes =
      TRY(read_file_limited(path, std::min(limits.file_bytes, (std::int64_t{1} << 31) - 1)));
  try {
    Status status = scan_wire(bytes, root, limits);
    if (status.ok()) status = parse(bytes, limits, proto);
    if (!status.ok()) return with_context(status.error(), escaped(path));
  } catch (const std::exception& e) {
    return Error{Errc::limit, escaped(path) + ": " + e.what()};
  }
  return hash_hex(bytes);
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
