// Launcher: where a kernel goes. On the CPU it runs at once from the table of this machine's level; on a GPU
// it is queued on one stream by the plugin of that device. Operators call kernels through it and do not know
// which it is.
#pragma once

#include <cstddef>

#include "kernels/cpu.h"

namespace gradloom::kernels {

enum class KernelId : std::uint32_t {
#define GRADLOOM_ID(name, Args) name,
  GRADLOOM_CPU_KERNELS(GRADLOOM_ID) GRADLOOM_GPU_ONLY_KERNELS(GRADLOOM_ID) count
#undef GRADLOOM_ID
};
const char* kernel_name(KernelId id);

class Launcher {
 public:
  // `args` is the struct of kernel `id`, `bytes` its size. Errors are kept by the queue.
  using QueueFn = void (*)(void* queue, KernelId id, const void* args, std::size_t bytes);

  explicit Launcher(const CpuKernels& cpu) : cpu_(&cpu) {}
  Launcher(QueueFn function, void* queue) : function_(function), queue_(queue) {}

#define GRADLOOM_RUN(name, Args)                             \
  void name(const Args& args) const {                        \
    if (cpu_ != nullptr)                                     \
      cpu_->name(args);                                      \
    else                                                     \
      function_(queue_, KernelId::name, &args, sizeof args); \
  }
  GRADLOOM_CPU_KERNELS(GRADLOOM_RUN)
#undef GRADLOOM_RUN
#define GRADLOOM_RUN(name, Args) \
  void name(const Args& args) const { function_(queue_, KernelId::name, &args, sizeof args); }
  GRADLOOM_GPU_ONLY_KERNELS(GRADLOOM_RUN)
#undef GRADLOOM_RUN

 private:
  const CpuKernels* cpu_ = nullptr;
  QueueFn function_ = nullptr;
  void* queue_ = nullptr;
};

const Launcher& cpu_launcher();

}  // namespace gradloom::kernels
