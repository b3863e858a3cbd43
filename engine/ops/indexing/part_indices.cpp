// PartIndices(indices) (ours): places among the rows that this rank has of a table, of which the ranks that share parameters have as many each:
//   y = indices - number * size
//   attributes: parts, how many ranks; size, the rows of each. Indices are i32 or i64 and count from 0; y < 0 or >= size: the row is
//   another rank's, or none
// Every rank has its own number (engine/ops/rank_part.h), so that the node is none that is computed beforehand.
#include "engine/ops/elementwise/code.h"
#include "engine/ops/inference.h"
#include "engine/ops/rank_part.h"
#include "engine/ops/rows.h"
#include "engine/ops/samples.h"

namespace gradloom {
namespace {

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (ctx.dtype(0) != DType::i32 && ctx.dtype(0) != DType::i64)
    return infer_error(std::string("indices are ") + dtype_name(ctx.dtype(0)));
  const std::int64_t parts = ctx.attrs.integer("parts", 0), size = ctx.attrs.integer("size", 0);
  if (parts < 1 || size < 1 || parts > (std::int64_t{1} << 31) / size)
    return infer_error("parts and size must be positive, and their product below 2^31");
  return set_outputs(ctx, {ctx.in(0)});
}

Result<Kernel> prepare(const NodeTypes& types) {
  elementwise_code::Code code(types);
  const std::int64_t first = own_part(types.attrs.integer("parts")) * types.attrs.integer("size");
  return code.prepare(
      code.op(kernels::EwOp::Sub, {elementwise_code::Code::in(0), code.scalar(static_cast<double>(first))}));
}

std::vector<Sample> samples() {
  const Attrs attrs{{"parts", std::int64_t{2}}, {"size", std::int64_t{5}}};
  return {elementwise_code::with("rows", attrs, {ints({2, 3}, 0, 9)}),
          elementwise_code::with("32-bit", attrs, {ints({7}, -2, 9, DType::i32)})};
}

}  // namespace

const OpDef part_indices_op = {.name = "PartIndices",
                               .domain = "gradloom",
                               .summary = "Indices among the rows of a table that this rank has.",
                               .traits = kRandom | kNoGradient,
                               .infer = infer,
                               .cpu = prepare,
                               .gpu = prepare,
                               .samples = samples};

}  // namespace gradloom
