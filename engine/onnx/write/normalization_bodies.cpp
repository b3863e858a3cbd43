// Normalizations and their gradients. Statistics are f32 where x is 16 bits, and so is what is computed from them.
#include <numeric>

#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/onnx/write/bodies.h"

namespace gradloom {
namespace {

using Values = std::vector<ValueId>;
using Axes = std::vector<std::int64_t>;

Axes axes_between(std::size_t begin, std::size_t end) {
  Axes axes(end - begin);
  std::iota(axes.begin(), axes.end(), static_cast<std::int64_t>(begin));
  return axes;
}

Result<Values> softmax_grad(Body& body) {
  if (body.attrs().integer("flatten") != 0) return infer_error("a softmax over several axes");
  const ValueId dy = body.in[0], y = body.in[1];
  const auto rank = static_cast<std::int64_t>(body.shape(y).size());
  std::int64_t axis = body.attrs().integer("axis", -1);
  axis += axis < 0 ? rank : 0;
  if (body.attrs().integer("log") != 0)
    return Values{body.op("Sub", {dy, body.op("Mul", {body.op("Exp", {y}), body.sum(dy, {axis}, true)})})};
  const ValueId share = body.sum(body.op("Mul", {dy, y}), {axis}, true);
  return Values{body.op("Mul", {y, body.op("Sub", {dy, share})})};
}

// inv (g - mean(g) - hat mean(g hat)) over `axes`, g = dy scale; `centred`: with the middle term.
ValueId through(Body& body, ValueId g, ValueId hat, ValueId inv, const Axes& axes, bool centred) {
  ValueId left = centred ? body.op("Sub", {g, body.mean(g, axes)}) : g;
  left = body.op("Sub", {left, body.op("Mul", {hat, body.mean(body.op("Mul", {g, hat}), axes)})});
  return body.op("Mul", {inv, left});
}

// LayerNormGrad(dy, x, scale, mean, inv_std, added), RMSNormGrad(dy, x, scale, inv_rms).
Result<Values> row_norm_grad(Body& body, bool centred) {
  const DType sums = body.dtype(body.in[3]), type = body.dtype(body.in[1]),
              parameters = body.dtype(body.in[2]);
  const std::size_t rank = body.shape(body.in[1]).size();
  const auto axis = static_cast<std::size_t>(TRY(normalized_axis(body.attrs().integer("axis", -1), rank)));
  const ValueId dy = body.cast(body.in[0], sums), x = body.cast(body.in[1], sums),
                scale = body.cast(body.in[2], sums), inv = body.in[centred ? 4 : 3];
  const ValueId hat = body.op("Mul", {centred ? body.op("Sub", {x, body.in[3]}) : x, inv});
  const Axes columns = axes_between(axis, rank), rows = axes_between(0, axis);
  ValueId dx = through(body, body.op("Mul", {dy, scale}), hat, inv, columns, centred);
  if (centred && body.has(5)) dx = body.op("Add", {dx, body.cast(body.in[5], sums)});
  const Shape shape = body.shape(body.in[2]);
  const auto parameter = [&](ValueId of) {
    return body.cast(body.reshape(body.sum(of, rows), shape), parameters);
  };
  Values results = {body.cast(dx, type)};
  if (body.types.outputs.size() > 1) results.push_back(parameter(body.op("Mul", {dy, hat})));
  if (centred && body.types.outputs.size() > 2) results.push_back(parameter(dy));
  return results;
}
Result<Values> layer_norm_grad(Body& body) { return row_norm_grad(body, true); }
Result<Values> rms_norm_grad(Body& body) { return row_norm_grad(body, false); }

Result<Values> rms_normalization(Body& body) {
  const ValueId given = body.in[0];
  const DType type = body.dtype(given), sums = statistics_type(type);
  const std::size_t rank = body.shape(given).size();
  const auto axis = static_cast<std::size_t>(TRY(normalized_axis(body.attrs().integer("axis", -1), rank)));
  const ValueId x = body.cast(given, sums);
  const ValueId squares = body.mean(body.op("Mul", {x, x}), axes_between(axis, rank));
  const ValueId root =
      body.op("Sqrt", {body.op("Add", {squares, body.number(sums, body.attrs().real("epsilon", 1e-5))})});
  const ValueId inv = body.op("Reciprocal", {root});
  const ValueId y = body.op("Mul", {body.op("Mul", {x, inv}), body.cast(body.in[1], sums)});
  return Values{body.cast(y, type), inv};
}

// ---- BatchNormalization ---------------------------------------------------------------------------------------

Axes all_but_channels(const Shape& x) {
  Axes axes = axes_between(1, x.size());
  axes[0] = 0;
  for (std::size_t i = 1; i < axes.size(); ++i) axes[i] = static_cast<std::int64_t>(i) + 1;
  return axes;
}

// [c] as [1, c, 1..].
ValueId across(Body& body, ValueId of, std::size_t rank) {
  Shape shape(rank, 1);
  shape[1] = body.shape(of)[0];
  return body.reshape(of, shape);
}

// In training: with the statistics of the batch, which are outputs 3 and 4.
Result<Values> batch_normalization(Body& body) {
  const bool declared = body.attrs().has("training_mode");
  if (declared ? body.attrs().integer("training_mode") == 0 : body.types.outputs.size() < 2)
    return infer_error("statistics that are not those of the batch");
  const DType type = body.dtype(body.in[0]), sums = statistics_type(type);
  const ValueId x = body.cast(body.in[0], sums);
  const std::size_t rank = body.shape(x).size();
  const Axes axes = all_but_channels(body.shape(x));
  const Shape channels = {body.shape(x)[1]};
  const ValueId mean = body.mean(x, axes), centred = body.op("Sub", {x, mean});
  const ValueId variance = body.mean(body.op("Mul", {centred, centred}), axes);
  const ValueId epsilon = body.number(sums, body.attrs().real("epsilon", 1e-5));
  const ValueId inv = body.op("Reciprocal", {body.op("Sqrt", {body.op("Add", {variance, epsilon})})});
  const auto parameter = [&](std::size_t i) { return across(body, body.cast(body.in[i], sums), rank); };
  const ValueId y =
      body.op("Add", {body.op("Mul", {body.op("Mul", {centred, inv}), parameter(1)}), parameter(2)});
  const double momentum = body.attrs().real("momentum", 0.9);
  const auto running = [&](std::size_t i, ValueId batch) {
    const DType own = body.dtype(body.in[i]);
    const ValueId now = body.cast(body.reshape(batch, channels), own);
    return body.op("Add", {body.op("Mul", {body.in[i], body.number(own, momentum)}),
                           body.op("Mul", {now, body.number(own, 1 - momentum)})});
  };
  return Values{body.cast(y, type), running(3, mean), running(4, variance), body.reshape(mean, channels),
                body.reshape(inv, channels)};
}

// BatchNormGrad(dy, x, scale, mean, inv_std)
Result<Values> batch_norm_grad(Body& body) {
  const DType sums = body.dtype(body.in[3]), type = body.dtype(body.in[1]),
              parameters = body.dtype(body.in[2]);
  const ValueId dy = body.cast(body.in[0], sums), x = body.cast(body.in[1], sums);
  const std::size_t rank = body.shape(x).size();
  const Axes axes = all_but_channels(body.shape(x));
  const ValueId mean = across(body, body.in[3], rank), inv = across(body, body.in[4], rank),
                scale = across(body, body.cast(body.in[2], sums), rank);
  const ValueId hat = body.op("Mul", {body.op("Sub", {x, mean}), inv}), g = body.op("Mul", {dy, scale});
  const ValueId dx = body.attrs().integer("training", 1) != 0 ? through(body, g, hat, inv, axes, true)
                                                              : body.op("Mul", {g, inv});
  const auto parameter = [&](ValueId of) { return body.cast(body.sum(of, axes), parameters); };
  return Values{body.cast(dx, type), parameter(body.op("Mul", {dy, hat})), parameter(dy)};
}

// FusedBatchNorm(x, scale, bias, running mean, running variance, added)
Result<Values> fused_batch_norm(Body& body) {
  const Attrs& attrs = body.attrs();
  Values results;
  if (attrs.integer("training_mode") != 0)
    results = TRY(batch_normalization(body));
  else
    results = {body.op("BatchNormalization", {body.in.begin(), body.in.begin() + 5},
                       {{"epsilon", attrs.real("epsilon", 1e-5)}})};
  ValueId& y = results[0];
  if (body.has(5)) y = body.op("Add", {y, body.in[5]});
  if (attrs.text("activation", "none") == "relu") y = body.op("Relu", {y});
  if (attrs.has("low")) y = body.op("Max", {y, body.number_like(y, attrs.real("low"))});
  if (attrs.has("high")) y = body.op("Min", {y, body.number_like(y, attrs.real("high"))});
  return results;
}

// FusedBatchNormGrad(dy, x, scale, mean, inv_std, bias)
Result<Values> fused_batch_norm_grad(Body& body) {
  const Attrs& attrs = body.attrs();
  const DType sums = body.dtype(body.in[3]), type = body.dtype(body.in[1]);
  const ValueId x = body.cast(body.in[1], sums);
  const std::size_t rank = body.shape(x).size();
  const auto of_channels = [&](std::size_t i) { return across(body, body.cast(body.in[i], sums), rank); };
  const ValueId hat = body.op("Mul", {body.op("Sub", {x, of_channels(3)}), of_channels(4)});
  const ValueId y = body.cast(body.op("Add", {body.op("Mul", {hat, of_channels(2)}), of_channels(5)}), type);
  const ValueId zero = body.number(type, 0);
  ValueId& dy = body.in[0];
  if (attrs.text("activation", "none") == "relu")
    dy = body.op("Where", {body.op("Greater", {y, zero}), dy, zero});
  if (attrs.has("low"))
    dy = body.op("Where", {body.op("Less", {y, body.number(type, attrs.real("low"))}), zero, dy});
  if (attrs.has("high"))
    dy = body.op("Where", {body.op("Greater", {y, body.number(type, attrs.real("high"))}), zero, dy});
  return batch_norm_grad(body);
}

}  // namespace

const Bodies& normalization_bodies() {
  static const Bodies bodies = {
      {"SoftmaxGrad", softmax_grad},
      {"LayerNormGrad", layer_norm_grad},
      {"RMSNormGrad", rms_norm_grad},
      {"RMSNormalization", rms_normalization},
      {"BatchNormalization", batch_normalization},
      {"BatchNormGrad", batch_norm_grad},
      {"FusedBatchNorm", fused_batch_norm},
      {"FusedBatchNormGrad", fused_batch_norm_grad},
  };
  return bodies;
}

}  // namespace gradloom
