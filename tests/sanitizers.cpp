// What the sanitizers must be told about libraries that are not built with them. In every test binary and in
// the command of the presets dev and tsan (tests/CMakeLists.txt); nowhere else.
#include <dlfcn.h>

// The graphics drivers stay loaded. Unloaded at the end of a window, the few blocks that they keep for the
// life of the process would be reported as leaks, with frames that no longer have a name.
extern "C" int dlclose(void*) { return 0; }

// A request that the machine cannot meet is an error that we report (null here), not a bug.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>

// libgomp starts and joins its teams by futexes that the thread sanitizer does not see. Every parallel region
// of ours and of oneDNN goes through this function, which says what is true: all before the region happens
// before its body in each thread, and each body before all after the region. Races between the threads of a
// region, and between a region and other threads, are still found.
namespace {

using Body = void (*)(void*);
using Parallel = void (*)(Body, void*, unsigned, unsigned);

struct Region {
  Body body;
  void* data;
};

__attribute__((no_sanitize("thread"))) void run_body(void* argument) {
  auto* region = static_cast<Region*>(argument);
  __tsan_acquire(region);
  region->body(region->data);
  __tsan_release(region);
}

// Looked up when the program starts, so before there are threads.
const auto libgomp_parallel = reinterpret_cast<Parallel>(dlsym(RTLD_NEXT, "GOMP_parallel"));

}  // namespace

extern "C" __attribute__((no_sanitize("thread"))) void GOMP_parallel(Body body, void* data, unsigned threads,
                                                                     unsigned flags) {
  Region region{body, data};
  __tsan_release(&region);
  libgomp_parallel(run_body, &region, threads, flags);
  __tsan_acquire(&region);
}
#endif
