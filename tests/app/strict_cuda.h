// The plugin over the strict driver in a test: found by the program, and asked what it complained about.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "tests/engine/device/gpu/driver/control.h"

namespace gradloom {

// The device: "cuda:0", or "hip:0" where the tests are built over HIP's spelling of the driver (GRADLOOM_STRICT_KIND).
inline constexpr const char* kStrictDevice = GRADLOOM_STRICT_KIND ":0";

// From now on that kind is that plugin, here and in programs that this one starts.
inline void use_strict_cuda() {
  setenv("GRADLOOM_PLUGINS", GRADLOOM_STRICT_FOLDER, 1);
  for (const char* home : {"CUDA_HOME", "ROCM_PATH"}) setenv(home, GRADLOOM_STRICT_FOLDER, 1);
  setenv("GRADLOOM_CACHE", GRADLOOM_STRICT_FOLDER "/cache", 1);
}

// Without libraries of the device, which are found where a toolkit has none of them first: our own kernels do everything.
inline void use_bare_strict_cuda() {
  use_strict_cuda();
  setenv("CUDA_HOME", GRADLOOM_STRICT_FOLDER "/bare", 1);
}

class StrictCuda {
 public:
  // A function of the runtime, as a program calls it that works with the device itself: CUDA's name for HIP too. Not 0: it was refused.
  template <class... Args>
  int call(const char* name, Args... args) const {
    return reinterpret_cast<int (*)(Args...)>(function<StrictRuntimeFn>(STRICT_RUNTIME)(name))(args...);
  }
  explicit StrictCuda(void (*use)() = use_strict_cuda) {
    use();
    library_ =
        dlopen(GRADLOOM_STRICT_FOLDER "/libgradloom_" GRADLOOM_STRICT_KIND ".so", RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << dlerror();
  }
  std::string complaints() const { return function<StrictComplaintsFn>(STRICT_COMPLAINTS)(); }
  std::string left() const { return function<StrictLeftFn>(STRICT_LEFT)(); }
  StrictCounts counts() const {
    StrictCounts counts;
    function<StrictCountsFn>(STRICT_COUNTS)(&counts);
    return counts;
  }

 private:
  template <class F>
  F function(const char* name) const {
    return reinterpret_cast<F>(dlsym(library_, name));
  }
  void* library_ = nullptr;
};

// A stream of the program, whose work it records.
class CallersStream {
 public:
  explicit CallersStream(const StrictCuda& strict) : strict_(strict) {
    constexpr unsigned kNonBlocking = 1;
    EXPECT_EQ(strict_.call("cudaSetDevice", 0), 0);
    EXPECT_EQ(strict_.call("cudaStreamCreateWithFlags", &stream_, kNonBlocking), 0);
  }
  ~CallersStream() {
    for (void* const program : programs_) EXPECT_EQ(strict_.call("cudaGraphExecDestroy", program), 0);
    EXPECT_EQ(strict_.call("cudaStreamDestroy", stream_), 0);
  }
  CallersStream(const CallersStream&) = delete;
  CallersStream& operator=(const CallersStream&) = delete;

  void* get() const { return stream_; }
  // What `work` queues, to be replayed.
  template <class Work>
  void* record(const Work& work) {
    constexpr int kGlobal = 0;  // what torch.cuda.graph asks for: no thread may do what a recording forbids
    void *graph = nullptr, *program = nullptr;
    EXPECT_EQ(strict_.call("cudaStreamBeginCapture", stream_, kGlobal), 0);
    const Status done = work();
    EXPECT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(strict_.call("cudaStreamEndCapture", stream_, &graph), 0);
    EXPECT_EQ(strict_.call("cudaGraphInstantiate", &program, graph, 0ULL), 0);
    EXPECT_EQ(strict_.call("cudaGraphDestroy", graph), 0);
    programs_.push_back(program);
    return program;
  }
  void replay(void* program) const { EXPECT_EQ(strict_.call("cudaGraphLaunch", program, stream_), 0); }

 private:
  const StrictCuda& strict_;
  void* stream_ = nullptr;
  std::vector<void*> programs_;
};

}  // namespace gradloom
