// FusedRows: elementwise code and reductions over rows as one node, made by pass fuse-rows for GPUs.
//   All inputs broadcast to the region's shape; a row is its last `row_dims` dims. Attributes `code` and `outputs` are those of
//   FusedElementwise (fused.h) with RowSum(a), RowMean, RowMax, RowMin: of each row of a, floating point, dims kept as 1.
//   A result has the region's shape, or that with 1 for the dims of a row.
// On GPUs one kernel (kernels/gpu/row_source.cpp) for rows of at most kEwMostRow elements; else, and on the CPU, a kernel per
// statement.
#include <algorithm>
#include <string>
#include <vector>

#include "engine/ops/dims.h"
#include "engine/ops/elementwise/formulas.h"
#include "engine/ops/elementwise/fused.h"
#include "engine/ops/inference.h"
#include "engine/ops/kernel_sequence.h"
#include "engine/ops/rows.h"
#include "engine/ops/samples.h"

namespace gradloom {
namespace {

using kernels::EwOp;

std::size_t row_dims_of(const Attrs& attrs) { return static_cast<std::size_t>(attrs.integer("row_dims", 1)); }

Shape one_per_row(const Attrs& attrs, Shape shape) {
  for (const std::int64_t axis : row_axes(attrs, shape)) shape[static_cast<std::size_t>(axis)] = 1;
  return shape;
}

Result<Shape> statement_shape(const InferContext& ctx, const FusedStatement& s,
                              const std::vector<Shape>& before, const Shape& full) {
  Shape shape;
  for (const FusedOperand& o : s.operands) {
    const auto index = static_cast<std::size_t>(o.index);
    shape = TRY(broadcast_shapes(shape, o.is_input ? ctx.shape(index) : before[index]));
  }
  if (s.op == EwOp::DropoutMask || s.op == EwOp::Uniform) return full;
  if (s.op == EwOp::Dropout && shape != full)
    return infer_error(std::string(ew_name(s.op)) + " of " + to_string(shape) + " in a region of " +
                       to_string(full));
  if (!kernels::ew_reduces(s.op)) return shape;
  Shape reduced = one_per_row(ctx.attrs, shape);
  if (reduced == shape) return infer_error(std::string(ew_name(s.op)) + " of one number per row");
  return reduced;
}

Status infer_rows(InferContext& ctx) {
  const auto code = TRY(parse_fused(ctx.attrs.text("code")));
  const auto outputs = ctx.attrs.integers("outputs");
  if (outputs.size() < ctx.outputs.size()) return infer_error("attribute outputs names too few statements");
  const std::vector<DType> types = TRY(statement_types(ctx, code));
  const Shape full = TRY(broadcast_inputs(ctx));
  const std::int64_t row_dims = ctx.attrs.integer("row_dims", 1);
  if (row_dims < 1 || row_dims > static_cast<std::int64_t>(full.size()))
    return infer_error("attribute row_dims is " + std::to_string(row_dims) + ", the region has shape " +
                       to_string(full));
  std::vector<Shape> shapes;
  for (const FusedStatement& s : code) shapes.push_back(TRY(statement_shape(ctx, s, shapes, full)));
  const Shape per_row = one_per_row(ctx.attrs, full);
  for (std::size_t i = 0; i < ctx.outputs.size(); ++i) {
    if (outputs[i] < 0 || outputs[i] >= static_cast<std::int64_t>(code.size()))
      return infer_error("attribute outputs names statement " + std::to_string(outputs[i]) +
                         ", which does not exist");
    const auto statement = static_cast<std::size_t>(outputs[i]);
    if (shapes[statement] != full && shapes[statement] != per_row)
      return infer_error("statement " + std::to_string(statement) + " has shape " +
                         to_string(shapes[statement]) + ", neither the region's nor one number per row");
    ctx.outputs[i] = {types[statement], shapes[statement]};
  }
  return {};
}

// A kernel per statement.
Result<Kernel> prepare_sequence(const std::vector<FusedStatement>& code, const NodeTypes& types,
                                const Shape& full) {
  KernelSequence sequence(types);
  std::vector<ValueId> results;
  const auto of_shape = [&](const Shape& shape) {
    for (std::size_t i = 0; i < types.inputs.size(); ++i)
      if (types.has(i) && types.inputs[i].shape == shape) return sequence.in(i);
    for (const ValueId made : results)
      if (sequence.b().shape(made) == shape) return made;
    return kNone;
  };
  for (const FusedStatement& s : code) {
    std::vector<ValueId> operands;
    for (const FusedOperand& o : s.operands)
      operands.push_back(o.is_input ? sequence.in(static_cast<std::size_t>(o.index))
                                    : results[static_cast<std::size_t>(o.index)]);
    if (kernels::ew_reduces(s.op)) {
      const ValueId axes = sequence.b().i64s(row_axes(types.attrs, sequence.b().shape(operands[0])));
      results.push_back(sequence.op(row_reduction(s.op), {operands[0], axes}));
      continue;
    }
    if (s.op == EwOp::DropoutMask || s.op == EwOp::Uniform)
      operands.push_back(of_shape(full));  // not read: for its shape
    FusedStatement alone = s;
    for (std::size_t i = 0; i < alone.operands.size(); ++i) alone.operands[i] = {true, static_cast<int>(i)};
    const Attrs attrs{{"code", print_fused({alone})}, {"outputs", std::vector<std::int64_t>{0}}};
    results.push_back(sequence.op("FusedElementwise", std::move(operands), attrs));
  }
  std::vector<ValueId> outputs;
  for (const std::int64_t statement : types.attrs.integers("outputs"))
    outputs.push_back(results[static_cast<std::size_t>(statement)]);
  return sequence.prepare("rows, " + std::to_string(code.size()) + " kernels", outputs);
}

Result<Kernel> prepare(const NodeTypes& types) {
  const auto code = TRY(parse_fused(types.attrs.text("code")));
  Shape full;
  for (std::size_t i = 0; i < types.inputs.size(); ++i)
    if (types.has(i)) full = TRY(broadcast_shapes(full, types.inputs[i].shape));
  const std::int64_t row = dim_product(full, full.size() - row_dims_of(types.attrs), full.size());
  if (types.target == kernels::Target::gpu && row > 0 && row <= kernels::kEwMostRow)
    return prepare_row_program(code, types.attrs.integers("outputs"), row_dims_of(types.attrs), types);
  return prepare_sequence(code, types, full);
}

Cost cost(const NodeTypes& types) {
  Cost cost = default_cost(types);
  const auto code = parse_fused(types.attrs.text("code"));
  std::int64_t elements = 0;
  for (const Type& input : types.inputs) elements = std::max(elements, element_count(input.shape));
  for (const Type& output : types.outputs) elements = std::max(elements, element_count(output.shape));
  if (code) cost.flops = static_cast<double>(code->size()) * static_cast<double>(elements);
  return cost;
}

Sample sample(const char* name, const char* code, std::vector<std::int64_t> outputs,
              std::vector<SampleInput> inputs, std::int64_t row_dims = 1) {
  const auto count = static_cast<int>(outputs.size());
  return {.name = name,
          .attrs = {{"code", std::string(code)}, {"outputs", std::move(outputs)}, {"row_dims", row_dims}},
          .inputs = std::move(inputs),
          .output_count = count};
}

std::vector<Sample> samples() {
  const char* const norm =
      "t0=Dropout#81985529216486895(i0,i1,i2);t1=Add(t0,i3);t2=RowMean(t1);t3=Sub(t1,t2);t4=Square(t3);t5=RowMean(t4);"
      "t6=Add(t5,i4);t7=Sqrt(t6);t8=Div(t3,t7);t9=Mul(t8,i5);t10=Add(t9,i6)";
  const char* const softmax =
      "t0=Mul(i0,i1);t1=Where(i2,t0,i3);t2=RowMax(t1);t3=Sub(t1,t2);t4=Exp(t3);t5=RowSum(t4);t6=Div(t4,t5)";
  const auto norm_inputs = [](std::int64_t rows, std::int64_t columns) {
    return std::vector<SampleInput>{
        floats({rows, columns}), known_scalar(DType::f32, 0.25), known_scalar(DType::boolean, 1),
        floats({rows, columns}), known_scalar(DType::f32, 1e-3), floats({columns}),
        floats({columns})};
  };
  std::vector<Sample> all = {
      sample("dropout, residual, norm", norm, {1, 2, 7, 10}, norm_inputs(5, 44)),
      sample("norm of odd rows", norm, {10}, norm_inputs(3, 13)),
      sample("norm of rows of a block", norm, {10, 7}, norm_inputs(2, 800)),
      sample("scale, mask, softmax", softmax, {6},
             {floats({2, 3, 9}, -2, 2), known_scalar(DType::f32, 0.5), bools({3, 9}),
              known_scalar(DType::f32, -30)}),
      sample("gradient of softmax", "t0=Mul(i0,i1);t1=RowSum(t0);t2=Sub(i0,t1);t3=Mul(i1,t2)", {3},
             {floats({4, 32}), floats({4, 32}, 0.01, 0.3)}),
      sample("rows of two dims", "t0=Add(i0,i1);t1=Mul(t0,i2);t2=RowMin(t1);t3=Sub(t1,t2)", {2, 3},
             {floats({3, 4, 6}), floats({4, 1}), floats({3, 1, 1}, 0.5, 1.5)}, 2),
      sample("mask of dropout", "t0=Dropout#5(i0,i1,i2);t1=DropoutMask#5(i1,i2);t2=RowMean(t0);t3=Sub(t0,t2)",
             {1, 3}, {floats({3, 20}), known_scalar(DType::f32, 0.25), known_scalar(DType::boolean, 1)}),
      sample("numbers per row alone", "t0=Abs(i0);t1=RowMax(t0);t2=Reciprocal(t1)", {2},
             {floats({7, 40}, 0.5, 1)}),
  };
  all.push_back(sample("transformer", norm, {1, 10}, norm_inputs(1024, 512)));
  all.back().bench = true;
  return all;
}

}  // namespace

const char* row_reduction(EwOp op) {
  switch (op) {
    case EwOp::RowMean: return "ReduceMean";
    case EwOp::RowMax: return "ReduceMax";
    case EwOp::RowMin: return "ReduceMin";
    default: return "ReduceSum";
  }
}

std::vector<std::int64_t> row_axes(const Attrs& attrs, const Shape& x) {
  std::vector<std::int64_t> axes;
  for (std::size_t d = x.size() - std::min(x.size(), row_dims_of(attrs)); d < x.size(); ++d)
    axes.push_back(static_cast<std::int64_t>(d));
  return axes;
}

const OpDef fused_rows_op = {
    .name = "FusedRows",
    .domain = "gradloom",
    .summary = "A region of elementwise operators and reductions over rows as one kernel",
    .traits = kRandom,
    .min_inputs = 1,
    .max_inputs = kernels::kEwMaxRegisters,
    .max_outputs = kernels::kEwMaxOutputs,
    .infer = infer_rows,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples};

}  // namespace gradloom
