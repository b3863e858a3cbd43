// Elementwise programs for tests: of one operator, over dense and broadcast inputs.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/elementwise.h"
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {

using Dims = std::vector<std::int64_t>;

inline EwProgram program_over(const Dims& dims) {
  EwProgram program;
  program.rank = int(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d) program.dims[d] = dims[d];
  return program;
}

// Row-major strides of a tensor of shape `dims` broadcast to the program's dims (same rank; 1 is
// broadcast).
inline EwInput input_of(DType type, const Dims& dims) {
  EwInput input;
  input.dtype = type;
  std::int64_t stride = 1;
  for (std::size_t d = dims.size(); d-- > 0;) {
    input.strides[d] = dims[d] == 1 ? 0 : stride;
    stride *= dims[d];
  }
  return input;
}

inline EwProgram one_operator(EwOp op, DType type, DType result, int arity, std::int64_t n) {
  EwProgram program = program_over({n});
  EwInstruction instruction{op, type, result, {-1, -1, -1}, 0};
  for (int i = 0; i < arity; ++i) {
    const bool condition = op == EwOp::Where && i == 0;
    program.inputs.push_back(input_of(condition ? DType::boolean : type, {n}));
    instruction.operands[std::size_t(i)] = std::int16_t(i);
  }
  program.code.push_back(instruction);
  program.outputs.push_back({std::int16_t(arity), result});
  return program;
}

template <class Out>
std::vector<Out> run(const CpuKernels& kernels, const EwProgram& program,
                     const std::vector<const void*>& inputs, std::int64_t n, std::uint64_t seed = 0,
                     std::uint64_t step = 0) {
  std::vector<Out> out(std::size_t(n), Out(77));
  void* outputs[] = {out.data()};
  const RandomState random{seed, step};
  kernels.elementwise({&program, inputs.data(), outputs, &random});
  return out;
}

}  // namespace gradloom::kernels::test
