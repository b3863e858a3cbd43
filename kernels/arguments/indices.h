// Arguments of kernels that read or write where indices say (conventions: kernels/arguments.h).
#pragma once

#include "kernels/types.h"

namespace gradloom::kernels {

// data: [outer, axis_size, inner], indices: [count] (i32 or i64, negative counts from the end) -> out:
// [outer, count, inner]. For indices out of range the kernel writes zeros.
struct GatherArgs {
  std::size_t element_bytes;
  DType index_dtype;
  std::int64_t outer, axis_size, inner, count;
  const void *data, *indices;
  void* out;
};
// ddata[o, indices[k], :] += dy[o, k, :], from zeros, or where `adds` from what is there: a row gets the sum of its sources over
// `divisor`, and rows without sources stay. Deterministic: additions in order of k per destination row.
struct GatherGradArgs {
  DType dtype, index_dtype;
  std::int64_t outer, axis_size, inner, count;
  const void *dy, *indices;
  void* ddata;
  void* workspace;
  bool adds = false;
  double divisor = 1;  // where `adds`
};

// Places of a tensor that indices choose. Items are numbered row-major over dims and lie in [outer, n,
// inner] so that items of different outer or inner never share a place. Item i begins at sum_d i_d base[d];
// each of its `depth` indices, neighbours in the index tensor, moves it by steps[j]. sizes[j]: positions
// along j; negative indices count from the end, an item with one out of range has no place. At a place lie
// `block` elements, and places are multiples of `block` apart. (ONNX GatherElements, GatherND,
// ScatterElements, ScatterND)
struct IndexWalk {
  DType index_dtype;
  int rank, depth;
  std::int64_t outer, n, inner, block;
  std::int64_t dims[kEwMaxRank], base[kEwMaxRank], sizes[kEwMaxRank], steps[kEwMaxRank];
};
// out[i, :] = data[place(i), :], zeros for items without a place.
struct IndexGatherArgs {
  std::size_t element_bytes;
  IndexWalk walk;
  const void *data, *indices;
  void* out;
};
// out[place(i), :] = updates[i, :] or reduced with it, in order of i; `out` holds the data before, `places`
// blocks of it. none: any dtype; reductions: f32, f64 (on a GPU half types), i32, i64. Floats are accumulated
// in their own type, half types in f32.
enum class ScatterReduction : std::uint8_t { none, add, mul, max, min };
struct IndexScatterArgs {
  DType dtype;
  ScatterReduction reduction;
  IndexWalk walk;
  std::int64_t places;
  const void *indices, *updates;
  void *out, *workspace;
};
// out[o, d, i] = values[indices[o, i] == d ? 1 : 0]; negative indices count from depth. values: [off, on].
// Any index type. (ONNX-11 OneHot)
struct OneHotArgs {
  std::size_t element_bytes;
  DType index_dtype;
  std::int64_t outer, depth, inner;
  const void *indices, *values;
  void* out;
};

}  // namespace gradloom::kernels

// clang-format off
// Its kernels: K(name, arguments).
#define GRADLOOM_INDEX_KERNELS(K) \
  K(gather, GatherArgs) K(gather_grad, GatherGradArgs) K(index_gather, IndexGatherArgs) \
  K(index_scatter, IndexScatterArgs) K(one_hot, OneHotArgs)
// clang-format on
