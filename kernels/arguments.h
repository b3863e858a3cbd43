// The arguments of the kernels, one plain struct each, the same for every device: on the CPU the pointers are
// host memory, on a GPU memory of that device (but lists of pointers and sizes, shapes and programs are
// always host memory). Kernels take no memory, cannot fail on valid arguments and log nothing.
//
// Conventions: all tensors dense row-major. `dtype` is f32 or f64 (on a GPU also f16 or bf16: half types) for
// floating point work, accumulated in at least f32 in an order that depends on the shape alone. Letters: rows
// x cols for anything normalized or reduced over its last axes; outer x n x inner when the axis is inside.
#pragma once

#include "kernels/arguments/attention.h"
#include "kernels/arguments/elements.h"
#include "kernels/arguments/images.h"
#include "kernels/arguments/indices.h"
#include "kernels/arguments/losses.h"
#include "kernels/arguments/normalization.h"
#include "kernels/arguments/optimizers.h"
#include "kernels/arguments/products.h"
#include "kernels/arguments/recurrent.h"
#include "kernels/arguments/rows.h"
#include "kernels/target.h"

namespace gradloom::kernels {

// Bytes of workspace that a kernel needs on a device of this kind: from the arguments without their pointers.
std::size_t workspace_bytes(Target target, const ReduceArgs& args);
std::size_t workspace_bytes(Target target, const LayerNormGradArgs& args);
std::size_t workspace_bytes(Target target, const GroupNormGradArgs& args);
std::size_t workspace_bytes(Target target, const BatchNormArgs& args);
std::size_t workspace_bytes(Target target, const BatchNormGradArgs& args);
std::size_t workspace_bytes(Target target, const GatherGradArgs& args);
std::size_t workspace_bytes(Target target, const IndexScatterArgs& args);
std::size_t workspace_bytes(Target target, const DeterminantArgs& args);
std::size_t workspace_bytes(Target target, const DeterminantGradArgs& args);
std::size_t workspace_bytes(Target target, const TopKArgs& args);
std::size_t workspace_bytes(Target target, const GridSampleArgs& args);
std::size_t workspace_bytes(Target target, const GridSampleGradArgs& args);
std::size_t workspace_bytes(Target target, const NllLossArgs& args);
std::size_t workspace_bytes(Target target, const SoftmaxCrossEntropyArgs& args);
std::size_t workspace_bytes(Target target, const OptimizerArgs& args);
std::size_t workspace_bytes(Target target, const GlobalNormArgs& args);
std::size_t workspace_bytes(Target target, const ConvolutionArgs& args);         // gpu
std::size_t workspace_bytes(Target target, const GemmArgs& args);                // gpu
std::size_t workspace_bytes(Target target, const FlashAttentionGradArgs& args);  // gpu

}  // namespace gradloom::kernels
