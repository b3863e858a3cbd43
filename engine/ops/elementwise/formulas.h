// Operators that are one formula or a few per element: the rows made from kernels/elementwise.def, and the
// common way from statements (fused.h) to a CPU kernel that all of them, fused regions included,
// are prepared with.
#pragma once

#include <string>
#include <vector>

#include "engine/ops/elementwise/fused.h"
#include "engine/ir/op.h"

namespace gradloom {

// One row per EwOp that stands for a whole node (Dropout and DropoutMask have rows of their own elsewhere).
const std::vector<OpDef>& elementwise_rows();

// `code` over the node's inputs i0, i1, ..; the scalars `extra` follow as further inputs. `outputs`: the
// statement behind each output of the node. Inputs that are known scalars become constants of the program.
Result<Kernel> prepare_elementwise(const std::vector<FusedStatement>& code,
                                   const std::vector<std::int64_t>& outputs, const NodeTypes& types,
                                   const std::vector<Tensor>& extra = {});

// The same for a region whose rows are the last `row_dims` dims, on GPUs. REQUIRES rows of at most kEwMostRow elements.
Result<Kernel> prepare_row_program(const std::vector<FusedStatement>& code,
                                   const std::vector<std::int64_t>& outputs, std::size_t row_dims,
                                   const NodeTypes& types);

// Attributes `saturate` and `round_mode` of Cast as EwInstruction::key: 0 unless `to` is a small float.
Result<std::uint64_t> cast_mode(const Attrs& attrs, DType to);

// Broadcast of all present inputs.
Result<Shape> broadcast_inputs(const InferContext& ctx);

}  // namespace gradloom
