// Launcher: decides where a kernel runs. On the CPU it runs at once from the table of this machine's level; on a GPU
// it is queued on one stream by the plugin of that device. Operators call kernels through it and do not know
// which of the two it is.
#pragma once

#include <cstddef>

#include "kernels/cpu.h"
#include "kernels/library_kernels.h"

namespace gradloom::kernels {

enum class KernelId : std::uint32_t {
#define GRADLOOM_ID(name, Args) name,
  GRADLOOM_CPU_KERNELS(GRADLOOM_ID) GRADLOOM_GPU_ONLY_KERNELS(GRADLOOM_ID) count
#undef GRADLOOM_ID
};
const char* kernel_name(KernelId id);
constexpr bool is_flash_attention(KernelId id) {
  return id == KernelId::flash_attention || id == KernelId::flash_attention_grad;
}

enum class LibraryKernelId : std::uint32_t {
#define GRADLOOM_ID(name, Args) name,
  GRADLOOM_LIBRARY_KERNELS(GRADLOOM_ID) count
#undef GRADLOOM_ID
};

class Launcher {
 public:
  // `args` is the struct of kernel `id`, `bytes` its size. Errors are kept by the queue.
  using QueueFn = void (*)(void* queue, KernelId id, const void* args, std::size_t bytes);
  // True: a library of the device has queued it.
  using OfferFn = bool (*)(void* queue, LibraryKernelId id, const void* args, std::size_t bytes);

  explicit Launcher(const CpuKernels& cpu) : cpu_(&cpu) {}
  Launcher(QueueFn function, void* queue, OfferFn offer = nullptr)
      : function_(function), offer_(offer), queue_(queue) {}

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
  // False: nothing here takes it, its results must be made otherwise.
#define GRADLOOM_OFFER(name, Args)                                                         \
  [[nodiscard]] bool name(const Args& args) const {                                        \
    return offer_ != nullptr && offer_(queue_, LibraryKernelId::name, &args, sizeof args); \
  }
  GRADLOOM_LIBRARY_KERNELS(GRADLOOM_OFFER)
#undef GRADLOOM_OFFER

 private:
  const CpuKernels* cpu_ = nullptr;
  QueueFn function_ = nullptr;
  OfferFn offer_ = nullptr;
  void* queue_ = nullptr;
};

const Launcher& cpu_launcher();

}  // namespace gradloom::kernels
