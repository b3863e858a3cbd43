#include "kernels/gpu/program_text.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace gradloom::kernels::gpu {

TypeNames type_names(DType type) {
  switch (type) {
    case DType::f32: return {"float", "float", "float"};
    case DType::f64: return {"double", "double", "double"};
    case DType::i32: return {"int", "int", "int"};
    case DType::i64: return {"long long", "long long", "long long"};
    case DType::u8: return {"unsigned char", "unsigned char", "unsigned char"};
    case DType::boolean: return {"unsigned char", "Truth", "unsigned char"};
    case DType::f16: return {"f16", "f16", "float"};
    case DType::bf16: return {"bf16", "bf16", "float"};
    case DType::i8: return {"signed char", "signed char", "signed char"};
    case DType::i16: return {"short", "short", "short"};
    case DType::u16: return {"unsigned short", "unsigned short", "unsigned short"};
    case DType::u32: return {"unsigned", "unsigned", "unsigned"};
    case DType::u64: return {"unsigned long long", "unsigned long long", "unsigned long long"};
    case DType::i4: return {"signed char", "I4", "signed char"};  // nothing is computed in small types
    case DType::u4: return {"unsigned char", "U4", "unsigned char"};
    case DType::i2: return {"signed char", "I2", "signed char"};
    case DType::u2: return {"unsigned char", "U2", "unsigned char"};
    case DType::f8e4m3fn: return {"F8e4m3fn", "F8e4m3fn", "F8e4m3fn"};
    case DType::f8e4m3fnuz: return {"F8e4m3fnuz", "F8e4m3fnuz", "F8e4m3fnuz"};
    case DType::f8e5m2: return {"F8e5m2", "F8e5m2", "F8e5m2"};
    case DType::f8e5m2fnuz: return {"F8e5m2fnuz", "F8e5m2fnuz", "F8e5m2fnuz"};
    case DType::f4e2m1: return {"F4e2m1", "F4e2m1", "F4e2m1"};
    case DType::f8e8m0: return {"F8e8m0", "F8e8m0", "F8e8m0"};
  }
  return {};
}

std::string formula_functions() {
  std::string text = "namespace gradloom::kernels::gpu::op {\n";
  for (const EwRow& row : ew_formulas()) {
    text += std::string("template <class T> GRADLOOM_DEVICE auto ") + row.name +
            (row.types == 'S' ? "(unsigned char a" : "(T a");
    if (row.arity > 1) text += ", T b";
    if (row.arity > 2) text += ", T c";
    text += std::string(") { return ") + row.formula + "; }\n";
  }
  return text + "}  // namespace gradloom::kernels::gpu::op\n";
}

std::string index_text(std::int64_t value, bool wide) { return std::to_string(value) + (wide ? "ull" : "u"); }

std::string exact_text(double value) {
  char text[64];
  if (std::isfinite(value)) {
    std::snprintf(text, sizeof text, "%.17g", value);
    if (std::strpbrk(text, ".e") == nullptr) std::strcat(text, ".0");
  } else {
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    std::snprintf(text, sizeof text, "__builtin_bit_cast(double, 0x%" PRIx64 "ull)", bits);
  }
  return text;
}

std::string register_text(int reg) { return "r" + std::to_string(reg); }

std::string offset_text(const ProgramLayout& layout, const EwInput& input, const std::string& index) {
  const EwProgram& program = layout.program;
  std::vector<std::int64_t> dims, strides;
  for (int d = 0; d < program.rank; ++d) {
    const std::int64_t dim = program.dims[std::size_t(d)], stride = input.strides[std::size_t(d)];
    if (!dims.empty() && strides.back() == stride * dim) {
      dims.back() *= dim;
      strides.back() = stride;
    } else {
      dims.push_back(dim);
      strides.push_back(stride);
    }
  }
  std::int64_t farthest = 0;
  bool backwards = false;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    farthest += (dims[d] - 1) * std::abs(strides[d]);
    backwards = backwards || strides[d] < 0;
  }
  const bool far = backwards || farthest >= kIndex32;
  std::string sum;
  std::int64_t below = 1;  // elements of the dims further in
  for (std::size_t d = dims.size(); d-- > 0; below *= dims[d]) {
    if (strides[d] == 0) continue;
    std::string term = index;
    if (below != 1) term += " / " + index_text(below, layout.wide);
    if (d != 0) term += " % " + index_text(dims[d], layout.wide);
    if (far)
      term = "(long long)(" + term + ") * " + std::to_string(strides[d]) + "ll";
    else if (strides[d] != 1)
      term += " * " + index_text(strides[d], layout.wide);
    sum += (sum.empty() ? "" : " + ") + term;
  }
  return sum.empty() ? "0" : sum;
}

std::vector<std::uint64_t> random_keys(const EwProgram& program) {
  std::vector<std::uint64_t> found;
  for (const EwInstruction& instruction : program.code) {
    if (ew_draws(instruction.op) && std::find(found.begin(), found.end(), instruction.key) == found.end())
      found.push_back(instruction.key);
  }
  return found;
}
std::string stream_text(std::uint64_t key) {
  char text[80];
  std::snprintf(text, sizeof text, "params.random->seed ^ 0x%" PRIx64 "ull, params.random->step", key);
  return text;
}

namespace {

struct ElementText {
  const ProgramLayout& layout;
  const std::vector<std::string>& uniform;

  const EwProgram& program() const { return layout.program; }

  std::string operand(const EwInstruction& instruction, int o, bool as_stored = false) const {
    const int r = instruction.operands[std::size_t(o)];
    return is_half(layout.type_of(r)) && !as_stored ? "widen(" + register_text(r) + ")" : register_text(r);
  }

  // The value of x^0.5, x^2 and x^3 without the general power function, as on the CPU; "" for other
  // powers.
  std::string simple_power(const EwInstruction& instruction) const {
    const std::size_t exponent = std::size_t(instruction.operands[1]) - program().inputs.size();
    if (std::size_t(instruction.operands[1]) < program().inputs.size() ||
        exponent >= program().constants.size())
      return "";
    const double value = program().constants[exponent].value;
    const std::string x = operand(instruction, 0), compute = type_names(instruction.operand_type).compute;
    if (value == 0.5) return "op::Sqrt<" + compute + ">(" + x + ")";
    if (value == 2.0) return "op::Square<" + compute + ">(" + x + ")";
    if (value == 3.0) return x + " * " + x + " * " + x;
    return "";
  }

  std::string value_of(const EwInstruction& instruction) const {
    const std::string compute = type_names(instruction.operand_type).compute;
    switch (instruction.op) {
      case EwOp::Cast: return register_text(instruction.operands[0]);
      case EwOp::Dropout:
        return "dropout<" + compute + ">(" + uniform_of(instruction) + ", " + operand(instruction, 0) + ", " +
               operand(instruction, 1) + ", " + operand(instruction, 2) + ")";
      case EwOp::DropoutMask:
        return "dropout_mask<" + compute + ">(" + uniform_of(instruction) + ", " + operand(instruction, 0) +
               ", " + operand(instruction, 1) + ")";
      case EwOp::Uniform:
        return "between<" + compute + ">(" + uniform_of(instruction) + ", " + operand(instruction, 0) + ", " +
               operand(instruction, 1) + ")";
      default: break;
    }
    if (instruction.op == EwOp::Pow) {
      const std::string power = simple_power(instruction);
      if (!power.empty()) return power;
    }
    const EwRow& row = ew_row(instruction.op);
    const bool select = row.types == 'S';  // moves values as they are stored
    std::string text = std::string("op::") + row.name + "<" +
                       (select ? type_names(instruction.operand_type).storage : compute) + ">(";
    for (int o = 0; o < row.arity; ++o) text += (o > 0 ? ", " : "") + operand(instruction, o, select);
    return text + ")";
  }

  std::string uniform_of(const EwInstruction& instruction) const {
    const std::vector<std::uint64_t> all = random_keys(program());
    return uniform[std::size_t(std::find(all.begin(), all.end(), instruction.key) - all.begin())];
  }
};

}  // namespace

std::string instruction_text(const ProgramLayout& layout, const EwInstruction& instruction,
                             const std::vector<std::string>& uniform) {
  const std::string value = ElementText{layout, uniform}.value_of(instruction);
  const bool converts =
      instruction.op == EwOp::Cast || (is_half(instruction.result_type) && instruction.op != EwOp::Where);
  if (!converts) return value;
  const bool has_mode = instruction.op == EwOp::Cast && instruction.key != 0;
  return std::string("cast<") + type_names(instruction.result_type).cast + ">(" + value +
         (has_mode ? ", " + index_text(std::int64_t(instruction.key), false) : "") + ")";
}

}  // namespace gradloom::kernels::gpu
