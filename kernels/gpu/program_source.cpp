// Source text for elementwise programs. A thread takes `lanes` consecutive elements where rows allow it:
// dense inputs and outputs move in vectors, an input that is constant along the row is read once. Else a
// thread takes kLoose single elements, a block's width apart. All loads of an element come before its stores,
// so outputs may lie over inputs.
#include "kernels/gpu/program_source.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace gradloom::kernels::gpu {
namespace {

constexpr unsigned kThreads = 256;
constexpr int kLoose = 4;
constexpr std::int64_t kIndex32 = std::int64_t(1) << 31;

struct Names {
  const char* storage;  // in memory and registers
  const char* cast;     // argument of cast<>
  const char* compute;  // T of the formulas
};
Names names(DType type) {
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

struct Formula {
  const char *name, *text;
  int arity;
  char types;
};
constexpr Formula kFormulas[] = {
#define EW(name, arity, types, formula) {#name, #formula, arity, #types[0]},
#include "kernels/elementwise.def"
#undef EW
};

// op::Add<T>(a, b) and so on.
std::string formula_functions() {
  std::string text = "namespace gradloom::kernels::gpu::op {\n";
  for (const Formula& formula : kFormulas) {
    text += std::string("template <class T> GRADLOOM_DEVICE auto ") + formula.name +
            (formula.types == 'S' ? "(unsigned char a" : "(T a");
    if (formula.arity > 1) text += ", T b";
    if (formula.arity > 2) text += ", T c";
    text += std::string(") { return ") + formula.text + "; }\n";
  }
  return text + "}  // namespace gradloom::kernels::gpu::op\n";
}

std::string number(std::int64_t value, bool wide) { return std::to_string(value) + (wide ? "ull" : "u"); }

std::string exact(double value) {
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

// How an input is read by a thread of several lanes.
enum class Access { unused, uniform, row_constant, row_vector, row_steps };

class Generator {
 public:
  explicit Generator(const EwProgram& program) : program_(program) {
    ew_collapse_dims(program_);
    for (int d = 0; d < program_.rank; ++d) count_ *= program_.dims[d];
    wide_ = count_ >= kIndex32;
    find_uses();
    choose_lanes();
  }

  GeneratedKernel generate() {
    if (count_ > 0) {
      if (lanes_ > 1)
        rows_body();
      else
        loose_body();
    }
    const std::string params = params_members();
    GeneratedKernel kernel;
    kernel.entry = "ew_" + hash_of(params + body_);
    kernel.source = "namespace gradloom::kernels::gpu {\nstruct " + kernel.entry + "_Params {\n" + params +
                    "};\nGRADLOOM_PROGRAM(" + kernel.entry + ", " + kernel.entry + "_Params) {\n" + body_ +
                    "}\n}  // namespace gradloom::kernels::gpu\n";
    const std::int64_t per_block = std::int64_t(kThreads) * (lanes_ > 1 ? lanes_ : kLoose);
    kernel.blocks = unsigned(std::max<std::int64_t>(1, (count_ + per_block - 1) / per_block));
    kernel.threads = kThreads;
    kernel.params_bytes = (program_.inputs.size() + program_.outputs.size() + 1) * sizeof(void*);
    return kernel;
  }

 private:
  // ---- analysis -----------------------------------------------------------------------------------------------------------------

  void find_uses() {
    used_.assign(program_.inputs.size(), false);
    const auto use = [&](int reg) {
      if (reg >= 0 && std::size_t(reg) < used_.size()) used_[std::size_t(reg)] = true;
    };
    for (const EwInstruction& instruction : program_.code) {
      for (const std::int16_t reg : instruction.operands) use(reg);
    }
    for (const EwOutput& output : program_.outputs) use(output.reg);
  }

  std::int64_t row() const { return program_.rank > 0 ? program_.dims[std::size_t(program_.rank - 1)] : 1; }
  std::int64_t row_step(const EwInput& input) const {
    return program_.rank > 0 ? input.strides[std::size_t(program_.rank - 1)] : 0;
  }

  Access access(std::size_t i, int lanes) const {
    const EwInput& input = program_.inputs[i];
    if (!used_[i]) return Access::unused;
    if (std::all_of(input.strides.begin(), input.strides.end(), [](std::int64_t s) { return s == 0; }))
      return Access::uniform;
    if (row_step(input) == 0) return Access::row_constant;
    if (row_step(input) != 1) return Access::row_steps;
    for (int d = 0; d + 1 < program_.rank; ++d) {
      if (input.strides[std::size_t(d)] % lanes != 0)
        return Access::row_steps;  // rows begin between boundaries
    }
    return Access::row_vector;
  }

  // 16 bytes of the narrowest type, within 4 and 8 elements; 1 when rows are not whole vectors.
  void choose_lanes() {
    std::size_t narrowest = 8, vectors = program_.outputs.size();
    for (const EwOutput& output : program_.outputs)
      narrowest = std::min(narrowest, dtype_bytes(type_of(output.reg)));
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      if (access(i, 4) != Access::row_vector) continue;
      narrowest = std::min(narrowest, dtype_bytes(program_.inputs[i].dtype));
      ++vectors;
    }
    constexpr std::size_t kMostVectors = 16, kLongProgram = 32;  // registers, size of the unrolled code
    lanes_ = narrowest <= 2 && vectors <= kMostVectors && program_.code.size() <= kLongProgram ? 8 : 4;
    const bool one_row = program_.rank <= 1;  // its rest is handled
    if (!one_row && row() % lanes_ != 0) lanes_ = 4;
    const bool stepped =
        one_row && std::any_of(program_.inputs.begin(), program_.inputs.end(), [&](const EwInput& input) {
          return row_step(input) != 0 && row_step(input) != 1;
        });
    if ((!one_row && row() % lanes_ != 0) || stepped) lanes_ = 1;
  }

  DType type_of(int reg) const {
    std::size_t r = std::size_t(reg);
    if (r < program_.inputs.size()) return program_.inputs[r].dtype;
    r -= program_.inputs.size();
    if (r < program_.constants.size()) return program_.constants[r].dtype;
    return program_.code[r - program_.constants.size()].result_type;
  }

  // ---- text ---------------------------------------------------------------------------------------------------------------------

  void line(const std::string& text) { body_ += indent_ + text + "\n"; }

  std::string params_members() const {
    std::string text;
    if (!program_.inputs.empty())
      text += "  const void* in[" + std::to_string(program_.inputs.size()) + "];\n";
    if (!program_.outputs.empty()) text += "  void* out[" + std::to_string(program_.outputs.size()) + "];\n";
    return text + "  const RandomState* random;\n";
  }

  std::string input_pointer(std::size_t i) const {
    return std::string("static_cast<const ") + names(program_.inputs[i].dtype).storage + "*>(params.in[" +
           std::to_string(i) + "])";
  }
  std::string output_pointer(std::size_t o) const {
    return std::string("static_cast<") + names(type_of(program_.outputs[o].reg)).storage + "*>(params.out[" +
           std::to_string(o) + "])";
  }

  // Where element `index` of the iteration space lies in an input, over dims merged for this input alone; "0"
  // when nowhere else.
  std::string offset(const EwInput& input, const std::string& index) const {
    std::vector<std::int64_t> dims, strides;
    for (int d = 0; d < program_.rank; ++d) {
      const std::int64_t dim = program_.dims[std::size_t(d)], stride = input.strides[std::size_t(d)];
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
      if (below != 1) term += " / " + number(below, wide_);
      if (d != 0) term += " % " + number(dims[d], wide_);
      if (far)
        term = "(long long)(" + term + ") * " + std::to_string(strides[d]) + "ll";
      else if (strides[d] != 1)
        term += " * " + number(strides[d], wide_);
      sum += (sum.empty() ? "" : " + ") + term;
    }
    return sum.empty() ? "0" : sum;
  }

  static std::string reg(int r) { return "r" + std::to_string(r); }

  void constants() {
    for (std::size_t c = 0; c < program_.constants.size(); ++c) {
      const EwConstant& constant = program_.constants[c];
      const Names name = names(constant.dtype);
      line(std::string("const ") + name.storage + " " + reg(int(program_.inputs.size() + c)) + " = cast<" +
           name.cast + ">(" + exact(constant.value) + ");");
    }
  }

  static bool draws(const EwInstruction& instruction) {
    return instruction.op == EwOp::Dropout || instruction.op == EwOp::DropoutMask ||
           instruction.op == EwOp::Uniform;
  }

  // The random streams of the program, each once.
  std::vector<std::uint64_t> keys() const {
    std::vector<std::uint64_t> found;
    for (const EwInstruction& instruction : program_.code) {
      if (draws(instruction) && std::find(found.begin(), found.end(), instruction.key) == found.end())
        found.push_back(instruction.key);
    }
    return found;
  }
  static std::string stream_text(std::uint64_t key) {
    char text[80];
    std::snprintf(text, sizeof text, "params.random->seed ^ 0x%" PRIx64 "ull, params.random->step", key);
    return text;
  }

  std::string operand(const EwInstruction& instruction, int o, bool as_stored = false) const {
    const int r = instruction.operands[std::size_t(o)];
    return is_half(type_of(r)) && !as_stored ? "widen(" + reg(r) + ")" : reg(r);
  }

  // The value of x^0.5, x^2 and x^3 without the general power function, as on the CPU; "" for other powers.
  std::string simple_power(const EwInstruction& instruction) const {
    const std::size_t exponent = std::size_t(instruction.operands[1]) - program_.inputs.size();
    if (std::size_t(instruction.operands[1]) < program_.inputs.size() ||
        exponent >= program_.constants.size())
      return "";
    const double value = program_.constants[exponent].value;
    const std::string x = operand(instruction, 0), compute = names(instruction.operand_type).compute;
    if (value == 0.5) return "op::Sqrt<" + compute + ">(" + x + ")";
    if (value == 2.0) return "op::Square<" + compute + ">(" + x + ")";
    if (value == 3.0) return x + " * " + x + " * " + x;
    return "";
  }

  std::string value_of(const EwInstruction& instruction, const std::vector<std::string>& uniform) const {
    const std::string compute = names(instruction.operand_type).compute;
    switch (instruction.op) {
      case EwOp::Cast: return reg(instruction.operands[0]);
      case EwOp::Dropout:
        return "dropout<" + compute + ">(" + uniform_of(instruction, uniform) + ", " +
               operand(instruction, 0) + ", " + operand(instruction, 1) + ", " + operand(instruction, 2) +
               ")";
      case EwOp::DropoutMask:
        return "dropout_mask<" + compute + ">(" + uniform_of(instruction, uniform) + ", " +
               operand(instruction, 0) + ", " + operand(instruction, 1) + ")";
      case EwOp::Uniform:
        return "between<" + compute + ">(" + uniform_of(instruction, uniform) + ", " +
               operand(instruction, 0) + ", " + operand(instruction, 1) + ")";
      default: break;
    }
    if (instruction.op == EwOp::Pow) {
      const std::string power = simple_power(instruction);
      if (!power.empty()) return power;
    }
    const Formula& formula = kFormulas[std::size_t(instruction.op)];
    const bool select = formula.types == 'S';  // moves values as they are stored
    std::string text = std::string("op::") + formula.name + "<" +
                       (select ? names(instruction.operand_type).storage : compute) + ">(";
    for (int o = 0; o < formula.arity; ++o) text += (o > 0 ? ", " : "") + operand(instruction, o, select);
    return text + ")";
  }

  std::string uniform_of(const EwInstruction& instruction, const std::vector<std::string>& uniform) const {
    const std::vector<std::uint64_t> all = keys();
    return uniform[std::size_t(std::find(all.begin(), all.end(), instruction.key) - all.begin())];
  }

  // Formulas of one element; the inputs' registers exist.
  void instructions(const std::vector<std::string>& uniform) {
    int r = int(program_.inputs.size() + program_.constants.size());
    for (const EwInstruction& instruction : program_.code) {
      const Names name = names(instruction.result_type);
      std::string value = value_of(instruction, uniform);
      const bool converts =
          instruction.op == EwOp::Cast || (is_half(instruction.result_type) && instruction.op != EwOp::Where);
      const bool has_mode = instruction.op == EwOp::Cast && instruction.key != 0;
      if (converts)
        value = std::string("cast<") + name.cast + ">(" + value +
                (has_mode ? ", " + number(std::int64_t(instruction.key), false) : "") + ")";
      line(std::string("const ") + name.storage + " " + reg(r++) + " = " + value + ";");
    }
  }

  void rows_body() {
    const std::string index = wide_ ? "unsigned long long" : "unsigned", n = std::to_string(lanes_),
                      count = number(count_, wide_);
    const bool rest = count_ % lanes_ != 0;
    line("const " + index + " first = (" + (wide_ ? "(unsigned long long)" : "") + "blockIdx.x * " +
         number(kThreads, wide_) + " + threadIdx.x) * " + number(lanes_, wide_) + ";");
    line("if (first >= " + count + ") return;");
    std::string whole, valid = n;
    if (rest) {
      whole = "first + " + number(lanes_, wide_) + " <= " + count;
      valid = "int(" + count + " - first)";
      if (wide_) valid = whole + " ? " + n + " : " + valid;
    }
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      if (access(i, lanes_) == Access::row_vector)
        whole += and_boundary(whole, program_.inputs[i].dtype, "in", i);
    }
    for (std::size_t o = 0; o < program_.outputs.size(); ++o)
      whole += and_boundary(whole, type_of(program_.outputs[o].reg), "out", o);
    line("const bool whole = " + (whole.empty() ? "true" : whole) + ";");
    line("const int valid = " + valid + ";");
    constants();
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) load_row(i, n);
    std::vector<std::string> uniform;
    for (const std::uint64_t key : keys()) {
      const std::string name = "u" + std::to_string(uniform.size());
      line("const Uniforms<" + n + "> " + name + " = uniforms<" + n + ">(first, " + stream_text(key) + ");");
      uniform.push_back(name + ".v[j]");
    }
    for (std::size_t o = 0; o < program_.outputs.size(); ++o)
      line(std::string("Lanes<") + names(type_of(program_.outputs[o].reg)).storage + ", " + n + "> y" +
           std::to_string(o) + ";");
    body_ += "#pragma unroll\n";
    line("for (int j = 0; j < " + n + "; ++j) {");
    indent_ = "    ";
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      const Access how = access(i, lanes_);
      if (how == Access::row_vector || how == Access::row_steps)
        line(std::string("const ") + names(program_.inputs[i].dtype).storage + " " + reg(int(i)) + " = a" +
             std::to_string(i) + ".v[j];");
    }
    instructions(uniform);
    for (std::size_t o = 0; o < program_.outputs.size(); ++o)
      line("y" + std::to_string(o) + ".v[j] = " + reg(program_.outputs[o].reg) + ";");
    indent_ = "  ";
    line("}");
    for (std::size_t o = 0; o < program_.outputs.size(); ++o)
      line("store_lanes(" + output_pointer(o) + " + first, y" + std::to_string(o) + ", whole, valid);");
  }

  std::string and_boundary(const std::string& before, DType type, const char* list, std::size_t i) const {
    return std::string(before.empty() ? "" : " && ") + "at_boundary<" + names(type).storage + ", " +
           std::to_string(lanes_) + ">(params." + list + "[" + std::to_string(i) + "])";
  }

  void load_row(std::size_t i, const std::string& n) {
    const EwInput& input = program_.inputs[i];
    const std::string storage = names(input.dtype).storage, name = std::to_string(i);
    const std::string lanes = "const Lanes<" + storage + ", " + n + "> a" + name + " = ";
    switch (access(i, lanes_)) {
      case Access::unused: return;
      case Access::uniform:
      case Access::row_constant:
        return line("const " + storage + " r" + name + " = " + input_pointer(i) + "[" +
                    offset(input, "first") + "];");
      case Access::row_vector:
        return line(lanes + "load_lanes<" + storage + ", " + n + ">(" + input_pointer(i) + " + (" +
                    offset(input, "first") + "), whole, valid);");
      case Access::row_steps:
        return line(lanes + "gather_lanes<" + storage + ", " + n + ">(" + input_pointer(i) + " + (" +
                    offset(input, "first") + "), " + std::to_string(row_step(input)) +
                    (std::abs(row_step(input)) >= kIndex32 / 8 ? "ll" : "") + ");");
    }
  }

  void loose_body() {
    const std::string index = wide_ ? "unsigned long long" : "unsigned";
    constants();
    body_ += "#pragma unroll\n";
    line("for (int j = 0; j < " + std::to_string(kLoose) + "; ++j) {");
    indent_ = "    ";
    line("const " + index + " i = " + (wide_ ? "(unsigned long long)" : "") + "blockIdx.x * " +
         number(kLoose * kThreads, wide_) + " + j * " + number(kThreads, wide_) + " + threadIdx.x;");
    line("if (i >= " + number(count_, wide_) + ") return;");
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      if (access(i, 1) == Access::unused) continue;
      line(std::string("const ") + names(program_.inputs[i].dtype).storage + " " + reg(int(i)) + " = " +
           input_pointer(i) + "[" + offset(program_.inputs[i], "i") + "];");
    }
    std::vector<std::string> uniform;
    for (const std::uint64_t key : keys()) {
      uniform.push_back("u" + std::to_string(uniform.size()));
      line("const float " + uniform.back() + " = uniform_at(i, " + stream_text(key) + ");");
    }
    instructions(uniform);
    for (std::size_t o = 0; o < program_.outputs.size(); ++o)
      line(output_pointer(o) + "[i] = " + reg(program_.outputs[o].reg) + ";");
    indent_ = "  ";
    line("}");
  }

  static std::string hash_of(const std::string& text) {
    std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
    char hex[20];
    std::snprintf(hex, sizeof hex, "%016" PRIx64, hash);
    return hex;
  }

  EwProgram program_;
  std::int64_t count_ = 1;
  bool wide_ = false;  // 64-bit element numbers
  int lanes_ = 1;
  std::vector<bool> used_;
  std::string body_, indent_ = "  ";
};

}  // namespace

// The text of generated.h with everything that it includes (embed.cmake).
extern const char* const kEmbeddedPrelude;

GeneratedKernel generate(const EwProgram& program) { return Generator(program).generate(); }

const std::string& generated_prelude() {
  static const std::string prelude = kEmbeddedPrelude + formula_functions();
  return prelude;
}

}  // namespace gradloom::kernels::gpu
