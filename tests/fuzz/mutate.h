// Mutations that keep an ONNX file parseable: fields set, cleared, repeated, exchanged between places of the
// file, numbers at the edges, operators replaced. Plain flips of bytes mostly end in the wire scan; these
// reach shape inference, autodiff and the passes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradloom::fuzz {

// One to four changes, the same for the same seed. Bytes that are no ModelProto get flips of bytes.
std::string mutate_model(std::string_view bytes, std::uint64_t seed);
std::string mutate_bytes(std::string_view bytes, std::uint64_t seed);

}  // namespace gradloom::fuzz
