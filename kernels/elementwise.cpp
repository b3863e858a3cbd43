// Simplifies the iteration space of an elementwise program.
#include "kernels/elementwise.h"

namespace gradloom::kernels {
namespace {

bool mergeable(const EwProgram& program, int outer, int inner) {
  for (const EwInput& input : program.inputs) {
    if (input.strides[outer] != input.strides[inner] * program.dims[inner]) return false;
  }
  return true;
}

}  // namespace

void ew_collapse_dims(EwProgram& program) {
  int rank = 0;
  for (int d = 0; d < program.rank; ++d) {
    if (program.dims[d] == 1) continue;
    program.dims[rank] = program.dims[d];
    for (EwInput& input : program.inputs) input.strides[rank] = input.strides[d];
    ++rank;
    if (rank >= 2 && mergeable(program, rank - 2, rank - 1)) {
      program.dims[rank - 2] *= program.dims[rank - 1];
      for (EwInput& input : program.inputs) input.strides[rank - 2] = input.strides[rank - 1];
      --rank;
    }
  }
  for (int d = rank; d < program.rank; ++d) {
    program.dims[d] = 1;
    for (EwInput& input : program.inputs) input.strides[d] = 0;
  }
  program.rank = rank;
}

}  // namespace gradloom::kernels
