// CopyToHost, CopyFromHost: y = x of any type and shape. The gradient passes through.
#include "engine/ops/transfers.h"

#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/rows.h"
#include "engine/ops/samples.h"

namespace gradloom {
namespace {

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  ctx.outputs[0] = ctx.in(0);
  return {};
}

Status grad(GradContext& ctx) {
  ctx.set(0, ctx.grad());
  return {};
}

Kernel copy_kernel(const char* name, const NodeTypes& types) {
  const DType dtype = types.inputs[0].dtype;
  const std::int64_t count = element_count(types.inputs[0].shape);
  return {name, 0, [dtype, count](const LaunchArgs& args) {
            copy_elements(args.on, dtype, count, args.inputs[0], args.outputs[0]);
          }};
}
Result<Kernel> prepare_to_host(const NodeTypes& types) { return copy_kernel("copy to host", types); }
Result<Kernel> prepare_from_host(const NodeTypes& types) { return copy_kernel("copy from host", types); }

std::vector<Sample> samples() {
  return {sample_of("matrix", {}, {floats({3, 5})}), sample_of("booleans", {}, {bools({3})}),
          sample_of("integers", {}, {ints({2, 3}, -9, 9)}), sample_of("empty", {}, {floats({0, 4})})};
}

}  // namespace

bool copies_to_host(const OpDef& op) { return &op == &copy_to_host_op; }
bool copies_from_host(const OpDef& op) { return &op == &copy_from_host_op; }

const OpDef copy_to_host_op = {
    .name = "CopyToHost",
    .domain = "gradloom",
    .summary = "The input, in the host's memory while a GPU's is needed for others",
    .infer = infer,
    .grad = grad,
    .cost = copy_cost,
    .cpu = prepare_to_host,
    .gpu = prepare_to_host,
    .samples = samples};
const OpDef copy_from_host_op = {.name = "CopyFromHost",
                                 .domain = "gradloom",
                                 .summary = "What CopyToHost has put away, back in the GPU's memory",
                                 .infer = infer,
                                 .grad = grad,
                                 .cost = copy_cost,
                                 .cpu = prepare_from_host,
                                 .gpu = prepare_from_host,
                                 .samples = samples};

}  // namespace gradloom
