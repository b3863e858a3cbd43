// The spelling of elementwise programs in generated source: types, numbers, offsets and the value
// of each instruction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/gpu/program_layout.h"

namespace gradloom::kernels::gpu {

struct TypeNames {
  const char* storage;  // in memory and registers
  const char* cast;     // argument of cast<>
  const char* compute;  // T of the formulas
};
TypeNames type_names(DType type);

// op::Add<T>(a, b) and so on: a function for each row of kernels/elementwise.def.
std::string formula_functions();

std::string index_text(std::int64_t value, bool wide);  // 12u, 12ull
std::string exact_text(double value);                   // of the same bits
std::string register_text(int reg);                     // r3

// Where element `index` of the iteration space lies in an input, over dims merged for this input
// alone; "0" when nowhere else.
std::string offset_text(const ProgramLayout& layout, const EwInput& input, const std::string& index);

// The identities of the program's random numbers, each once, and how a thread names such a stream.
std::vector<std::uint64_t> random_keys(const EwProgram& program);
std::string stream_text(std::uint64_t key);

// The instruction's value of one element, in its result type; the registers of its operands exist.
// `uniform`: the random number of this element, by key.
std::string instruction_text(const ProgramLayout& layout, const EwInstruction& instruction,
                             const std::vector<std::string>& uniform);

}  // namespace gradloom::kernels::gpu
