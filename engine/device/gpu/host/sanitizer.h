// What the address and the thread sanitizer must be told about memory and stacks that we
// manage; nothing in other builds.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace gradloom::kernels::gpu::host {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // frames are larger
#else
constexpr bool kSanitized = false;
#endif

// Any access to poisoned memory stops the program under ASan.
inline void poison([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(memory, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(memory, bytes);
#endif
}

// Of one stack between which and others we switch: leaving() before, entered() after a switch, both on the
// stack that they are called for.
struct StackNotes {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  void* fake_stack = nullptr;
  void create(const void* stack_bottom, std::size_t stack_bytes) {
    bottom = stack_bottom;
    bytes = stack_bytes;
  }
  void destroy() {}
  void leaving(StackNotes& to) { __sanitizer_start_switch_fiber(&fake_stack, to.bottom, to.bytes); }
  void leaving_for_good(StackNotes& to) { __sanitizer_start_switch_fiber(nullptr, to.bottom, to.bytes); }
  void entered(StackNotes& from) { __sanitizer_finish_switch_fiber(fake_stack, &from.bottom, &from.bytes); }
#elif defined(__SANITIZE_THREAD__)
  void* fiber = nullptr;
  void create(const void*, std::size_t) { fiber = __tsan_create_fiber(0); }
  void destroy() { __tsan_destroy_fiber(fiber); }
  void leaving(StackNotes& to) {
    fiber = __tsan_get_current_fiber();  // of the launching thread: it may be another one than last time
    __tsan_switch_to_fiber(to.fiber, 0);
  }
  void leaving_for_good(StackNotes& to) { leaving(to); }
  void entered(StackNotes&) {}
#else
  void create(const void*, std::size_t) {}
  void destroy() {}
  void leaving(StackNotes&) {}
  void leaving_for_good(StackNotes&) {}
  void entered(StackNotes&) {}
#endif
};

}  // namespace gradloom::kernels::gpu::host
