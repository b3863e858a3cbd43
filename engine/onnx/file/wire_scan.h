// A look over the bytes of an ONNX file before protobuf allocates anything for them: is it a whole ONNX
// model, does every field belong where it is, how deep is it, how many objects would it become. Reads each
// byte at most once, allocates nothing. Source of the fields: onnx.proto of ONNX 1.12, and the fields that
// later releases (to 1.18) added.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/base/result.h"
#include "engine/base/limits.h"

namespace gradloom {

enum class WireRoot { model, tensor };

// Errc::bad_input: truncated, foreign, a field twice, unknown or of the wrong kind (with its byte offset).
// Errc::limit: more nodes, objects, nesting or longer names than `limits` allow.
Status scan_wire(std::string_view bytes, WireRoot root, const Limits& limits);
// Of the first bytes of a file: that they end too early is no error.
Status scan_wire_beginning(std::string_view bytes, WireRoot root, const Limits& limits);

}  // namespace gradloom
