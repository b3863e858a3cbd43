// What the sanitizers must be told about libraries that are not built with them. In every test binary and in
// the command of the presets dev and tsan (tests/CMakeLists.txt); nowhere else.
#include <dlfcn.h>

// The graphics drivers stay loaded. Unloaded at the end of a window, the few blocks that they keep for the
// life of the process would be reported as leaks, with frames that no longer have a name.
extern "C" int dlclose(void*) { return 0; }

// A request that the machine cannot meet is an error that we report (null here), not a bug.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
// Open MPI keeps what it took until the process ends; so does the library of events in it.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libmpi\nleak:libopen-pal\nleak:libopen-rte\nleak:libpmix\nleak:libevent\nleak:mca_\n";
}
// While it starts, one thread of Open MPI takes two locks of its transport over TCP in both orders.
extern "C" const char* __tsan_default_suppressions() { return "deadlock:mca_btl_tcp\n"; }
