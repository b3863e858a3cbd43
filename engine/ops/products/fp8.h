// Products of numbers of 8 bits with delayed scaling (Micikevicius et al. 2022, FP8 formats for deep learning; NVIDIA's Transformer Engine).
//   Fp8Quantize   codes of a tensor and what they are multiplied by to stand for it
//   Fp8MatMul     the product of two such tensors
//   Fp8Scales     what the largest magnitudes of the last steps make of the scales (engine/ops/training/fp8_scales.cpp)
// A scale is what a tensor is multiplied by before it is rounded: 2^-margin times the format's largest number over the largest magnitude.
// What is kept of magnitudes is their part of the format's largest number, so that a scale is 2^-margin over it.
#pragma once

#include <set>
#include <string>

#include "engine/ir/graph.h"

namespace gradloom {

// E4M3: 4 bits of exponent, 3 of fraction, up to 448, no infinities. E5M2: 5 and 2, up to 57344.
struct Fp8Format {
  const char* name;
  DType dtype;
  double largest;
};
inline constexpr Fp8Format kFp8Formats[] = {{"e4m3", DType::f8e4m3fn, 448}, {"e5m2", DType::f8e5m2, 57344}};
const Fp8Format* find_fp8_format(const std::string& name);  // null: none

// Scales stay in between, so that they, their products and the inverses of these are normal numbers of f32.
inline constexpr double kLeastFp8Scale = 0x1p-63, kMostFp8Scale = 0x1p63;

// States that Fp8Scales updates. A training that lacks them begins without: in its first step each tensor is scaled by its own magnitude.
std::set<ValueId> fp8_states(const Graph& graph);
// Their names begin with this.
inline constexpr const char* kFp8StatePrefix = "gradloom/fp8_";

}  // namespace gradloom
