// Optimizer states in 8 bits (kernels/block_quantization.h) as host tensors: how the training graph types them, and the way to
// and from the form in which files hold them: codes, u8 of the parameter's shape, and scales, f32 [blocks of 256].
#pragma once

#include "engine/base/tensor.h"
#include "kernels/optimizer_kind.h"

namespace gradloom {

// Of the state of a parameter of this shape: u8 [scales, codes].
Type encoded_type(const Shape& parameter);

struct EightBitState {
  Tensor codes, scales;
};
Type codes_type(const Shape& parameter);
Type scales_type(const Shape& parameter);
// Both share the memory of the state.
EightBitState split_state(const Tensor& encoded, const Shape& parameter);
// REQUIRES tensors of the types above. Errc::io: as Tensor::read.
Result<Tensor> joined_state(const EightBitState& state);

// The numbers, f32 of the parameter's shape, which encode to the same bytes again.
Result<Tensor> decoded_state(const EightBitState& state, kernels::StateRange range);
// numbers: floats. Errc::io: as Tensor::read.
Result<Tensor> encoded_state(const Tensor& numbers, kernels::StateRange range);

}  // namespace gradloom
