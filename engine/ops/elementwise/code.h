// Short forms for operators that are a few elementwise statements (composites.cpp, activations.cpp,
// quantize.cpp, ...).
#pragma once

#include "engine/ops/inference.h"
#include "engine/ops/elementwise/formulas.h"
#include "kernels/launcher.h"

namespace gradloom::elementwise_code {

// Statements over the inputs and over scalars given by attributes, which follow the inputs.
class Code {
 public:
  explicit Code(const NodeTypes& types)
      : types_(types), dtype_(types.inputs.empty() ? DType::f32 : types.inputs[0].dtype) {}
  static FusedOperand in(int i) { return {true, i}; }
  FusedOperand scalar(double v) { return scalar(dtype_, v); }
  FusedOperand scalar(DType dtype, double v) {
    extra_.push_back(Tensor::scalar(dtype, v));
    return {true, static_cast<int>(types_.inputs.size() + extra_.size()) - 1};
  }
  FusedOperand op(kernels::EwOp op, std::vector<FusedOperand> operands) {
    code_.push_back({op, DType::f32, 0, std::move(operands)});
    return {false, static_cast<int>(code_.size()) - 1};
  }
  FusedOperand cast(FusedOperand x, DType to, std::uint64_t mode = 0) {
    code_.push_back({kernels::EwOp::Cast, to, mode, {x}});
    return {false, static_cast<int>(code_.size()) - 1};
  }
  // An operator that draws random numbers from the stream of `key`.
  FusedOperand random(kernels::EwOp op, std::uint64_t key, std::vector<FusedOperand> operands) {
    code_.push_back({op, DType::f32, key, std::move(operands)});
    return {false, static_cast<int>(code_.size()) - 1};
  }
  // The result must be a statement: a node that leaves its input as it is becomes max(x, x).
  Result<Kernel> prepare(FusedOperand result) {
    if (result.is_input) result = op(kernels::EwOp::Max, {result, result});
    return prepare_results({result});
  }
  Result<Kernel> prepare_results(const std::vector<FusedOperand>& results) {
    std::vector<std::int64_t> statements;
    for (const FusedOperand& result : results) {
      CHECK(!result.is_input, "a result must be a statement");
      statements.push_back(result.index);
    }
    return prepare_elementwise(code_, statements, types_, extra_);
  }

 private:
  const NodeTypes& types_;
  DType dtype_;
  std::vector<FusedStatement> code_;
  std::vector<Tensor> extra_;
};

// Short forms for gradient rules.
struct Nodes {
  GradContext& ctx;
  ValueId number(double v) const { return ctx.b.scalar(ctx.dtype(ctx.grad()), v); }
  ValueId op(const char* name, std::vector<ValueId> inputs) const {
    return ctx.b.op(name, std::move(inputs));
  }
  ValueId where(ValueId c, ValueId p, ValueId q) const { return op("Where", {c, p, q}); }
};

inline Status infer_float(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (!is_float(ctx.dtype(0)))
    return infer_error(std::string("needs floating point, not ") + dtype_name(ctx.dtype(0)));
  ctx.outputs[0] = ctx.in(0);
  return {};
}

inline Sample with(const char* name, Attrs attrs, std::vector<SampleInput> inputs, double kink_distance = 0,
                   std::vector<double> kinks = {}) {
  return {.name = name,
          .attrs = std::move(attrs),
          .inputs = std::move(inputs),
          .kink_distance = kink_distance,
          .kinks = std::move(kinks)};
}

}  // namespace gradloom::elementwise_code
