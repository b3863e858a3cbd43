// NumPy's .npz (a zip of .npy arrays, stored or deflated) and .npy files. Formats: numpy.lib.format 1.0
// to 3.0; PKWARE APPNOTE.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "engine/base/tensor.h"

namespace gradloom {

// Arrays by name (without ".npy"); a plain .npy file gives one array named after the file. Little-endian f2
// f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 in C order; anything else, a wrong checksum and sizes that do not agree
// are Errc::bad_input. `wanted` sees each array's header before its contents are read: false leaves it
// without storage, an error ends the reading.
using NpzWanted = std::function<Result<bool>(const std::string& name, const Type& type)>;
Result<std::map<std::string, Tensor>> read_npz(const std::string& path, const NpzWanted& wanted = nullptr);

// The array of a .npy file, whose contents stay there (Tensor::in_file). Errors as above.
Result<Tensor> open_npy_file(const std::string& path);

constexpr std::int64_t kMostNpzBytes = 0xfffffffe;  // of an archive as written

// Stored, atomically, the same bytes for the same arrays. bf16 and small floats, which NumPy lacks, are
// written as f4, small integers as i1 and u1. Errc::limit beyond 4 GiB.
Status write_npz(const std::string& path, const std::map<std::string, Tensor>& arrays);

}  // namespace gradloom
