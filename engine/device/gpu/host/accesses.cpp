// What the compiler has kernels call at each access to memory when they are compiled for the thread sanitizer
// (-fsanitize=thread): here it is ours, and no runtime of the sanitizer is linked.
#include "engine/device/gpu/host/accesses.h"

#include <dlfcn.h>

namespace gradloom::kernels::gpu::host {
namespace {

thread_local Races* seen_by = nullptr;

}  // namespace

void see_accesses(Races* races) { seen_by = races; }

void show_hooks() {
  Dl_info info = {};
  if (kSeesAccesses && dladdr(reinterpret_cast<const void*>(&show_hooks), &info) != 0)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

#if defined(GRADLOOM_GPU_RACES)
namespace {

void see(const void* at, std::size_t bytes, unsigned kind, const void* code) {
  Races* const races = seen_by;
  if (races == nullptr) return;
  seen_by = nullptr;  // templates that the checker shares with kernels may report too
  races->access(reinterpret_cast<std::uintptr_t>(at), bytes, kind, reinterpret_cast<std::uintptr_t>(code));
  seen_by = races;
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the sanitizer's names
#define GRADLOOM_HOOK extern "C" __attribute__((visibility("default")))
#define GRADLOOM_CODE __builtin_return_address(0)

GRADLOOM_HOOK void __tsan_init() {}
GRADLOOM_HOOK void __tsan_func_entry(void*) {}
GRADLOOM_HOOK void __tsan_func_exit() {}
GRADLOOM_HOOK void __tsan_vptr_update(void**, void*) {}
GRADLOOM_HOOK void __tsan_vptr_read(void**) {}
GRADLOOM_HOOK void __tsan_read_range(void* at, unsigned long bytes) { see(at, bytes, kReads, GRADLOOM_CODE); }
GRADLOOM_HOOK void __tsan_write_range(void* at, unsigned long bytes) {
  see(at, bytes, kWrites, GRADLOOM_CODE);
}

#define GRADLOOM_ACCESS(name, bytes, strong)                 \
  GRADLOOM_HOOK void __tsan_##name##read##bytes(void* at) {  \
    see(at, bytes, kReads | strong, GRADLOOM_CODE);          \
  }                                                          \
  GRADLOOM_HOOK void __tsan_##name##write##bytes(void* at) { \
    see(at, bytes, kWrites | strong, GRADLOOM_CODE);         \
  }
#define GRADLOOM_ACCESSES(bytes)             \
  GRADLOOM_ACCESS(, bytes, kPlain)           \
  GRADLOOM_ACCESS(volatile_, bytes, kStrong) \
  GRADLOOM_ACCESS(unaligned_, bytes, kPlain) \
  GRADLOOM_ACCESS(unaligned_volatile_, bytes, kPlain)
GRADLOOM_ACCESSES(1)
GRADLOOM_ACCESSES(2)
GRADLOOM_ACCESSES(4)
GRADLOOM_ACCESSES(8)
GRADLOOM_ACCESSES(16)

// The operations that atomics of kernels/gpu/host.h consist of; 8: of static variables that are initialized once.
#define GRADLOOM_ATOMICS(bits, T)                                                                        \
  GRADLOOM_HOOK T __tsan_atomic##bits##_load(const volatile T* at, int) {                                \
    see(const_cast<const T*>(at), bits / 8, kReads | kStrong, GRADLOOM_CODE);                            \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                        \
  }                                                                                                      \
  GRADLOOM_HOOK T __tsan_atomic##bits##_fetch_add(volatile T* at, T v, int) {                            \
    see(const_cast<const T*>(at), bits / 8, kReads | kWrites | kStrong, GRADLOOM_CODE);                  \
    return __atomic_fetch_add(at, v, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                      \
  GRADLOOM_HOOK int __tsan_atomic##bits##_compare_exchange_strong(volatile T* at, T* expected, T v, int, \
                                                                  int) {                                 \
    see(const_cast<const T*>(at), bits / 8, kReads | kWrites | kStrong, GRADLOOM_CODE);                  \
    return __atomic_compare_exchange_n(at, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
  }
GRADLOOM_ATOMICS(8, unsigned char)
GRADLOOM_ATOMICS(32, unsigned)
GRADLOOM_ATOMICS(64, unsigned long long)

GRADLOOM_HOOK void __tsan_atomic_thread_fence(int) {
  Races* const races = seen_by;
  if (races == nullptr) return;
  seen_by = nullptr;
  races->fence();
  seen_by = races;
}
// NOLINTEND(bugprone-reserved-identifier)
#endif

}  // namespace gradloom::kernels::gpu::host
