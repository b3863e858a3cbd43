// The header of a .npy array: a Python dict with keys descr, fortran_order and shape. numpy.lib.format.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/tensor.h"

namespace gradloom {

// Of the dict's text. Only what NumPy itself writes is understood: the three keys,
// a plain dtype text, a flat tuple.
Result<Type> parse_npy_header(std::string_view text);

// Magic, version 1.0, length and dict, padded so that the data begins at a multiple of 64 bytes. No bf16, no
// small types: NumPy has none.
std::string npy_header(const Type& type);

}  // namespace gradloom
