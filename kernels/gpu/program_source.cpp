// Source text for elementwise programs: how a thread loads, computes and stores (program_layout.h),
// written down. All loads of an element come before its stores, so outputs may lie over inputs.
#include "kernels/gpu/program_source.h"

#include "kernels/gpu/program_layout.h"
#include "kernels/gpu/program_text.h"
#include "kernels/gpu/program_writer.h"

namespace gradloom::kernels::gpu {
namespace {

class Generator : ProgramWriter {
 public:
  explicit Generator(const EwProgram& program) : ProgramWriter(program) {}

  GeneratedKernel generate() {
    if (layout_.count > 0) {
      if (layout_.lanes > 1)
        rows_body();
      else
        loose_body();
    }
    return finish("ew_", layout_.blocks(), kProgramThreads);
  }

 private:
  // Formulas of one element; the inputs' registers exist.
  void instructions(const std::vector<std::string>& uniform) {
    for (std::size_t k = 0; k < program().code.size(); ++k) instruction(first_result() + int(k), uniform);
  }

  void rows_body() {
    const std::string n = std::to_string(layout_.lanes), count = index_text(layout_.count, layout_.wide);
    const bool rest = layout_.count % layout_.lanes != 0;
    line("const " + index_type() + " first = (" + (layout_.wide ? "(unsigned long long)" : "") +
         "blockIdx.x * " + index_text(kProgramThreads, layout_.wide) + " + threadIdx.x) * " +
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
        whole += and_boundary(whole, program().inputs[i].dtype, layout_.lanes, "in", i);
    }
    for (std::size_t o = 0; o < program().outputs.size(); ++o)
      whole += and_boundary(whole, layout_.type_of(program().outputs[o].reg), layout_.lanes, "out", o);
    line("const bool whole = " + (whole.empty() ? "true" : whole) + ";");
    line("const int valid = " + valid + ";");
    constants();
    for (std::size_t i = 0; i < program().inputs.size(); ++i) load_row(i, layout_.lanes);
    std::vector<std::string> uniform;
    for (const std::uint64_t key : random_keys(program()))
      uniform.push_back(draw_row(key, uniform.size(), layout_.lanes));
    for (std::size_t o = 0; o < program().outputs.size(); ++o)
      line("Lanes<" + storage_of(program().outputs[o].reg) + ", " + n + "> y" + std::to_string(o) + ";");
    unrolled("for (int j = 0; j < " + n + "; ++j)");
    for (std::size_t i = 0; i < program().inputs.size(); ++i) unpack_row(i, layout_.lanes);
    instructions(uniform);
    for (std::size_t o = 0; o < program().outputs.size(); ++o)
      line("y" + std::to_string(o) + ".v[j] = " + register_text(program().outputs[o].reg) + ";");
    close();
    for (std::size_t o = 0; o < program().outputs.size(); ++o)
      line("store_lanes(" + output_pointer(o) + " + first, y" + std::to_string(o) + ", whole, valid);");
  }

  void loose_body() {
    constants();
    unrolled("for (int j = 0; j < " + std::to_string(kLooseElements) + "; ++j)");
    line("const " + index_type() + " i = " + (layout_.wide ? "(unsigned long long)" : "") + "blockIdx.x * " +
         index_text(std::int64_t{kLooseElements} * kProgramThreads, layout_.wide) + " + j * " +
         index_text(kProgramThreads, layout_.wide) + " + threadIdx.x;");
    line("if (i >= " + index_text(layout_.count, layout_.wide) + ") return;");
    for (std::size_t i = 0; i < program().inputs.size(); ++i) {
      if (layout_.access(i) == Access::unused) continue;
      line("const " + storage_of(int(i)) + " " + register_text(int(i)) + " = " + input_pointer(i) + "[" +
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
    close();
  }
};

}  // namespace

// The text of program_prelude.h with everything that it includes (embed.cmake).
extern const char* const kEmbeddedPrelude;

GeneratedKernel generate(const EwProgram& program) {
  return program.row > 0 ? generate_rows(program) : Generator(program).generate();
}

const std::string& generated_prelude() {
  static const std::string prelude = kEmbeddedPrelude + formula_functions();
  return prelude;
}

}  // namespace gradloom::kernels::gpu
