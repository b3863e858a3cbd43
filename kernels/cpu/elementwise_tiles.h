// The loops of the elementwise interpreter: one function per operator and type over a tile of elements.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {

// out[i] = op(a[i], b[i], c[i]) for i in [0, n). Operands that the operator does not have are not read.
// out may be one of the operands (the same elements).
using TileFn = void (*)(const void* a, const void* b, const void* c, void* out, i64 n);

// Null when the operator has no meaning for the type (Cast: see cast_tile; dropout: see dropout_tile).
TileFn operator_tile(EwOp op, DType type);
// Conversion of n elements; `mode`: of small floats (small_types.h).
void cast_tile(DType from, DType to, unsigned mode, const void* x, void* out, i64 n);

// Element `first` (a multiple of 4) is the number, in the whole tensor, of the tile's first element.
struct DropoutTile {
  i64 first;
  std::uint64_t stream, step;  // stream = seed ^ key
  bool scalars = false;        // each operand but x is one number, repeated
};
void dropout_tile(const DropoutTile& tile, DType type, const void* x, const void* ratio, const void* training,
                  void* out, i64 n);
void dropout_mask_tile(const DropoutTile& tile, DType type, const void* ratio, const void* training,
                       void* keep, i64 n);
void uniform_tile(const DropoutTile& tile, DType type, const void* low, const void* high, void* out, i64 n);

}  // namespace gradloom::kernels::GRADLOOM_ISA
