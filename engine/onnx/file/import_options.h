// How a model file is to be read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/limits.h"
#include "engine/base/tensor.h"

namespace gradloom {

struct ImportOptions {
  std::map<std::string, std::int64_t> dims;  // --dim NAME=N
  bool allow_unknown = false;     // viewing: unknown operators become opaque nodes instead of an error
  DType float_type = DType::f32;  // f64: every floating point tensor becomes f64 (reference runs)
  // The type in the graph of a tensor that the file says is of this type.
  DType imported(DType type) const { return float_type == DType::f64 && is_float(type) ? DType::f64 : type; }
  // Globs over names of initializers: trained although the file or their contents say otherwise.
  std::vector<std::string> train;
  Limits limits;
  // Graph inputs with contents known before running (shapes, axes): they become constants.
  std::map<std::string, Tensor> known_inputs;
};

}  // namespace gradloom
