// Shared by the rows that read and write chosen places: how indices walk over data, and the kernels.
#pragma once

#include "engine/ir/op.h"
#include "kernels/launcher.h"

namespace gradloom::indexing {

bool is_index(DType t);  // i32, i64
// Known indices are checked once, when planning; unknown ones that are out of range have no place.
Status check_range(const Tensor* indices, std::int64_t size);
// The same of indices [batch.., items.., depth]: entry j of an item is within axis batch_dims + j of data.
Status check_nd_range(const Tensor* indices, const Shape& data, std::int64_t batch_dims);

// Place of item i: data[i_0, .., indices[i], ..] with the index at `axis`. indices: the rank of data.
Result<kernels::IndexWalk> elements_walk(const Type& indices, const Shape& data, std::int64_t axis);
// indices: [batch.., items.., depth], the first `batch_dims` shared with data; item i: data[batch, indices[i,
// 0], .., indices[i, depth - 1]].
Result<kernels::IndexWalk> nd_walk(const Type& indices, const Shape& data, std::int64_t batch_dims);

// Inputs: data, indices.
Kernel gather_kernel(const char* name, const kernels::IndexWalk& walk, DType dtype);
// Output 0 is input `data_input` with updates of input `updates_input` scattered into
// it; kZeros: zeros with them.
constexpr std::size_t kZeros = SIZE_MAX;
Result<Kernel> scatter_kernel(const NodeTypes& types, const kernels::IndexWalk& walk,
                              kernels::ScatterReduction reduction, std::size_t data_input,
                              std::size_t updates_input);

}  // namespace gradloom::indexing
