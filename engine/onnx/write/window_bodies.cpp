// Gradients of convolutions and pools, and of what picks elements.
#include <algorithm>
#include <numeric>

#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/onnx/write/bodies.h"

namespace gradloom {
namespace {

using Values = std::vector<ValueId>;
using Ints = std::vector<std::int64_t>;

Ints ints(const Body& body, const char* name, std::size_t count, std::int64_t fallback) {
  return body.attrs().integers(name, Ints(count, fallback));
}

// Of a window: how much longer the input is than what the windows of the output cover.
Ints uncovered(const Body& body, const Shape& in, const Shape& out, const Ints& kernel) {
  const std::size_t rank = kernel.size();
  const Ints strides = ints(body, "strides", rank, 1), dilations = ints(body, "dilations", rank, 1),
             pads = ints(body, "pads", 2 * rank, 0);
  Ints more;
  for (std::size_t i = 0; i < rank; ++i)
    more.push_back(in[i + 2] + pads[i] + pads[i + rank] - (out[i + 2] - 1) * strides[i] -
                   (kernel[i] - 1) * dilations[i] - 1);
  return more;
}

// dy placed back by windows of `weight`: a ConvTranspose, over an input that some windows may not reach.
Result<ValueId> spread(Body& body, ValueId dy, ValueId weight, std::int64_t group, const Shape& in) {
  const Ints kernel(body.shape(weight).begin() + 2, body.shape(weight).end());
  const std::size_t rank = kernel.size();
  const Ints more = uncovered(body, in, body.shape(dy), kernel), strides = ints(body, "strides", rank, 1);
  for (std::size_t i = 0; i < rank; ++i)
    if (more[i] < 0) return infer_error("windows beyond the padding");
  Attrs attrs{{"group", group},
              {"strides", strides},
              {"dilations", ints(body, "dilations", rank, 1)},
              {"pads", ints(body, "pads", 2 * rank, 0)},
              {"kernel_shape", kernel}};
  if (std::any_of(more.begin(), more.end(), [](std::int64_t n) { return n > 0; }))
    attrs.set("output_padding", more);
  return body.op("ConvTranspose", {dy, weight}, std::move(attrs));
}

Result<Values> conv_grad_data(Body& body) {
  return Values{TRY(spread(body, body.in[0], body.in[1], body.attrs().integer("group", 1),
                           body.attrs().integers("input_shape")))};
}

// dw = a convolution of x by dy, with the batch as channels; groups stay groups.
Result<Values> conv_grad_weights(Body& body) {
  const ValueId dy = body.in[0], x = body.in[1];
  const Shape from = body.shape(x), out = body.shape(dy), w = body.attrs().integers("weight_shape");
  const std::size_t rank = w.size() - 2;
  const std::int64_t n = from[0], group = body.attrs().integer("group", 1);
  // [n, group * parts, spatial..] -> [a, b, n.. ] by this order of (n, group, part)
  const auto split = [&](ValueId of, const Ints& order, const Shape& joined) {
    const Shape shape = body.shape(of);
    Shape grouped = {n, group, shape[1] / group};
    Ints perm = order;
    Shape result = joined;
    for (std::size_t i = 2; i < shape.size(); ++i) {
      grouped.push_back(shape[i]);
      perm.push_back(static_cast<std::int64_t>(i) + 1);
      result.push_back(shape[i]);
    }
    return body.reshape(body.transpose(body.reshape(of, grouped), perm), result);
  };
  const ValueId image = split(x, {2, 1, 0}, {from[1] / group, group * n}),
                filter = split(dy, {1, 2, 0}, {out[1], n});
  const ValueId wide = body.op("Conv", {image, filter},
                               {{"group", group},
                                {"strides", ints(body, "dilations", rank, 1)},
                                {"dilations", ints(body, "strides", rank, 1)},
                                {"pads", ints(body, "pads", 2 * rank, 0)}});
  Ints starts(rank, 0), ends(w.begin() + 2, w.end()), axes(rank);
  std::iota(axes.begin(), axes.end(), std::int64_t{2});
  const ValueId kept = body.op("Slice", {wide, body.b.i64s(starts), body.b.i64s(ends), body.b.i64s(axes)});
  Ints perm(rank + 2);
  std::iota(perm.begin(), perm.end(), std::int64_t{0});
  std::swap(perm[0], perm[1]);
  return Values{body.transpose(kept, perm)};
}

// Output 2, ours: the places of the largest within their planes.
Result<Values> max_pool(Body& body) {
  if (body.attrs().integer("storage_order") != 0) return infer_error("indices by columns");
  const Shape x = body.shape(body.in[0]);
  const auto out = body.b.ops(op_by_name("MaxPool"), {body.in[0]}, body.attrs(), 2);
  const std::int64_t planes = x[0] * x[1], plane = dim_product(x, 2, x.size());
  Ints offsets;
  for (std::int64_t i = 0; i < planes; ++i) offsets.push_back(i * plane);
  Shape shape(x.size(), 1);
  shape[0] = x[0];
  shape[1] = x[1];
  const ValueId begins = body.reshape(body.b.i64s(offsets), shape);
  return Values{out[0], out[1], body.op("Sub", {out[1], begins})};
}

Result<Values> max_pool_grad(Body& body) {
  const Shape in = body.attrs().integers("input_shape"), out = body.shape(body.in[0]);
  const auto flat = [](const Shape& s) { return Shape{s[0], s[1], dim_product(s, 2, s.size())}; };
  const ValueId zeros = body.zeros(body.dtype(body.in[0]), flat(in));
  const ValueId dx = body.op(
      "ScatterElements", {zeros, body.reshape(body.in[1], flat(out)), body.reshape(body.in[0], flat(out))},
      {{"axis", std::int64_t{2}}, {"reduction", std::string("add")}});
  return Values{body.reshape(dx, in)};
}

Result<Values> average_pool_grad(Body& body) {
  const Shape in = body.attrs().integers("input_shape");
  const Ints kernel = body.attrs().integers("kernel_shape");
  const Ints pads = ints(body, "pads", 2 * kernel.size(), 0);
  const bool padded = std::any_of(pads.begin(), pads.end(), [](std::int64_t n) { return n != 0; });
  const bool sum = body.attrs().integer("sum") != 0;
  if (kernel.empty()) return infer_error("a pool without kernel_shape");
  if (!sum && padded && body.attrs().integer("count_include_pad") == 0)
    return infer_error("an average that leaves the padding out");
  ValueId dy = body.in[0];
  double count = 1;
  for (const std::int64_t k : kernel) count *= static_cast<double>(k);
  if (!sum) dy = body.op("Div", {dy, body.number_like(dy, count)});
  Shape weight = {in[1], 1};
  weight.insert(weight.end(), kernel.begin(), kernel.end());
  const ValueId ones = body.op("Expand", {body.number_like(dy, 1), body.b.i64s(weight)});
  return Values{TRY(spread(body, dy, ones, in[1], in))};
}

// ---- elements -------------------------------------------------------------------------------------------------

// The rows `dy` added up by `indices`, in zeros of the result's shape.
Result<ValueId> summed_rows(Body& body, ValueId dy, ValueId indices) {
  const Shape shape = body.types.outputs[0].shape;
  const std::size_t rank = shape.size(), picks = body.shape(indices).size();
  const auto axis = static_cast<std::size_t>(TRY(normalized_axis(body.attrs().integer("axis"), rank)));
  // The dims of the indices first, then those before and after the axis.
  Ints perm(picks), back;
  std::iota(perm.begin(), perm.end(), static_cast<std::int64_t>(axis));
  for (std::size_t i = 0; i + 1 < rank + picks; ++i)
    if (i < axis || i >= axis + picks) perm.push_back(static_cast<std::int64_t>(i));
  Shape front = {shape[axis]};
  for (std::size_t i = 0; i < rank; ++i)
    if (i != axis) front.push_back(shape[i]);
  for (std::size_t i = 0; i < rank; ++i)
    back.push_back(i < axis    ? static_cast<std::int64_t>(i) + 1
                   : i == axis ? 0
                               : static_cast<std::int64_t>(i));
  const bool moves = axis != 0;
  const ValueId places = body.op("Unsqueeze", {body.cast(indices, DType::i64), body.b.i64s({-1})});
  const ValueId sums =
      body.op("ScatterND", {body.zeros(body.dtype(dy), front), places, moves ? body.transpose(dy, perm) : dy},
              {{"reduction", std::string("add")}});
  return moves ? body.transpose(sums, back) : sums;
}

// GatherGrad(dy, indices, shape of data, base)
Result<Values> gather_grad(Body& body) {
  const ValueId sums = TRY(summed_rows(body, body.in[0], body.in[1]));
  return Values{body.has(3) ? body.op("Add", {body.in[3], sums}) : sums};
}

// AccumulateRows(acc, micro, dy, indices)
Result<Values> accumulate_rows(Body& body) {
  const ValueId sums = TRY(summed_rows(body, body.in[2], body.in[3]));
  return Values{body.accumulated(body.in[0], body.in[1], sums)};
}

Result<Values> gather_elements_grad(Body& body) {
  const ValueId zeros = body.zeros(body.dtype(body.in[0]), body.types.outputs[0].shape);
  return Values{body.op("ScatterElements", {zeros, body.in[1], body.in[0]},
                        {{"axis", body.attrs().integer("axis")}, {"reduction", std::string("add")}})};
}

// SliceGrad(dy, shape of x): dy among zeros.
Result<Values> slice_grad(Body& body) {
  const Shape &dy = body.shape(body.in[0]), &x = body.types.outputs[0].shape;
  const Ints starts = body.attrs().integers("starts"), steps = body.attrs().integers("steps");
  Ints before, after;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (steps[i] != 1 && dy[i] != 1) return infer_error("a slice with steps");
    before.push_back(starts[i]);
    after.push_back(x[i] - starts[i] - dy[i]);
  }
  before.insert(before.end(), after.begin(), after.end());
  return Values{body.op("Pad", {body.in[0], body.b.i64s(before)})};
}

}  // namespace

const Bodies& window_bodies() {
  static const Bodies bodies = {
      {"ConvGradData", conv_grad_data},
      {"ConvGradWeights", conv_grad_weights},
      {"MaxPool", max_pool},
      {"MaxPoolGrad", max_pool_grad},
      {"AveragePoolGrad", average_pool_grad},
      {"GatherGrad", gather_grad},
      {"AccumulateRows", accumulate_rows},
      {"GatherElementsGrad", gather_elements_grad},
      {"SliceGrad", slice_grad},
  };
  return bodies;
}

}  // namespace gradloom
