#include "kernels/gpu/program_layout.h"

#include <algorithm>

namespace gradloom::kernels::gpu {

ProgramLayout::ProgramLayout(const EwProgram& of) : program(of) {
  ew_collapse_dims(program);
  for (int d = 0; d < program.rank; ++d) count *= program.dims[std::size_t(d)];
  wide = count >= kIndex32;
  find_uses();
  choose_lanes();
}

void ProgramLayout::find_uses() {
  used.assign(program.inputs.size(), false);
  const auto use = [&](int reg) {
    if (reg >= 0 && std::size_t(reg) < used.size()) used[std::size_t(reg)] = true;
  };
  for (const EwInstruction& instruction : program.code) {
    for (const std::int16_t reg : instruction.operands) use(reg);
  }
  for (const EwOutput& output : program.outputs) use(output.reg);
}

Access ProgramLayout::access(std::size_t i, int of_lanes) const {
  const EwInput& input = program.inputs[i];
  if (!used[i]) return Access::unused;
  if (std::all_of(input.strides.begin(), input.strides.end(), [](std::int64_t s) { return s == 0; }))
    return Access::uniform;
  if (row_step(input) == 0) return Access::row_constant;
  if (row_step(input) != 1) return Access::row_steps;
  for (int d = 0; d + 1 < program.rank; ++d) {
    if (input.strides[std::size_t(d)] % of_lanes != 0)
      return Access::row_steps;  // rows begin between boundaries
  }
  return Access::row_vector;
}

// 16 bytes of the narrowest type, within 4 and 8 elements; 1 when rows are not whole vectors.
void ProgramLayout::choose_lanes() {
  std::size_t narrowest = 8, vectors = program.outputs.size();
  for (const EwOutput& output : program.outputs)
    narrowest = std::min(narrowest, dtype_bytes(type_of(output.reg)));
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    if (access(i, 4) != Access::row_vector) continue;
    narrowest = std::min(narrowest, dtype_bytes(program.inputs[i].dtype));
    ++vectors;
  }
  constexpr std::size_t kMostVectors = 16, kLongProgram = 32;  // registers, size of the unrolled code
  lanes = narrowest <= 2 && vectors <= kMostVectors && program.code.size() <= kLongProgram ? 8 : 4;
  const bool one_row = program.rank <= 1;  // its rest is handled
  if (!one_row && row() % lanes != 0) lanes = 4;
  const bool stepped =
      one_row && std::any_of(program.inputs.begin(), program.inputs.end(), [&](const EwInput& input) {
        return row_step(input) != 0 && row_step(input) != 1;
      });
  if ((!one_row && row() % lanes != 0) || stepped) lanes = 1;
}

DType ProgramLayout::type_of(int reg) const {
  std::size_t r = std::size_t(reg);
  if (r < program.inputs.size()) return program.inputs[r].dtype;
  r -= program.inputs.size();
  if (r < program.constants.size()) return program.constants[r].dtype;
  return program.code[r - program.constants.size()].result_type;
}

unsigned ProgramLayout::blocks() const {
  const std::int64_t per_block = std::int64_t(kProgramThreads) * (lanes > 1 ? lanes : kLooseElements);
  return unsigned(std::max<std::int64_t>(1, (count + per_block - 1) / per_block));
}

}  // namespace gradloom::kernels::gpu
