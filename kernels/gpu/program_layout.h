// How a generated kernel walks over an elementwise program: elements per thread, and how each input
// is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/elementwise.h"

namespace gradloom::kernels::gpu {

constexpr unsigned kProgramThreads = 256;                 // of a block
constexpr int kLooseElements = 4;                         // of a thread, a block's width apart
constexpr std::int64_t kIndex32 = std::int64_t(1) << 31;  // offsets below are counted in 32 bits

// How an input is read by a thread of several lanes.
enum class Access { unused, uniform, row_constant, row_vector, row_steps };

// A thread takes `lanes` consecutive elements where rows allow it: dense inputs and outputs move in
// vectors, an input that is constant along the row is read once. With lanes 1 it takes
// kLooseElements single elements.
struct ProgramLayout {
  explicit ProgramLayout(const EwProgram& of);

  EwProgram program;  // its dims collapsed
  std::int64_t count = 1;
  bool wide = false;  // 64-bit element numbers
  int lanes = 1;
  std::vector<bool> used;  // by input

  DType type_of(int reg) const;
  Access access(std::size_t input, int of_lanes) const;
  Access access(std::size_t input) const { return access(input, lanes); }
  std::int64_t row() const { return program.rank > 0 ? program.dims[std::size_t(program.rank - 1)] : 1; }
  std::int64_t row_step(const EwInput& input) const {
    return program.rank > 0 ? input.strides[std::size_t(program.rank - 1)] : 0;
  }
  unsigned blocks() const;

 private:
  void find_uses();
  void choose_lanes();
};

}  // namespace gradloom::kernels::gpu
