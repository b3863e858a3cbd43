#include "engine/ops/indexing/index_walks.h"
#include "engine/ops/copies.h"
#include "engine/ops/preparation.h"
#include "kernels/launcher.h"

#include <algorithm>

namespace gradloom::indexing {
namespace {

// Dims of the items, those of size 1 dropped and neighbours that are stepped through evenly merged.
Status set_items(kernels::IndexWalk& walk, const Shape& dims, const std::vector<std::int64_t>& base) {
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == 1) continue;
    const int last = walk.rank - 1;
    if (last >= 0 && walk.base[last] == base[d] * dims[d]) {
      walk.dims[last] *= dims[d];
      walk.base[last] = base[d];
      continue;
    }
    if (walk.rank == kernels::kEwMaxRank) return no_kernel("indices of too many separate dimensions");
    walk.dims[walk.rank] = dims[d];
    walk.base[walk.rank++] = base[d];
  }
  return {};
}

std::int64_t product(const Shape& shape, std::size_t from, std::size_t to) {
  std::int64_t count = 1;
  for (std::size_t d = from; d < to; ++d) count *= shape[d];
  return count;
}

}  // namespace

bool is_index(DType t) { return t == DType::i32 || t == DType::i64; }

Status check_range(const Tensor* indices, std::int64_t size) {
  if (indices == nullptr || size < 0) return {};
  for (std::int64_t i = 0, n = indices->count(); i < n; ++i) {
    const std::int64_t v = indices->int_at(i);
    if (v < -size || v >= size)
      return infer_error("index " + std::to_string(v) + " is out of range for size " + std::to_string(size));
  }
  return {};
}

Status check_nd_range(const Tensor* indices, const Shape& data, std::int64_t batch_dims) {
  if (indices == nullptr) return {};
  const std::int64_t depth = indices->shape().back();
  for (std::int64_t i = 0, n = indices->count(); i < n; ++i) {
    const std::int64_t v = indices->int_at(i), axis = batch_dims + i % depth,
                       size = data[static_cast<std::size_t>(axis)];
    if (size >= 0 && (v < -size || v >= size))
      return infer_error("index " + std::to_string(v) + " is out of range for axis " + std::to_string(axis) +
                         " of size " + std::to_string(size));
  }
  return {};
}

Result<kernels::IndexWalk> elements_walk(const Type& indices, const Shape& data, std::int64_t axis) {
  const auto at = static_cast<std::size_t>(axis);
  std::vector<std::int64_t> strides = dense_strides(data);
  kernels::IndexWalk walk{};
  walk.index_dtype = indices.dtype;
  walk.depth = 1;
  walk.outer = product(indices.shape, 0, at);
  walk.n = indices.shape[at];
  walk.inner = product(indices.shape, at + 1, indices.shape.size());
  walk.block = 1;
  walk.sizes[0] = data[at];
  walk.steps[0] = strides[at];
  strides[at] = 0;
  TRY(set_items(walk, indices.shape, strides));
  return walk;
}

Result<kernels::IndexWalk> nd_walk(const Type& indices, const Shape& data, std::int64_t batch_dims) {
  const auto batch = static_cast<std::size_t>(batch_dims);
  const auto depth = static_cast<std::size_t>(indices.shape.back());
  if (depth > static_cast<std::size_t>(kernels::kEwMaxRank))
    return no_kernel("indices of more than 8 dimensions");
  const std::vector<std::int64_t> strides = dense_strides(data);
  const Shape items(indices.shape.begin(), indices.shape.end() - 1);
  kernels::IndexWalk walk{};
  walk.index_dtype = indices.dtype;
  walk.depth = static_cast<int>(depth);
  walk.outer = product(items, 0, batch);
  walk.n = product(items, batch, items.size());
  walk.inner = 1;
  walk.block = product(data, batch + depth, data.size());
  for (std::size_t j = 0; j < depth; ++j) {
    walk.sizes[j] = data[batch + j];
    walk.steps[j] = strides[batch + j];
  }
  std::vector<std::int64_t> base(items.size(), 0);
  std::copy_n(strides.begin(), batch, base.begin());
  TRY(set_items(walk, items, base));
  return walk;
}

Kernel gather_kernel(const char* name, const kernels::IndexWalk& walk, DType dtype) {
  Kernel kernel;
  kernel.name = name;
  kernel.run = [walk, bytes = dtype_bytes(dtype)](const LaunchArgs& launch) {
    launch.on.index_gather({bytes, walk, launch.inputs[0], launch.inputs[1], launch.outputs[0]});
  };
  return kernel;
}

Result<Kernel> scatter_kernel(const NodeTypes& types, const kernels::IndexWalk& walk,
                              kernels::ScatterReduction reduction, std::size_t data_input,
                              std::size_t updates_input) {
  const Type& out = types.outputs[0];
  const DType t = out.dtype;
  const bool reducible = t == DType::f32 || t == DType::f64 || is_index(t) ||
                         (is_half(t) && kernels::computes_halves(types.target));
  if (reduction != kernels::ScatterReduction::none && !reducible)
    return no_kernel(std::string("no kernel reduces ") + dtype_name(t));
  const std::int64_t count = element_count(out.shape);
  const kernels::IndexScatterArgs args{t,       reduction, walk,    walk.block == 0 ? 0 : count / walk.block,
                                       nullptr, nullptr,   nullptr, nullptr};
  Kernel kernel;
  kernel.name = "scatter";
  kernel.workspace_bytes = kernels::workspace_bytes(types.target, args);
  kernel.run = [=, zero = Tensor::scalar(t, 0)](const LaunchArgs& launch) {
    if (data_input == kZeros) {
      launch.on.fill({dtype_bytes(t), count, zero.data(), launch.outputs[0]});
    } else {
      copy_elements(launch.on, t, count, launch.inputs[data_input], launch.outputs[0]);
    }
    kernels::IndexScatterArgs a = args;
    a.indices = launch.inputs[1];
    a.updates = launch.inputs[updates_input];
    a.out = launch.outputs[0];
    a.workspace = launch.workspace;
    if (a.places > 0) launch.on.index_scatter(a);
  };
  return kernel;
}

}  // namespace gradloom::indexing
