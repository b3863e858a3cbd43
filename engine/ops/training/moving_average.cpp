// MovingAverage (ours): average' = average + (1 - decay) (value - average), written over `average`; where `apply`
// (boolean scalar or omitted) is false it stays. The form of torch.lerp, as torch.optim.swa_utils.get_ema_multi_avg_fn
// and timm.utils.ModelEmaV3 compute it.
#include "engine/ops/costs.h"
#include "engine/ops/elementwise/code.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/rows.h"
#include "engine/ops/samples.h"

namespace gradloom {
namespace {

using elementwise_code::Code;
using kernels::EwOp;

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  TRY(require_float(ctx, 0, "the average"));
  if (ctx.in(0) != ctx.in(1))
    return infer_error("average " + to_string(ctx.in(0)) + ", value " + to_string(ctx.in(1)));
  if (ctx.has(2) && ctx.in(2) != Type{DType::boolean, {}})
    return infer_error("apply must be a boolean scalar");
  const double decay = ctx.attrs.real("decay");
  if (!(decay >= 0 && decay < 1)) return infer_error("decay must be at least 0 and below 1");
  return set_outputs(ctx, {ctx.in(0)});
}

Result<Kernel> prepare(const NodeTypes& types) {
  TRY(require_kernel_type(types.target, types.inputs[0].dtype));
  Code c(types);
  const FusedOperand average = c.in(0), value = c.in(1);
  FusedOperand next = c.op(EwOp::Add, {average, c.op(EwOp::Mul, {c.scalar(1 - types.attrs.real("decay")),
                                                                 c.op(EwOp::Sub, {value, average})})});
  if (types.has(2)) next = c.op(EwOp::Where, {c.in(2), next, average});
  Kernel kernel = TRY(c.prepare(next));
  kernel.name = "elementwise moving_average";
  return kernel;
}

Cost cost(const NodeTypes& types) {
  return cost_of(types, 3.0 * static_cast<double>(element_count(types.outputs[0].shape)));
}

std::vector<std::pair<int, int>> aliases(const Node&) { return {{0, 0}}; }

std::vector<Sample> samples() {
  const Attrs slow{{"decay", 0.9}};
  const SampleInput on = exact(DType::boolean, {}, {1}), off = exact(DType::boolean, {}, {0});
  return {
      {.name = "always", .attrs = slow, .inputs = {floats({3, 5}), floats({3, 5})}},
      {.name = "applied", .attrs = slow, .inputs = {floats({7}), floats({7}), on}},
      {.name = "skipped", .attrs = slow, .inputs = {floats({7}), floats({7}), off}},
      {.name = "scalar", .attrs = {{"decay", 0.0}}, .inputs = {floats({}), floats({})}},
      {.name = "layer", .attrs = slow, .inputs = {floats({2048, 512}), floats({2048, 512})}, .bench = true},
  };
}

}  // namespace

const OpDef moving_average_op = {
    .name = "MovingAverage",
    .domain = "gradloom",
    .summary = "Moves an average towards a value.",
    .traits = kNoGradient | kMustAlias,
    .min_inputs = 2,
    .max_inputs = 3,
    .infer = infer,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .aliases = aliases,
};

}  // namespace gradloom
