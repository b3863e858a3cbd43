// Arguments of kernels that take every element by itself (conventions: kernels/arguments.h).
#pragma once

#include "kernels/types.h"

namespace gradloom::kernels {

struct EwProgram;  // kernels/elementwise.h

// What random kernels read of a step, in the memory of the device (new contents for every replay of a step).
struct RandomState {
  std::uint64_t seed = 0, step = 0;
};

// out = program(inputs). Philox4x32-10: counter = (element_index / 4, step), key = seed ^ node key. random:
// null when the program draws none.
struct ElementwiseArgs {
  const EwProgram* program;
  const void* const* inputs;
  void* const* outputs;
  const RandomState* random;
};

// y = u >= ratio ? x * (1 / (1 - ratio)) : 0, x, y: [batch, rows, columns] dense, a part of a larger tensor:
// the random number u of element (b, r, c) is that of number first + b * batch_step + r * row_step + c there
// (kernels/philox.h). May be in place.
struct DropoutArgs {
  DType dtype;
  std::int64_t batch, rows, columns, first, batch_step, row_step;
  double ratio;
  std::uint64_t key;
  const void* x;
  void* y;
  const RandomState* random;
};

// out[i0..] = in[permuted/strided index]: transpose, slice, expand, split, concat pieces, pad interior.
// dims: iteration space; strides in elements; negative in_strides allowed (Slice with negative step).
struct StridedCopyArgs {
  std::size_t element_bytes;
  int rank;
  std::int64_t dims[kEwMaxRank], in_strides[kEwMaxRank], out_strides[kEwMaxRank];
  const void* in;  // already advanced to the first element
  void* out;
};

struct FillArgs {
  std::size_t element_bytes;
  std::int64_t count;
  const void* value;
  void* out;
};

// out = data, host memory read when the kernel is queued. GPU only,
// for small tensors known when planning: at most kStoreMaxBytes.
constexpr std::int64_t kStoreMaxBytes = 1 << 16;
struct StoreArgs {
  std::int64_t bytes;
  const void* data;
  void* out;
};

}  // namespace gradloom::kernels

// clang-format off
// Its kernels: K(name, arguments).
#define GRADLOOM_ELEMENT_KERNELS(K) \
  K(dropout, DropoutArgs) K(strided_copy, StridedCopyArgs) K(fill, FillArgs)
// clang-format on
