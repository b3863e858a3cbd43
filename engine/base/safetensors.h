// Hugging Face's .safetensors: 8 bytes little-endian length, a JSON header {"name": {"dtype": "F32", "shape": [2, 3],
// "data_offsets": [0, 24]}, .., "__metadata__": {"key": "text"}}, then the tensors' bytes, row-major and without holes.
// Format: https://github.com/huggingface/safetensors, whose rules for readers hold here too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/input_file.h"
#include "engine/base/tensor.h"

namespace gradloom {

struct Safetensors {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

constexpr std::int64_t kMostSafetensorsHeaderBytes = 100'000'000;  // the format's
constexpr std::int64_t kMostSafetensors = 500'000;                 // tensors in a file that is read

// Only the header is read: contents stay in the file (Tensor::in_file), but for booleans, whose bytes become
// 0 or 1. Dtypes F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL F8_E4M3 F8_E5M2 F8_E8M0. Errc::bad_input,
// naming file and tensor, for whatever breaks the format: sizes that do not agree, holes, overlaps, bytes that
// belong to nothing, names that are there twice. Errc::limit beyond the limits above.
Result<Safetensors> read_safetensors(const std::string& path);
// The same of a file that is open; `called`: how errors call it.
Result<Safetensors> read_safetensors(const std::shared_ptr<const InputFile>& file, const std::string& called);

// Types that the format lacks are written as the next that holds them: integers of 2 and 4 bits as I8 and U8, other
// small floats as F32.
DType safetensors_type(DType dtype);

// The same bytes for the same tensors: wide elements first, then by name, as the format's own writer. Goes to
// `sink` in pieces, contents that are in files too. Errc::bad_input: a name that is not UTF-8.
using SafetensorsSink = std::function<Status(std::string_view piece)>;
Status write_safetensors(const SafetensorsSink& sink, const Safetensors& contents);
Status write_safetensors(const std::string& path, const Safetensors& contents);  // atomically

}  // namespace gradloom
