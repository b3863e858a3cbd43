#include "kernels/gpu/program_writer.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

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

}  // namespace

std::string ProgramWriter::storage_of(int reg) const { return type_names(layout_.type_of(reg)).storage; }

void ProgramWriter::unrolled(const std::string& loop) {
  body_ += "#pragma unroll\n";
  line(loop + " {");
  indent_ += "  ";
}

void ProgramWriter::close() {
  indent_.resize(indent_.size() - 2);
  line("}");
}

std::string ProgramWriter::input_pointer(std::size_t i) const {
  return std::string("static_cast<const ") + type_names(program().inputs[i].dtype).storage + "*>(params.in[" +
         std::to_string(i) + "])";
}

std::string ProgramWriter::output_pointer(std::size_t o) const {
  return "static_cast<" + storage_of(program().outputs[o].reg) + "*>(params.out[" + std::to_string(o) + "])";
}

void ProgramWriter::constants() {
  for (std::size_t c = 0; c < program().constants.size(); ++c) {
    const EwConstant& constant = program().constants[c];
    const TypeNames name = type_names(constant.dtype);
    line(std::string("const ") + name.storage + " " + register_text(input_count() + int(c)) + " = cast<" +
         name.cast + ">(" + exact_text(constant.value) + ");");
  }
}

void ProgramWriter::instruction(int reg, const std::vector<std::string>& uniform) {
  const EwInstruction& instruction = program().code[std::size_t(reg - first_result())];
  line("const " + storage_of(reg) + " " + register_text(reg) + " = " +
       instruction_text(layout_, instruction, uniform) + ";");
}

std::string ProgramWriter::and_boundary(const std::string& before, DType type, int lanes, const char* list,
                                        std::size_t i) const {
  return std::string(before.empty() ? "" : " && ") + "at_boundary<" + type_names(type).storage + ", " +
         std::to_string(lanes) + ">(params." + list + "[" + std::to_string(i) + "])";
}

void ProgramWriter::load_row(std::size_t i, int lanes) {
  const EwInput& input = program().inputs[i];
  const std::string storage = type_names(input.dtype).storage, name = std::to_string(i),
                    n = std::to_string(lanes), at = offset_text(layout_, input, "first");
  const std::string vector = "const Lanes<" + storage + ", " + n + "> a" + name + " = ";
  switch (layout_.access(i, lanes)) {
    case Access::unused: return;
    case Access::uniform:
    case Access::row_constant:
      return line("const " + storage + " r" + name + " = " + input_pointer(i) + "[" + at + "];");
    case Access::row_vector:
      return line(vector + "load_lanes<" + storage + ", " + n + ">(" + input_pointer(i) + " + (" + at +
                  "), whole, valid);");
    case Access::row_steps:
      return line(vector + "gather_lanes<" + storage + ", " + n + ">(" + input_pointer(i) + " + (" + at +
                  "), " + std::to_string(layout_.row_step(input)) +
                  (std::abs(layout_.row_step(input)) >= kIndex32 / 8 ? "ll" : "") + ");");
  }
}

void ProgramWriter::unpack_row(std::size_t i, int lanes) {
  const Access how = layout_.access(i, lanes);
  if (how == Access::row_vector || how == Access::row_steps)
    line("const " + storage_of(int(i)) + " " + register_text(int(i)) + " = a" + std::to_string(i) + ".v[j];");
}

std::string ProgramWriter::draw_row(std::uint64_t key, std::size_t number, int lanes) {
  const std::string name = "u" + std::to_string(number), n = std::to_string(lanes);
  if (lanes == 1) {
    line("const float " + name + " = uniform_at(first, " + stream_text(key) + ");");
    return name;
  }
  line("const Uniforms<" + n + "> " + name + " = uniforms<" + n + ">(first, " + stream_text(key) + ");");
  return name + ".v[j]";
}

std::string ProgramWriter::params_members() const {
  std::string text;
  if (!program().inputs.empty())
    text += "  const void* in[" + std::to_string(program().inputs.size()) + "];\n";
  if (!program().outputs.empty()) text += "  void* out[" + std::to_string(program().outputs.size()) + "];\n";
  return text + "  const RandomState* random;\n";
}

GeneratedKernel ProgramWriter::finish(const char* prefix, unsigned blocks, unsigned threads) const {
  const std::string params = params_members();
  GeneratedKernel kernel;
  kernel.entry = prefix + hash_of(params + body_);
  kernel.source = "namespace gradloom::kernels::gpu {\nstruct " + kernel.entry + "_Params {\n" + params +
                  "};\nGRADLOOM_PROGRAM(" + kernel.entry + ", " + kernel.entry + "_Params) {\n" + body_ +
                  "}\n}  // namespace gradloom::kernels::gpu\n";
  kernel.blocks = blocks;
  kernel.threads = threads;
  kernel.params_bytes = (program().inputs.size() + program().outputs.size() + 1) * sizeof(void*);
  return kernel;
}

}  // namespace gradloom::kernels::gpu
