// GatherElements(data, indices), attribute axis: y[.., k, ..] = data[.., indices[.., k, ..], ..], the indices
// in the shape of y. GatherElementsGrad(dy, indices, shape of data): ddata is zero but for the sums of dy at
// the places that were read, added in the order of dy. Negative indices count from the end; unknown ones that
// are out of range read zeros and add nothing.
#include <cstring>

#include "engine/ops/common.h"

namespace gradloom {
namespace {

bool is_index(DType t) { return t == DType::i32 || t == DType::i64; }

Status check_shapes(const InferContext& ctx, const Shape& data, std::int64_t axis) {
  const Shape& indices = ctx.shape(1);
  if (!is_index(ctx.dtype(1))) return infer_error(std::string("indices are ") + dtype_name(ctx.dtype(1)));
  if (indices.size() != data.size()) return infer_error("the indices must have the rank of the data");
  for (std::size_t d = 0; d < data.size(); ++d)
    if (static_cast<std::int64_t>(d) != axis && data[d] >= 0 && indices[d] > data[d])
      return infer_error("indices " + to_string(indices) + " reach beyond data " + to_string(data));
  const Tensor* known = ctx.constant(1);
  const std::int64_t size = data[static_cast<std::size_t>(axis)];
  for (std::int64_t i = 0; known != nullptr && size >= 0 && i < known->count(); ++i)
    if (known->int_at(i) < -size || known->int_at(i) >= size)
      return infer_error("index " + std::to_string(known->int_at(i)) + " is out of range for size " +
                         std::to_string(size));
  return {};
}

Status infer_gather_elements(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Shape& data = ctx.shape(0);
  TRY(check_shapes(ctx, data, TRY(normalized_axis(ctx.attrs.integer("axis"), data.size()))));
  ctx.outputs[0] = {ctx.dtype(0), ctx.shape(1)};
  return {};
}

// How the indices walk over the data: everything that depends on shapes only.
struct Walk {
  Shape indices;
  std::vector<std::int64_t> strides;  // of the data per dim of the indices; 0 along the axis
  std::int64_t size, stride;          // of the data along the axis
};

Walk walk_of(const Shape& indices, const Shape& data, std::int64_t axis) {
  Walk walk{indices, dense_strides(data), data[static_cast<std::size_t>(axis)], 0};
  std::swap(walk.stride, walk.strides[static_cast<std::size_t>(axis)]);
  return walk;
}

// Calls visit(position in the indices, position in the data) for every index, in row-major order; -1 for
// those out of range.
template <class Index, class Visit>
void for_each_element(const Walk& walk, const Index* indices, Visit visit) {
  const std::int64_t count = element_count(walk.indices), columns = walk.indices.back();
  for (std::int64_t first = 0; first < count; first += columns) {
    std::int64_t base = 0, row = first / columns;
    for (std::size_t d = walk.indices.size() - 1; d-- > 0; row /= walk.indices[d])
      base += row % walk.indices[d] * walk.strides[d];
    for (std::int64_t c = 0; c < columns; ++c) {
      std::int64_t k = static_cast<std::int64_t>(indices[first + c]);
      if (k < 0) k += walk.size;
      const bool inside = k >= 0 && k < walk.size;
      visit(first + c, inside ? base + c * walk.strides.back() + k * walk.stride : -1);
    }
  }
}

template <class Index>
Kernel gather_elements_kernel(Walk walk, std::size_t bytes) {
  Kernel kernel;
  kernel.name = "gather elements";
  kernel.run = [walk = std::move(walk), bytes](const LaunchArgs& launch) {
    const char* x = static_cast<const char*>(launch.inputs[0]);
    char* y = static_cast<char*>(launch.outputs[0]);
    for_each_element(walk, static_cast<const Index*>(launch.inputs[1]),
                     [&](std::int64_t i, std::int64_t place) {
                       if (place < 0)
                         std::memset(y + static_cast<std::size_t>(i) * bytes, 0, bytes);
                       else
                         std::memcpy(y + static_cast<std::size_t>(i) * bytes,
                                     x + static_cast<std::size_t>(place) * bytes, bytes);
                     });
  };
  return kernel;
}

Result<Kernel> prepare_gather_elements(const NodeTypes& types) {
  const Shape& data = types.inputs[0].shape;
  const Walk walk = walk_of(types.inputs[1].shape, data,
                            TRY(normalized_axis(types.attrs.integer("axis"), data.size())));
  const std::size_t bytes = dtype_bytes(types.inputs[0].dtype);
  if (types.inputs[1].dtype == DType::i32) return gather_elements_kernel<std::int32_t>(walk, bytes);
  return gather_elements_kernel<std::int64_t>(walk, bytes);
}

Status grad_gather_elements(GradContext& ctx) {
  if (!ctx.wants(0)) return {};
  if (!is_static(ctx.shape(ctx.in(0))))
    return infer_error("the gradient of GatherElements needs known dimensions of its data");
  ctx.set(0,
          ctx.b.op("GatherElementsGrad", {ctx.grad(), ctx.in(1), shape_of(ctx, ctx.in(0))}, ctx.node.attrs));
  return {};
}

std::vector<Sample> gather_elements_samples() {
  return {sample_of("rows", {}, {floats({4, 3}), ints({2, 3}, -4, 3)}),
          sample_of("labels", {{"axis", std::int64_t{1}}}, {floats({5, 7}), ints({5, 1}, 0, 6)}),
          sample_of("32-bit indices", {{"axis", std::int64_t{-1}}},
                    {floats({2, 3, 4}), ints({2, 2, 6}, 0, 3, DType::i32)}),
          sample_of("integers", {}, {ints({5}, -9, 9), ints({3}, 0, 4)})};
}

Status infer_gather_elements_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  const Tensor* shape = ctx.constant(2);
  if (shape == nullptr) return infer_error("GatherElementsGrad: the shape must be known before running");
  const Shape data = shape->to_i64();
  TRY(check_shapes(ctx, data, TRY(normalized_axis(ctx.attrs.integer("axis"), data.size()))));
  if (ctx.shape(0) != ctx.shape(1))
    return infer_error("GatherElementsGrad: the gradient must have the shape of the indices");
  ctx.outputs[0] = {ctx.dtype(0), data};
  return {};
}

template <class T, class Index>
Kernel scatter_add_kernel(Walk walk, std::int64_t count) {
  Kernel kernel;
  kernel.name = "scatter add";
  kernel.run = [walk = std::move(walk), count](const LaunchArgs& launch) {
    const T* dy = static_cast<const T*>(launch.inputs[0]);
    T* ddata = static_cast<T*>(launch.outputs[0]);
    std::memset(ddata, 0, static_cast<std::size_t>(count) * sizeof(T));
    for_each_element(walk, static_cast<const Index*>(launch.inputs[1]),
                     [&](std::int64_t i, std::int64_t place) {
                       if (place >= 0) ddata[place] += dy[i];
                     });
  };
  return kernel;
}

Result<Kernel> prepare_gather_elements_grad(const NodeTypes& types) {
  const Shape& data = types.outputs[0].shape;
  const Walk walk = walk_of(types.inputs[1].shape, data,
                            TRY(normalized_axis(types.attrs.integer("axis"), data.size())));
  const std::int64_t count = element_count(data);
  const bool narrow = types.inputs[1].dtype == DType::i32;
  if (types.outputs[0].dtype == DType::f32)
    return narrow ? scatter_add_kernel<float, std::int32_t>(walk, count)
                  : scatter_add_kernel<float, std::int64_t>(walk, count);
  if (types.outputs[0].dtype == DType::f64)
    return narrow ? scatter_add_kernel<double, std::int32_t>(walk, count)
                  : scatter_add_kernel<double, std::int64_t>(walk, count);
  return no_kernel(std::string("no kernel adds gradients of ") + dtype_name(types.outputs[0].dtype));
}

Status grad_gather_elements_grad(GradContext& ctx) {
  if (ctx.wants(0)) ctx.set(0, ctx.b.op("GatherElements", {ctx.grad(), ctx.in(1)}, ctx.node.attrs));
  return {};
}

std::vector<Sample> gather_elements_grad_samples() {
  return {sample_of("repeated", {}, {floats({6, 3}), ints({6, 3}, -4, 3), known_ints({4, 3})}),
          sample_of("labels", {{"axis", std::int64_t{1}}},
                    {floats({5, 1}), ints({5, 1}, 0, 6), known_ints({5, 7})})};
}

}  // namespace

const OpDef gather_elements_op = {.name = "GatherElements",
                                  .summary = "Elements chosen by indices along an axis",
                                  .min_inputs = 2,
                                  .max_inputs = 2,
                                  .infer = infer_gather_elements,
                                  .grad = grad_gather_elements,
                                  .cost = copy_cost,
                                  .cpu = prepare_gather_elements,
                                  .samples = gather_elements_samples};
const OpDef gather_elements_grad_op = {.name = "GatherElementsGrad",
                                       .domain = "gradloom",
                                       .summary = "Gradient of GatherElements: elements added up by index",
                                       .min_inputs = 3,
                                       .max_inputs = 3,
                                       .infer = infer_gather_elements_grad,
                                       .grad = grad_gather_elements_grad,
                                       .cost = input_cost,
                                       .cpu = prepare_gather_elements_grad,
                                       .samples = gather_elements_grad_samples};

}  // namespace gradloom
