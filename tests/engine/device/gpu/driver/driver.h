// A CUDA runtime without a GPU, stricter than one: the functions that engine/device/gpu/runtime calls, with which its own sources
// become the plugin libgradloom_cuda.so of tests. Kernels run on the host executor.
//
// Work is kept in its stream until somebody waits for it, so that a missing wait is a wrong number or a trap (memory.h). Every call that
// a real driver refuses is refused with its error, and every call that is undefined there or works by luck is a complaint: a line
// "strict driver: .." on stderr, which tests read. At the end of the process what was not given back is one too. Environment:
//   GRADLOOM_STRICT_COPIES=early     copies run as early as their waits let them, kernels late
//   GRADLOOM_STRICT_MEMORY_MB=N      device memory
//   GRADLOOM_STRICT_SAME_DEVICE=1    all processes have one device, else each its own
//   GRADLOOM_STRICT_FAIL=KIND:N      fails on demand: the N-th call that takes memory (memory), that launches (launch), of all (lost:
//                                    the device is lost in it), or the N-th piece of work, while it runs (fault: likewise), or the N-th
//                                    call of this name of a library (libraries/); NAME:N:STATUS: with this status
//   GRADLOOM_STRICT_COUNTS=FILE      the counts of these are written there at the end
// Sources: CUDA Runtime API and CUDA Driver API references (comments of cuda_runtime_api.h and cuda.h), CUDA C++ Programming Guide,
// "Asynchronous Concurrent Execution" and "CUDA Graphs".
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/device/gpu/host/module.h"
#include "tests/engine/device/gpu/driver/control.h"
#include "tests/engine/device/gpu/driver/kernels.h"
#include "tests/engine/device/gpu/driver/memory.h"

namespace gradloom::strict {

struct GraphNodes;

// A piece of work in a stream or a graph.
struct Work {
  enum Kind { kernel, copy, fill, host, library, trap, record, wait, graph } kind = kernel;
  KernelPtr launch = nullptr;
  CUmodule module = nullptr;  // of a program
  CUevent_st* event = nullptr;
  std::uint64_t serial = 0;  // of the event: which of its records
  void* target = nullptr;
  const void* source = nullptr;
  std::size_t bytes = 0;
  int byte = 0;
  std::vector<unsigned char> before =
      {};  // of a source that is not pinned: what it was when the copy was queued
  std::shared_ptr<const GraphNodes> nodes = nullptr;
  void (*function)(void*) = nullptr;  // of the host or a library, and what it gets
  void* user = nullptr;
  const char* name = "";                  // of a library's
  std::shared_ptr<void> owned = nullptr;  // what a library gave up with it
  // For who watches: in a graph the node, else the call's number and the stream's, and which kinds are told when they have run.
  std::uint64_t node = 0;
  std::uint32_t correlation = 0, stream = 0;
  unsigned told = 0;
};

struct GraphNode {
  Work work;
  std::vector<std::size_t> after;
};
struct GraphNodes {
  std::vector<GraphNode> list;
};

// A recording under way.
struct RecordingState {
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  CUstream_st* origin;
  std::string broken;  // by what; empty: it is whole
  bool ended = false;
  GraphNodes nodes;
};

// Handles are never freed: one that was destroyed is known as such.
struct Handle {
  bool alive = true;
};

}  // namespace gradloom::strict

struct CUstream_st : gradloom::strict::LaunchDoor, gradloom::strict::Handle {
  std::deque<gradloom::strict::Work> queue;
  std::uint32_t number = 0;
  std::shared_ptr<gradloom::strict::RecordingState> recording;  // it takes part in
  std::vector<std::size_t> last;                                // nodes of it that the next one comes after
};
struct CUevent_st : gradloom::strict::Handle {
  bool timed = true;
  std::uint64_t recorded = 0, done = 0;  // serial numbers of its records
  std::int64_t time_ns = 0;
  std::shared_ptr<gradloom::strict::RecordingState> recording;  // the latest record was made in
  std::vector<std::size_t> last;
};
struct CUgraph_st : gradloom::strict::Handle {
  gradloom::strict::GraphNodes nodes;
};
struct CUgraphExec_st : gradloom::strict::Handle {
  std::shared_ptr<const gradloom::strict::GraphNodes> nodes;
};
struct CUfunc_st {
  CUmodule module;
  void (*entry)(const void*);
  std::size_t bytes;  // of its argument
};
struct CUmod_st : gradloom::strict::Handle {
  std::unique_ptr<gradloom::kernels::gpu::host::Module> code;
  std::string sizes;  // "ew_1 24\n": of arguments, in bytes
  std::deque<CUfunc_st> functions;
};

namespace gradloom::strict {

// All handles of a kind that were ever made, and those that are not destroyed.
template <class T>
class Handles {
 public:
  template <class... Args>
  T* make(Args&&... args) {
    T* const made = all_.emplace_back(std::make_unique<T>(std::forward<Args>(args)...)).get();
    known_.insert(made);
    live_.push_back(made);
    return made;
  }
  void destroy(T* handle) {
    handle->alive = false;
    std::erase(live_, handle);
  }
  bool has(const T* handle) const { return known_.count(handle) != 0; }
  const std::vector<T*>& live() const { return live_; }

 private:
  std::vector<std::unique_ptr<T>> all_;
  std::unordered_set<const T*> known_;
  std::vector<T*> live_;
};

struct Driver {
  Driver();
  std::recursive_mutex mutex;
  GuardedMemory memory;
  Handles<CUstream_st> streams;
  CUstream_st* default_stream = nullptr;  // one of `streams`, once an event was of it: nothing else may be
  Handles<CUevent_st> events;
  Handles<CUgraph_st> graphs;
  Handles<CUgraphExec_st> programs;
  Handles<CUmod_st> modules;
  std::vector<std::shared_ptr<RecordingState>> recordings;  // under way
  cudaError_t lost = cudaSuccess;                           // why every call fails from now on
  bool in_host_function = false;
  StrictCounts counts{};
  std::string fail_kind;
  std::int64_t fail_at = 0, fail_status = 0;
  std::map<std::string, std::int64_t> calls_by_name, holds_by_name;  // by name, what of
  const StrictObserver* observer = nullptr;
  std::uint32_t correlations = 0;  // calls that queued work
  std::uint64_t nodes = 0;         // of graphs, that were ever made
  std::string complaints;
};
// One per process, never destroyed.
Driver& driver();

void complain(const std::string& what);
std::string left();

// One call of the driver.
class Call {
 public:
  enum Rule : unsigned {
    anywhere = 0,
    on_device = 1,  // the thread has chosen a device, and it is not lost
    unsafe = 2,     // not while this thread records
    allocates = 4,
    launches = 8,
  };
  Call(const char* name, unsigned rules);
  bool refused() const { return error_ != cudaSuccess; }
  cudaError_t error() const { return error_; }
  // Its error, as the thread's last one. why: nothing that our caller may do; empty: it may happen.
  cudaError_t fail(cudaError_t error, const std::string& why = "") const;
  // A recording is broken by it.
  cudaError_t break_recording(RecordingState& recording, cudaError_t error, const std::string& why) const;
  // The handle is one of these and was not destroyed.
  template <class T>
  cudaError_t check(const Handles<T>& handles, const T* handle, const char* what) const {
    if (handles.has(handle) && handle->alive) return cudaSuccess;
    return fail(cudaErrorInvalidResourceHandle,
                std::string("the ") + what + (handles.has(handle) ? " was destroyed" : " is none"));
  }
  cudaError_t check_stream(const CUstream_st* stream) const;
  // Puts it in the stream, or in the recording that this takes part in.
  cudaError_t submit(CUstream_st* stream, Work work) const;

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  const char* name_;
  cudaError_t error_ = cudaSuccess;
};

cudaError_t take_last_error();
void set_last_error(cudaError_t error);
void choose_device();

// Runs what is queued: all of it, or as far as this record of an event needs. The error of a device that was lost by it.
cudaError_t run_all();
cudaError_t run_until(CUevent_st* event, std::uint64_t serial);
// Copies whose waits are over, where they are to run early.
void run_early();
// How who watches calls it; none: it is not watched.
std::optional<StrictWorkKind> watched_kind(const Work& work);
// The next node of a graph, of which it is a copy; 0: it is recorded.
std::uint64_t new_node(std::uint64_t original);
std::uint32_t stream_number(const CUstream_st* stream);
// Work in a stream, or in a graph that is queued there, that has something to do with this module.
bool is_queued(const CUmod_st* module);

// Why these nodes cannot run any more: memory that was freed, programs that were unloaded.
std::string gone(const GraphNodes& nodes);

}  // namespace gradloom::strict
