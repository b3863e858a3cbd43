// Device: memory, kernels and order of one processor. With FieldVisitor the only virtual interface of the engine.
// The CPU is built in; CUDA, HIP and the host executor come as plugins behind the C interface of
// engine/device/gpu/plugin.h, loaded at run time.
//
// Work is queued and runs in the order of its queue; on the CPU it has run when the call returns. Memory of a
// GPU is not readable by the host: copy() moves bytes in any direction, at full speed and without stopping
// the host when its side is pinned memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/ir/op.h"

namespace gradloom {

struct DeviceInfo {
  std::string id;    // "cpu", "cuda:0"
  std::string name;  // "AMD EPYC ..., avx512"
  bool available = false;
  std::string why_not;  // one line when not available
  std::int64_t memory_bytes = 0, free_bytes = 0;
  int threads = 0;                // CPU
  bool queued = false;            // launches return before they have run (GPUs)
  std::string detail;             // driver, libraries; may be empty
  std::string driver, libraries;  // GPUs: versions; libraries begins with the runtime
};

// A GPU at one moment, as its driver tells (NVML); -1 and "" where nothing measures it.
struct DeviceState {
  std::int32_t sm_clock_mhz = -1, memory_clock_mhz = -1, temperature_c = -1, power_mw = -1,
               power_limit_mw = -1, utilization_percent = -1;
  std::int32_t other_processes = -1;  // that have work on it
  std::string throttle;               // why the clocks are held down: "power cap, thermal"; "none"
};

enum class Memory : std::uint8_t { device, pinned };
// By the numbers of engine/plan/streams.h.
enum class Queue : std::uint8_t { compute, upload, download, exchange };

// What computed a kernel when it was launched last, of those that a library of the device has.
struct Implementation {
  std::string kernel;   // "gemm"
  std::string library;  // "cublasLt 13.1.0"; empty: a kernel of ours
  std::string detail;   // the library's algorithm; of a kernel of ours why no library computed it
  bool failed = false;  // it was work for a library that is missing or that failed at it
};
using Implementations = std::vector<Implementation>;  // in the order of launching

// A kernel of one plan step, prepared on the device.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  virtual const std::string& name() const = 0;
  virtual std::size_t workspace_bytes() const = 0;
  virtual Implementations implementations() const { return {}; }  // the CPU's names say it
  // The host exchanges with other ranks (World) while the device runs it: until the work is done nobody else may.
  virtual bool host_meets_ranks() const { return false; }
};

struct KernelRequest {
  const OpDef* op;
  NodeTypes types;
  std::string node;  // for errors
};

// Addresses in device memory that a launch works on; they must stay until the work is done.
struct Operands {
  const void* const* inputs;  // null for omitted
  void* const* outputs;
  void* workspace;
  const kernels::RandomState* random;
};

// Work recorded once and run again as a whole (CUDA graph, HIP graph).
class Recording {
 public:
  virtual ~Recording() = default;
  virtual Status run() = 0;  // on the compute queue
};

// A finished kernel or copy as the device itself timed it.
struct Activity {
  enum class Kind : std::uint8_t { kernel, copy, fill, api, lost };  // lost: `bytes` records were dropped
  Kind kind = Kind::kernel;
  std::int32_t plan_step = -1;  // as given to launch(); -1: none
  std::int32_t stream = 0;
  std::int64_t start_ns = 0, end_ns = 0, bytes = 0;  // monotonic clock of the host
  std::string name;                                  // symbol
  std::int32_t micro = 0;                            // kind api: micro-batch of the launch
};

// Algorithms of a device's libraries by problem (library, version, device, shape): the library's own
// description, in hexadecimal, and the time of one run when it was found (0: not known).
struct Algorithm {
  std::string bytes;
  std::int64_t time_ns = 0;
};
using Algorithms = std::map<std::string, Algorithm>;

using Fence = std::int64_t;  // a point of the compute queue
using Event = std::int32_t;  // a point of any queue, which others wait for

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() const = 0;
  // 64-byte aligned, contents undefined.
  virtual Result<void*> allocate(std::size_t bytes, Memory memory = Memory::device) = 0;
  virtual void release(void* memory) = 0;
  virtual Status copy(Queue queue, void* target, const void* source, std::size_t bytes) = 0;
  // A copy that is a step of the plan, between the device's memory and pinned memory.
  virtual Status transfer(Queue queue, void* target, const void* source, std::size_t bytes,
                          std::int32_t /*plan_step*/) {
    return copy(queue, target, source, bytes);
  }
  // All kernels of a plan at once: what must be compiled is compiled together. Errors name the node.
  virtual Result<std::vector<std::unique_ptr<PreparedKernel>>> prepare(
      const std::vector<KernelRequest>& requests) = 0;
  virtual Status launch(const PreparedKernel& kernel, const Operands& operands, std::int32_t plan_step) = 0;
  // Later work of `after` waits for what `before` has now.
  virtual Status order(Queue before, Queue after) = 0;
  // The same at a point that was noted before. Events serve again and again: a wait is for the latest note before it. Where
  // they stand for more than one queue while a device records, the recording has those queues too; all of them must
  // have been waited for at its end.
  virtual Result<Event> make_event() { return Event{0}; }
  virtual void release_event(Event) {}
  virtual Status note(Event, Queue) { return {}; }
  virtual Status wait_for(Event, Queue) { return {}; }
  // A stream that the program has from elsewhere (cudaStream_t, hipStream_t; null: the default one), on the device: the compute queue
  // waits for what it has now; it waits for what the compute queue has. Between the two the thread's device is this one. True: the
  // caller records the stream, and until lead_stream what is queued becomes a part of that recording: nothing of it runs, nobody may
  // wait for it, and what it reads of the host must stay as long as the recording.
  virtual Result<bool> follow_stream(void* /*stream*/) { return false; }
  virtual Status lead_stream(void* /*stream*/) { return {}; }
  virtual Result<Fence> fence() = 0;  // after all work queued so far on the compute queue
  // The host waits; when it was reached, monotonic ns. Errors of earlier work, and of exchanges with other ranks in it.
  virtual Result<std::int64_t> wait(Fence fence) = 0;
  // The launches that `work` makes on the compute queue, not run; null when the device records nothing (CPU).
  virtual Result<std::unique_ptr<Recording>> record(const std::function<Status()>& work) = 0;
  // Own timing by the device: on, then work, wait, and collect what finished. False: it has none, why_no_trace().
  // Recordings made before it was first on have no plan steps in it.
  virtual Result<bool> trace(bool on) = 0;
  virtual std::string why_no_trace() const { return ""; }
  // Between two events, which have passed.
  virtual Result<std::int64_t> elapsed_ns(Event, Event) { return std::int64_t{0}; }
  virtual Result<std::vector<Activity>> collect_trace() = 0;
  virtual std::int64_t peak_bytes() const = 0;             // largest sum of live device allocations so far
  virtual std::int64_t pinned_bytes() const { return 0; }  // live allocations of pinned memory

  // Launches where a library is missing or fails are errors, which our own kernels would have made good.
  virtual void set_strict_libraries(bool) {}
  // Libraries: finds the fastest of `candidates` algorithms for what the kernel launches, unless one is
  // known. Overwrites its results.
  virtual Status tune(const PreparedKernel&, const Operands&, std::int32_t /*candidates*/) { return {}; }
  // Known from other runs; those of other problems do no harm.
  virtual Status set_algorithms(const Algorithms&) { return {}; }
  virtual Result<Algorithms> algorithms() { return Algorithms{}; }  // that tune found or confirmed

  // launch() of a kernel that exchanges with other ranks, on a queue of its own.
  virtual Status launch_exchange(const PreparedKernel& kernel, const Operands& operands,
                                 std::int32_t plan_step) {
    return launch(kernel, operands, plan_step);
  }

  // All ranks call it at the same time, once, before they launch what they exchange: devices that a library joins exchange by it, others
  // through the host.
  virtual Status meet_ranks() { return {}; }

  // Copies that have happened when they return.
  Status upload(void* target, const void* source, std::size_t bytes);
  Status download(void* target, const void* source, std::size_t bytes);
  Status synchronize();
};

std::unique_ptr<Device> make_cpu_device();
// "cpu", "cuda:0", "hip:1", "host-gpu": error (exit 6) says why a device cannot be used here.
Result<std::unique_ptr<Device>> open_device(const std::string& id);
std::vector<DeviceInfo> list_devices();  // every kind, with why_not where unavailable
// What is known of the device now; it need not be open. All of it unknown for the CPU and
// where its plugin cannot tell.
DeviceState device_state(const std::string& id);
// What a plan for this device chooses its kernels for. The device need not be there. Error (exit 2): unknown id.
Result<kernels::Target> device_target(const std::string& id);
// Whether a plan for it leaves workspace to a library (PlanOptions::dnn_library): "cuda" and cuDNN is wanted
// (GRADLOOM_CUDNN), and found by the plugin where that is; without a plugin the plan is for another machine,
// which has one. Touches no device.
bool device_has_dnn_library(const std::string& id);

}  // namespace gradloom
