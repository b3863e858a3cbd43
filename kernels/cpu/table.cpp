// The table of this x86-64 level's kernels.
#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {

#define GRADLOOM_TEXT_OF(x) #x
#define GRADLOOM_TEXT(x) GRADLOOM_TEXT_OF(x)
#define GRADLOOM_ROW(name, Args) name,
extern const CpuKernels table;
const CpuKernels table = {GRADLOOM_TEXT(GRADLOOM_ISA), GRADLOOM_CPU_KERNELS(GRADLOOM_ROW)};
#undef GRADLOOM_ROW
#undef GRADLOOM_TEXT
#undef GRADLOOM_TEXT_OF

}  // namespace gradloom::kernels::GRADLOOM_ISA
