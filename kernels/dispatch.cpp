// Chooses the kernels of the best x86-64 level that the machine has.
// Compiled for the baseline, like everything outside cpu/.
#include <cstdlib>
#include <cstring>

#include "kernels/launcher.h"

namespace gradloom::kernels {

#define ISA(name)                \
  namespace name {               \
  extern const CpuKernels table; \
  }
GRADLOOM_ISA_LIST
#undef ISA

namespace {

// The features that each level adds over the one below (x86-64 psABI),
// as far as the compiler can ask for them.
bool machine_has(const char* isa) {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("popcnt")) return false;
  if (std::strcmp(isa, "v2") == 0) return true;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi") ||
      !__builtin_cpu_supports("bmi2")) {
    return false;
  }
  if (std::strcmp(isa, "v3") == 0) return true;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

// Levels are listed lowest first. `limit`: highest level allowed by the environment, or null.
const CpuKernels* choose(const char* limit) {
  static const CpuKernels* const compiled[] = {
#define ISA(name) &name::table,
      GRADLOOM_ISA_LIST
#undef ISA
  };
  const CpuKernels* best = compiled[0];
  for (const CpuKernels* level : compiled) {
    if (!machine_has(level->isa)) break;
    if (limit != nullptr && std::strcmp(level->isa, limit) > 0) break;
    best = level;
  }
  return best;
}

}  // namespace

const CpuKernels& cpu() {
  static const CpuKernels* const chosen = choose(std::getenv("GRADLOOM_ISA"));
  return *chosen;
}

int cpu_levels(const CpuKernels** levels, int capacity) {
  int count = 0;
#define ISA(name) \
  if (machine_has(name::table.isa) && count < capacity) levels[count++] = &name::table;
  GRADLOOM_ISA_LIST
#undef ISA
  return count;
}

const Launcher& cpu_launcher() {
  static const Launcher launcher(cpu());
  return launcher;
}

const char* kernel_name(KernelId id) {
  static constexpr const char* kNames[] = {
#define GRADLOOM_NAME(name, Args) #name,
      GRADLOOM_CPU_KERNELS(GRADLOOM_NAME) GRADLOOM_GPU_ONLY_KERNELS(GRADLOOM_NAME)
#undef GRADLOOM_NAME
  };
  return id < KernelId::count ? kNames[static_cast<std::size_t>(id)] : "unknown";
}

}  // namespace gradloom::kernels
