// Source text of a GPU kernel for one elementwise program, from the same formulas as the CPU's tiles
// (kernels/elementwise.def).
#pragma once

#include <string>

#include "kernels/elementwise.h"

namespace gradloom::kernels::gpu {

// What a generated kernel gets, as its one argument: pointers in the order of the program's inputs and
// outputs. An output may be the memory of a dense input of its element size. 16-byte boundaries make it
// faster but are not required. A member without elements is left out.
//   struct Params { const void* in[inputs]; void* out[outputs]; const RandomState* random; };
//
// The text is the same for CUDA, HIP and the host. Functions open with
//   GRADLOOM_PROGRAM(ew_0123456789abcdef, ew_0123456789abcdef_Params) { ... params.in[0] ... }
// a macro of cuda.h, hip.h and host.h that declares an extern "C" kernel of that name
// with the argument `params`.
struct GeneratedKernel {
  std::string entry;   // "ew_<hash of the body>": equal programs have equal entries
  std::string source;  // one function; `generated_prelude` + any number of these is a whole file
  unsigned blocks = 1, threads = 256;  // launch: grid of `blocks`, one-dimensional
  std::size_t params_bytes = 0;
};
GeneratedKernel generate(const EwProgram& program);
// Text that the functions need before them: types, math, Philox. Self-contained: needs no include path.
const std::string& generated_prelude();

}  // namespace gradloom::kernels::gpu
