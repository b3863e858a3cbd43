// A look over the bytes of an ONNX file before protobuf allocates anything for them: is it a whole ONNX
// model, does every field belong where it is, how deep is it, how many objects would it become. Reads each
// byte at most once, allocates only the bytes that it keeps. Source of the fields: onnx.proto of ONNX 1.12,
// and the fields that later releases (to 1.18) added.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "engine/base/result.h"
#include "engine/base/limits.h"
#include "engine/onnx/file/kept_bytes.h"

namespace gradloom {

enum class WireRoot { model, tensor };

// Bytes that come block after block: `next` gives the next ones, at least one, until all were given.
struct WireBlocks {
  std::int64_t bytes = 0;  // all of them
  std::function<Result<std::string_view>()> next;
};

// Errc::bad_input: truncated, foreign, a field twice, unknown or of the wrong kind (with its byte offset).
// Errc::limit: more nodes, objects, nesting or longer names than `limits` allow. What comes to `kept` is what
// protobuf is to parse: all bytes, or with `leave_contents` those of a message whose initializers (of its graph and
// of those inside) have raw contents of 4 KiB and more left out, and told by where they are in the file
// (contents_in_file.h); the lengths around them are mended in place.
Status scan_wire(const WireBlocks& blocks, WireRoot root, const Limits& limits, KeptBytes* kept,
                 bool leave_contents);
// Keeps nothing.
Status scan_wire(std::string_view bytes, WireRoot root, const Limits& limits);

}  // namespace gradloom
