// Source text for elementwise programs: how a thread loads, computes and stores (program_layout.h),
// written down. All loads of an element come before its stores, so outputs may lie over inputs.
#include "kernels/gpu/program_source.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "kernels/gpu/program_layout.h"
#include "kernels/gpu/program_text.h"

namespace gradloom::kernels::gpu {
namespace {

std::string hash_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  char hex[20];
  std::snprintf(hex, sizeof hex, "%016" PRIx64, hash);
  return hex;
}

class Generator {
 public:
  explicit Generator(const EwProgram& program) : layout_(program) {}

  GeneratedKernel generate() {
    if (layout_.count > 0) {
      if (layout_.lanes > 1)
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
    kernel.blocks = layout_.blocks();
    kernel.threads = kProgramThreads;
    kernel.params_bytes = (program().inputs.size() + program().outputs.size() + 1) * sizeof(void*);
    return kernel;
  }

 private:
  const EwProgram& program() const { return layout_.program; }

  void line(const std::string& text) { body_ += indent_ + text + "\n"; }

  std::string params_members() const {
    std::string text;
    if (!program().inputs.empty())
      text += "  const void* in[" + std::to_string(program().inputs.size()) + "];\n";
    if (!program().outputs.empty())
      text += "  void* out[" + std::to_string(program().outputs.size()) + "];\n";
    return text + "  const RandomState* random;\n";
  }

  std::string input_pointer(std::size_t i) const {
    return std::string("static_cast<const ") + type_names(program().inputs[i].dtype).storage +
           "*>(params.in[" + std::to_string(i) + "])";
  }
  std::string output_pointer(std::size_t o) const {
    return std::string("static_cast<") + type_names(layout_.type_of(program().outputs[o].reg)).storage +
           "*>(params.out[" + std::to_string(o) + "])";
  }

  void constants() {
    for (std::size_t c = 0; c < program().constants.size(); ++c) {
      const EwConstant& constant = program().constants[c];
      const TypeNames name = type_names(constant.dtype);
      line(std::string("const ") + name.storage + " " + register_text(int(program().inputs.size() + c)) +
           " = cast<" + name.cast + ">(" + exact_text(constant.value) + ");");
    }
  }

  // Formulas of one element; the inputs' registers exist.
  void instructions(const std::vector<std::string>& uniform) {
    int r = int(program().inputs.size() + program().constants.size());
    for (const EwInstruction& instruction : program().code)
      line(std::string("const ") + type_names(instruction.result_type).storage + " " + register_text(r++) +
           " = " + instruction_text(layout_, instruction, uniform) + ";");
  }

  void rows_body() {
    const std::string index = layout_.wide ? "unsigned long long" : "unsigned",
                      n = std::to_string(layout_.lanes), count = index_text(layout_.count, layout_.wide);
    const bool rest = layout_.count % layout_.lanes != 0;
    line("const " + index + " first = (" + (layout_.wide ? "(unsigned long long)" : "") + "blockIdx.x * " +
         index_text(kProgramThreads, layout_.wide) + " + threadIdx.x) * " +
         index_text(layout_.lanes, layout_.wide) + ";");
    line("if (first >= " + count + ") return;");
    std::string whole, valid = n;
    if (rest) {
      whole = "first + " + index_text(layout_.lanes, layout_.wide) + " <= " + count;
      valid = "int(" + count + " - first)";
      if (layout_.wide) valid = whole + " ? " + n + " : " + valid;
    }
    for (std::size_t i = 0; i < program().inputs.size(); ++i) {
      if (layout_.access(i) == Access::row_vector)
        whole += and_boundary(whole, program().inputs[i].dtype, "in", i);
    }
    for (std::size_t o = 0; o < program().outputs.size(); ++o)
      whole += and_boundary(whole, layout_.type_of(program().outputs[o].reg), "out", o);
    line("const bool whole = " + (whole.empty() ? "true" : whole) + ";");
    line("const int valid = " + valid + ";");
    constants();
    for (std::size_t i = 0; i < program().inputs.size(); ++i) load_row(i, n);
    std::vector<std::string> uniform;
    for (const std::uint64_t key : random_keys(program())) {
      const std::string name = "u" + std::to_string(uniform.size());
      line("const Uniforms<" + n + "> " + name + " = uniforms<" + n + ">(first, " + stream_text(key) + ");");
      uniform.push_back(name + ".v[j]");
    }
    for (std::size_t o = 0; o < program().outputs.size(); ++o)
      line(std::string("Lanes<") + type_names(layout_.type_of(program().outputs[o].reg)).storage + ", " + n +
           "> y" + std::to_string(o) + ";");
    body_ += "#pragma unroll\n";
    line("for (int j = 0; j < " + n + "; ++j) {");
    indent_ = "    ";
    for (std::size_t i = 0; i < program().inputs.size(); ++i) {
      const Access how = layout_.access(i);
      if (how == Access::row_vector || how == Access::row_steps)
        line(std::string("const ") + type_names(program().inputs[i].dtype).storage + " " +
             register_text(int(i)) + " = a" + std::to_string(i) + ".v[j];");
    }
    instructions(uniform);
    for (std::size_t o = 0; o < program().outputs.size(); ++o)
      line("y" + std::to_string(o) + ".v[j] = " + register_text(program().outputs[o].reg) + ";");
    indent_ = "  ";
    line("}");
    for (std::size_t o = 0; o < program().outputs.size(); ++o)
      line("store_lanes(" + output_pointer(o) + " + first, y" + std::to_string(o) + ", whole, valid);");
  }

  std::string and_boundary(const std::string& before, DType type, const char* list, std::size_t i) const {
    return std::string(before.empty() ? "" : " && ") + "at_boundary<" + type_names(type).storage + ", " +
           std::to_string(layout_.lanes) + ">(params." + list + "[" + std::to_string(i) + "])";
  }

  void load_row(std::size_t i, const std::string& n) {
    const EwInput& input = program().inputs[i];
    const std::string storage = type_names(input.dtype).storage, name = std::to_string(i);
    const std::string lanes = "const Lanes<" + storage + ", " + n + "> a" + name + " = ";
    switch (layout_.access(i)) {
      case Access::unused: return;
      case Access::uniform:
      case Access::row_constant:
        return line("const " + storage + " r" + name + " = " + input_pointer(i) + "[" +
                    offset_text(layout_, input, "first") + "];");
      case Access::row_vector:
        return line(lanes + "load_lanes<" + storage + ", " + n + ">(" + input_pointer(i) + " + (" +
                    offset_text(layout_, input, "first") + "), whole, valid);");
      case Access::row_steps:
        return line(lanes + "gather_lanes<" + storage + ", " + n + ">(" + input_pointer(i) + " + (" +
                    offset_text(layout_, input, "first") + "), " + std::to_string(layout_.row_step(input)) +
                    (std::abs(layout_.row_step(input)) >= kIndex32 / 8 ? "ll" : "") + ");");
    }
  }

  void loose_body() {
    const std::string index = layout_.wide ? "unsigned long long" : "unsigned";
    constants();
    body_ += "#pragma unroll\n";
    line("for (int j = 0; j < " + std::to_string(kLooseElements) + "; ++j) {");
    indent_ = "    ";
    line("const " + index + " i = " + (layout_.wide ? "(unsigned long long)" : "") + "blockIdx.x * " +
         index_text(std::int64_t{kLooseElements} * kProgramThreads, layout_.wide) + " + j * " +
         index_text(kProgramThreads, layout_.wide) + " + threadIdx.x;");
    line("if (i >= " + index_text(layout_.count, layout_.wide) + ") return;");
    for (std::size_t i = 0; i < program().inputs.size(); ++i) {
      if (layout_.access(i) == Access::unused) continue;
      line(std::string("const ") + type_names(program().inputs[i].dtype).storage + " " +
           register_text(int(i)) + " = " + input_pointer(i) + "[" +
           offset_text(layout_, program().inputs[i], "i") + "];");
    }
    std::vector<std::string> uniform;
    for (const std::uint64_t key : random_keys(program())) {
      uniform.push_back("u" + std::to_string(uniform.size()));
      line("const float " + uniform.back() + " = uniform_at(i, " + stream_text(key) + ");");
    }
    instructions(uniform);
    for (std::size_t o = 0; o < program().outputs.size(); ++o)
      line(output_pointer(o) + "[i] = " + register_text(program().outputs[o].reg) + ";");
    indent_ = "  ";
    line("}");
  }

  const ProgramLayout layout_;
  std::string body_, indent_ = "  ";
};

}  // namespace

// The text of program_prelude.h with everything that it includes (embed.cmake).
extern const char* const kEmbeddedPrelude;

GeneratedKernel generate(const EwProgram& program) { return Generator(program).generate(); }

const std::string& generated_prelude() {
  static const std::string prelude = kEmbeddedPrelude + formula_functions();
  return prelude;
}

}  // namespace gradloom::kernels::gpu
