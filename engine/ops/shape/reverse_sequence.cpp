// ReverseSequence(x, lengths), attributes batch_axis and time_axis (one 0, the other 1): the first lengths[b]
// positions in time of sequence b turned around, the rest copied. It undoes itself, so its gradient is
// itself. Lengths beyond the axis count as all of it. Source: ONNX ReverseSequence-10.
#include "engine/ops/contents.h"
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

Result<bool> time_first(const Attrs& attrs) {
  const std::int64_t batch = attrs.integer("batch_axis", 1), time = attrs.integer("time_axis", 0);
  if (!(batch == 0 && time == 1) && !(batch == 1 && time == 0))
    return infer_error("batch_axis " + std::to_string(batch) + " and time_axis " + std::to_string(time) +
                       " must be 0 and 1");
  return time == 0;
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Shape &x = ctx.shape(0), &lengths = ctx.shape(1);
  const bool first = TRY(time_first(ctx.attrs));
  if (x.size() < 2) return infer_error("the input must have two dimensions");
  if (ctx.dtype(1) != DType::i64) return infer_error("lengths must be 64-bit integers");
  const std::int64_t batch = x[first ? 1 : 0];
  if (lengths.size() != 1 || (lengths[0] >= 0 && batch >= 0 && lengths[0] != batch))
    return infer_error("lengths must be [" + std::to_string(batch) + "], they are " + to_string(lengths));
  if (const std::int64_t steps = x[first ? 0 : 1]; steps >= 0)
    TRY(require_between(ctx.constant(1), 0, steps, "length"));
  ctx.outputs[0] = ctx.in(0);
  return {};
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Shape& x = types.inputs[0].shape;
  const bool first = TRY(time_first(types.attrs));
  const std::int64_t inner = axis_view(x, 1).inner;
  const kernels::ReverseSequenceArgs args{dtype_bytes(types.inputs[0].dtype),
                                          first,
                                          x[first ? 1 : 0],
                                          x[first ? 0 : 1],
                                          inner,
                                          nullptr,
                                          nullptr,
                                          nullptr};
  Kernel kernel;
  kernel.name = "reverse sequence";
  kernel.run = [args](const LaunchArgs& launch) {
    kernels::ReverseSequenceArgs a = args;
    a.x = launch.inputs[0];
    a.lengths = static_cast<const std::int64_t*>(launch.inputs[1]);
    a.y = launch.outputs[0];
    launch.on.reverse_sequence(a);
  };
  return kernel;
}

Status grad(GradContext& ctx) {
  if (ctx.wants(0)) ctx.set(0, ctx.b.op("ReverseSequence", {ctx.grad(), ctx.in(1)}, ctx.node.attrs));
  return {};
}

std::vector<Sample> samples() {
  const std::int64_t zero = 0, one = 1;
  return {sample_of("time first", {}, {floats({5, 3, 2}), ints({3}, 1, 5)}),
          sample_of("batch first", {{"batch_axis", zero}, {"time_axis", one}},
                    {floats({3, 4}), exact(DType::i64, {3}, {0, 4, 2})}),
          sample_of("integers", {{"batch_axis", zero}, {"time_axis", one}},
                    {ints({2, 3, 3}, -9, 9), exact(DType::i64, {2}, {1, 3})})};
}

}  // namespace

const OpDef reverse_sequence_op = {.name = "ReverseSequence",
                                   .since = 10,
                                   .summary = "The beginning of each sequence turned around",
                                   .min_inputs = 2,
                                   .max_inputs = 2,
                                   .infer = infer,
                                   .grad = grad,
                                   .cost = copy_cost,
                                   .cpu = prepare,
                                   .gpu = prepare,
                                   .samples = samples};

}  // namespace gradloom
