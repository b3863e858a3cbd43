// Fp8Scales (ours): delayed scaling of tensors that are rounded to 8 bits (engine/ops/products/fp8.h), all of a step together.
//   inputs history [steps, tensors], scales [tensors], amax [tensors]: of this step; all f32 (f64)
//   history' = amax above the rows of `history` but its last one; what is not finite repeats the step before (f16 that overflowed)
//   scales' = 2^-margin / max over the steps of history', between 2^-63 and 2^63; where that is 0 the scale stays
// Both are written over their inputs. Attribute: margin (0), a whole number. Source: NVIDIA Transformer Engine, delayed scaling, amax_compute_algo max.
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/kernel_sequence.h"
#include "engine/ops/preparation.h"
#include "engine/ops/products/fp8.h"
#include "engine/ops/rows.h"
#include "engine/ops/samples.h"

namespace gradloom {
namespace {

constexpr std::int64_t kMostMargin = 30;

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  const DType type = ctx.dtype(0);
  if (type != DType::f32 && type != DType::f64)
    return infer_error(std::string("magnitudes are f32 or f64, not ") + dtype_name(type));
  if (ctx.shape(0).size() != 2) return infer_error("the history is " + to_string(ctx.in(0)));
  if (ctx.shape(0)[0] == 0) return infer_error("the history has no step");
  const Type row{type, {ctx.shape(0)[1]}};
  for (const std::size_t i : {1u, 2u})
    if (ctx.in(i) != row)
      return infer_error(std::string(i == 1 ? "the scales are " : "the magnitudes are ") +
                         to_string(ctx.in(i)) + ", not " + to_string(row));
  const std::int64_t margin = ctx.attrs.integer("margin");
  if (margin < -kMostMargin || margin > kMostMargin)
    return infer_error("the margin is " + std::to_string(margin));
  return set_outputs(ctx, {ctx.in(0), ctx.in(1)});
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Type& kept = types.inputs[0];
  TRY(require_kernel_type(types.target, kept.dtype));
  const std::int64_t steps = kept.shape[0], tensors = kept.shape[1];
  if (tensors == 0) return no_kernel("there is nothing to scale");
  KernelSequence s(types);
  GraphBuilder& b = s.b();
  const ValueId history = s.in(0), scales = s.in(1), zero = b.scalar(kept.dtype, 0);
  const auto rows = [&](std::int64_t count) {
    return s.op("Slice", {history, b.i64s({0}), b.i64s({count}), b.i64s({0})});
  };
  const ValueId amax = s.op("Reshape", {s.in(2), b.i64s({1, tensors})});
  const ValueId finite = s.op("Equal", {s.op("Sub", {amax, amax}), zero});
  const ValueId newest = s.op("Where", {finite, amax, rows(1)});
  const ValueId all =
      steps == 1 ? newest : s.op("Concat", {newest, rows(steps - 1)}, {{"axis", std::int64_t{0}}});
  const ValueId largest = s.op("ReduceMax", {all, b.i64s({0})}, {{"keepdims", std::int64_t{0}}});
  const double factor = std::ldexp(1.0, -static_cast<int>(types.attrs.integer("margin")));
  const ValueId wanted = s.op("Div", {b.scalar(kept.dtype, factor), largest});
  const ValueId bounded = s.op("Max", {s.op("Min", {wanted, b.scalar(kept.dtype, kMostFp8Scale)}),
                                       b.scalar(kept.dtype, kLeastFp8Scale)});
  const ValueId scale = s.op("Where", {s.op("Greater", {largest, zero}), bounded, scales});
  // What was read of the old history is in the workspace by now.
  return s.prepare("fp8 scales", {s.op("Max", {all, all}), scale});
}

Cost cost(const NodeTypes& types) {
  return cost_of(types, static_cast<double>(element_count(types.inputs[0].shape)));
}

std::vector<std::pair<int, int>> aliases(const Node&) { return {{0, 0}, {1, 1}}; }

SampleInput known(Shape shape, std::vector<double> values) {
  SampleInput input = statistic(std::move(shape), 0, 0);
  input.values = std::move(values);
  return input;
}

std::vector<Sample> samples() {
  const double infinite = std::numeric_limits<double>::infinity();
  return {
      sample_of("history", {}, {statistic({4, 3}, 0, 2), statistic({3}, 1, 2), statistic({3}, 0, 2)}, 2),
      sample_of("margin", {{"margin", std::int64_t{2}}},
                {statistic({2, 5}, 0, 2), statistic({5}, 1, 2), statistic({5}, 0, 2)}, 2),
      sample_of("one step", {}, {statistic({1, 2}, 0, 2), statistic({2}, 1, 2), statistic({2}, 0, 2)}, 2),
      sample_of("zeros and infinities", {},
                {known({2, 4}, {0, 0.5, 0, 1e-30, 0, 0.25, 0, 0}), statistic({4}, 1, 2),
                 known({4}, {0, infinite, infinite, 0})},
                2),
      {.name = "model",
       .inputs = {statistic({16, 144}, 0, 2), statistic({144}, 1, 2), statistic({144}, 0, 2)},
       .output_count = 2,
       .bench = true},
  };
}

}  // namespace

std::set<ValueId> fp8_states(const Graph& graph) {
  std::set<ValueId> states;
  for (const Node& node : graph.nodes)
    if (node.op == &fp8_scales_op) states.insert({node.inputs[0], node.inputs[1]});
  return states;
}

const OpDef fp8_scales_op = {
    .name = "Fp8Scales",
    .domain = "gradloom",
    .summary = "The scales of the next step from the largest magnitudes of the last ones.",
    .traits = kNoGradient | kMustAlias,
    .min_inputs = 3,
    .max_inputs = 3,
    .max_outputs = 2,
    .infer = infer,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .aliases = aliases,
};

}  // namespace gradloom
