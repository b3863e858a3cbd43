// Statements -> kernels::EwProgram -> kernel. Registers: inputs, constants, then one per instruction; casts
// that a statement needs (a dropout ratio of another float type, f16 and bf16 on the CPU) are inserted here.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "engine/base/text.h"
#include "engine/ops/copies.h"
#include "engine/ops/dims.h"
#include "engine/ops/operand_rows.h"
#include "engine/ops/preparation.h"
#include "engine/ops/elementwise/formulas.h"
#include "kernels/small_types.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::EwInput;
using kernels::EwInstruction;
using kernels::EwOp;
using kernels::EwProgram;
using kernels::portable::kCastDown;
using kernels::portable::kCastNearest;
using kernels::portable::kCastUnsaturated;

struct Source {
  DType dtype = DType::f32;
  const Shape* shape = nullptr;
  const Tensor* scalar = nullptr;  // known contents of one element
  std::vector<std::int64_t> strides{};
  std::int16_t reg = -1;
};

// f16 and bf16 are computed in f32 and rounded after each operator. GPU kernels do that by themselves; the
// CPU's tiles need casts. Small floats, of which only IsNaN takes any, need them everywhere.
bool needs_casts(kernels::Target target, EwOp op, DType type) {
  if (op == EwOp::Cast || op == EwOp::Where) {
    return op == EwOp::Where && !kernels::computes_halves(target) && is_half(type);
  }
  return is_small_float(type) || (!kernels::computes_halves(target) && is_half(type));
}

// Whether a double holds the value exactly, so that it can be a constant of the program.
bool exact_as_double(const Tensor& t) {
  if (is_half(t.dtype()) || is_small(t.dtype())) return false;
  if (t.dtype() != DType::i64 && t.dtype() != DType::u64) return true;
  const std::int64_t v = t.int_at(0), limit = std::int64_t{1} << 53;
  return v >= -limit && v <= limit;
}

class ProgramBuilder {
 public:
  // row_dims: the last dims, which are a row; 0: nothing reduces.
  ProgramBuilder(const std::vector<FusedStatement>& code, const NodeTypes& types,
                 const std::vector<Tensor>& extra, std::size_t row_dims = 0)
      : code_(code), types_(types), row_dims_(row_dims) {
    for (std::size_t i = 0; i < types.inputs.size(); ++i) {
      const Tensor* known = types.constants[i];
      const bool scalar = known != nullptr && known->count() == 1 && exact_as_double(*known);
      sources_.push_back(
          {types.inputs[i].dtype, &types.inputs[i].shape, scalar ? known : nullptr, input_strides(types, i)});
    }
    for (const Tensor& t : extra) sources_.push_back({t.dtype(), &t.shape(), &t, dense_strides(t.shape())});
  }

  // `inputs`, `outputs`: which of the node's inputs and outputs the program's are.
  Result<EwProgram> build(const std::vector<std::int64_t>& results, std::vector<int>& inputs,
                          std::vector<int>& outputs) {
    TRY(set_dims());
    TRY(check_rows());
    number_sources(inputs);
    for (const FusedStatement& s : code_) TRY(add_statement(s));
    for (std::size_t i = 0; i < types_.outputs.size(); ++i) {
      if (!types_.wants(i)) continue;
      outputs.push_back(static_cast<int>(i));
      const auto statement = static_cast<std::size_t>(results[i]);
      program_.outputs.push_back({result_reg_[statement], result_type_[statement]});
    }
    if (program_.inputs.size() + program_.constants.size() + program_.code.size() >
            kernels::kEwMaxRegisters ||
        program_.outputs.size() > kernels::kEwMaxOutputs)
      return no_kernel("an elementwise region with more than " + std::to_string(kernels::kEwMaxRegisters) +
                       " values");
    kernels::ew_collapse_dims(program_);
    return std::move(program_);
  }

 private:
  Status set_dims() {
    const auto first = std::find(types_.output_present.begin(), types_.output_present.end(), true);
    if (first == types_.output_present.end()) return no_kernel("an elementwise node without outputs");
    full_ = types_.outputs[static_cast<std::size_t>(first - types_.output_present.begin())].shape;
    for (std::size_t i = 0; row_dims_ > 0 && i < types_.inputs.size();
         ++i)  // that output may have one number per row
      if (types_.has(i)) full_ = TRY(broadcast_shapes(full_, types_.inputs[i].shape));
    if (row_dims_ > 0) program_.row = dim_product(full_, full_.size() - row_dims_, full_.size());
    for (std::size_t d = 0; d < full_.size(); ++d)
      if (full_[d] != 1) kept_.push_back(d);
    if (kept_.size() > static_cast<std::size_t>(kernels::kEwMaxRank))
      return no_kernel("elementwise over " + std::to_string(kept_.size()) + " dimensions; the kernel has " +
                       std::to_string(kernels::kEwMaxRank));
    program_.rank = static_cast<int>(kept_.size());
    for (std::size_t k = 0; k < kept_.size(); ++k) program_.dims[k] = full_[kept_[k]];
    return {};
  }

  // Random numbers are drawn by the places of elements.
  Status check_rows() const {
    const bool draws = std::any_of(code_.begin(), code_.end(),
                                   [](const FusedStatement& s) { return kernels::ew_draws(s.op); });
    return has_rows(types_) && draws
               ? Status(no_kernel("no kernel draws random numbers for operands in rows"))
               : Status();
  }

  EwInput input_of(const Source& source) const {
    EwInput input{source.dtype, {}};
    const std::size_t lead = full_.size() - source.shape->size();
    for (std::size_t k = 0; k < kept_.size(); ++k) {
      const bool inside = kept_[k] >= lead;
      if (inside && (*source.shape)[kept_[k] - lead] != 1) input.strides[k] = source.strides[kept_[k] - lead];
    }
    return input;
  }

  void number_sources(std::vector<int>& inputs) {
    std::vector<bool> used(sources_.size(), false);
    for (const FusedStatement& s : code_)
      for (const FusedOperand& o : s.operands)
        if (o.is_input) used[static_cast<std::size_t>(o.index)] = true;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (!used[i] || sources_[i].scalar != nullptr) continue;
      sources_[i].reg = static_cast<std::int16_t>(program_.inputs.size());
      program_.inputs.push_back(input_of(sources_[i]));
      inputs.push_back(static_cast<int>(i));
    }
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (!used[i] || sources_[i].scalar == nullptr) continue;
      sources_[i].reg = static_cast<std::int16_t>(program_.inputs.size() + program_.constants.size());
      program_.constants.push_back({sources_[i].dtype, sources_[i].scalar->at(0)});
    }
  }

  std::int16_t emit(EwInstruction instruction) {
    program_.code.push_back(instruction);
    return static_cast<std::int16_t>(program_.inputs.size() + program_.constants.size() +
                                     program_.code.size() - 1);
  }

  // Register of the result of an operator on f16 or bf16, computed in f32. Where only moves values.
  std::int16_t emit_in_f32(const FusedStatement& s, EwInstruction instruction,
                           const std::vector<DType>& operand_types) {
    const DType result = instruction.result_type;
    if (s.op == EwOp::Where) {
      instruction.operand_type = DType::u16;
      return emit(instruction);
    }
    for (std::size_t i = 0; i < operand_types.size(); ++i)
      if ((is_float(operand_types[i]) || is_small_float(operand_types[i])) && operand_types[i] != DType::f32)
        instruction.operands[i] =
            emit({EwOp::Cast, operand_types[i], DType::f32, {instruction.operands[i], -1, -1}, 0});
    instruction.operand_type = DType::f32;
    if (is_float(result)) instruction.result_type = DType::f32;
    const std::int16_t computed = emit(instruction);
    return is_float(result) ? emit({EwOp::Cast, DType::f32, result, {computed, -1, -1}, 0}) : computed;
  }

  Status add_statement(const FusedStatement& s) {
    std::vector<DType> operand_types;
    EwInstruction instruction{s.op, DType::f32, DType::f32, {-1, -1, -1}, s.key};
    for (std::size_t i = 0; i < s.operands.size(); ++i) {
      const auto index = static_cast<std::size_t>(s.operands[i].index);
      const bool input = s.operands[i].is_input;
      operand_types.push_back(input ? sources_[index].dtype : result_type_[index]);
      instruction.operands[i] = input ? sources_[index].reg : result_reg_[index];
    }
    instruction.result_type = TRY(ew_result_type(s.op, operand_types, s.cast_to));
    instruction.operand_type = s.op == EwOp::Where ? operand_types[1] : operand_types[0];
    if (needs_casts(types_.target, s.op, instruction.operand_type)) {
      result_reg_.push_back(emit_in_f32(s, instruction, operand_types));
      result_type_.push_back(instruction.result_type);
      return {};
    }
    if (s.op == EwOp::Dropout && operand_types[1] != operand_types[0])
      instruction.operands[1] =
          emit({EwOp::Cast, operand_types[1], operand_types[0], {instruction.operands[1], -1, -1}, 0});
    result_reg_.push_back(emit(instruction));
    result_type_.push_back(instruction.result_type);
    return {};
  }

  const std::vector<FusedStatement>& code_;
  const NodeTypes& types_;
  const std::size_t row_dims_;
  std::vector<Source> sources_;
  Shape full_;
  std::vector<std::size_t> kept_;  // dims of full_ larger than 1
  std::vector<std::int16_t> result_reg_;
  std::vector<DType> result_type_;
  EwProgram program_;
};

std::string kernel_name(std::string name, const std::vector<FusedStatement>& code) {
  constexpr std::size_t kMostNames = 6;
  for (std::size_t i = 0; i < std::min(code.size(), kMostNames); ++i)
    name += (i ? "+" : "") + std::string(ew_name(code[i].op));
  if (code.size() > kMostNames) name += "+" + std::to_string(code.size() - kMostNames) + " more";
  return name;
}

Result<Kernel> kernel_of(std::string name, ProgramBuilder builder, const std::vector<std::int64_t>& outputs) {
  struct Prepared {
    EwProgram program;
    std::vector<int> inputs, outputs;
  };
  auto prepared = std::make_shared<Prepared>();
  prepared->program = TRY(builder.build(outputs, prepared->inputs, prepared->outputs));
  Kernel kernel;
  kernel.name = std::move(name);
  kernel.programs = {std::shared_ptr<const EwProgram>(prepared, &prepared->program)};
  kernel.run = [prepared](const LaunchArgs& launch) {
    std::array<const void*, kernels::kEwMaxRegisters> in;
    std::array<void*, kernels::kEwMaxOutputs> out;
    for (std::size_t i = 0; i < prepared->inputs.size(); ++i) in[i] = launch.inputs[prepared->inputs[i]];
    for (std::size_t i = 0; i < prepared->outputs.size(); ++i) out[i] = launch.outputs[prepared->outputs[i]];
    launch.on.elementwise({&prepared->program, in.data(), out.data(), launch.random});
  };
  return kernel;
}

}  // namespace

Result<std::uint64_t> cast_mode(const Attrs& attrs, DType to) {
  const std::string rounding = attrs.text("round_mode", "up");
  if (rounding != "up" && rounding != "down" && rounding != "nearest")
    return infer_error("round_mode is '" + escaped(rounding) + "'");
  if (!is_small_float(to)) return std::uint64_t{0};
  const bool by_mode = to == DType::f8e8m0;
  return std::uint64_t{(attrs.integer("saturate", 1) == 0 ? kCastUnsaturated : 0) |
                       (by_mode && rounding == "down" ? kCastDown : 0) |
                       (by_mode && rounding == "nearest" ? kCastNearest : 0)};
}

Result<Shape> broadcast_inputs(const InferContext& ctx) {
  Shape shape;
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i)
    if (ctx.has(i)) shape = TRY(broadcast_shapes(shape, ctx.shape(i)));
  return shape;
}

Result<Kernel> prepare_elementwise(const std::vector<FusedStatement>& code,
                                   const std::vector<std::int64_t>& outputs, const NodeTypes& types,
                                   const std::vector<Tensor>& extra) {
  return kernel_of(kernel_name("elementwise ", code), ProgramBuilder(code, types, extra), outputs);
}

Result<Kernel> prepare_row_program(const std::vector<FusedStatement>& code,
                                   const std::vector<std::int64_t>& outputs, std::size_t row_dims,
                                   const NodeTypes& types) {
  return kernel_of(kernel_name("rows ", code), ProgramBuilder(code, types, {}, row_dims), outputs);
}

}  // namespace gradloom
