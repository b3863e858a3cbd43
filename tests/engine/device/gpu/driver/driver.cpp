#include "tests/engine/device/gpu/driver/driver.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace gradloom::strict {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local bool device_chosen = false;

std::string setting_of(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// "memory:3", "cublasLtMatmul:2:13".
void read_failure(Driver& driver, const std::string& text) {
  const std::size_t colon = text.find(':'),
                    second = colon != std::string::npos ? text.find(':', colon + 1) : colon;
  driver.fail_kind = text.substr(0, colon);
  driver.fail_at = colon != std::string::npos ? std::atoll(text.c_str() + colon + 1) : 0;
  driver.fail_status = second != std::string::npos ? std::atoll(text.c_str() + second + 1) : 0;
}

void report_at_exit() {
  const std::string rest = left();
  if (driver().lost == cudaSuccess && !rest.empty())
    complain("not given back at the end of the process: " + rest);
  const std::string path = setting_of("GRADLOOM_STRICT_COUNTS");
  std::FILE* const file = path.empty() ? nullptr : std::fopen(path.c_str(), "w");
  if (file == nullptr) return;
  const StrictCounts& counts = driver().counts;
  std::fprintf(file, "calls %lld\nallocations %lld\nlaunches %lld\nwork %lld\n",
               static_cast<long long>(counts.calls), static_cast<long long>(counts.allocations),
               static_cast<long long>(counts.launches), static_cast<long long>(counts.work));
  for (const auto& [name, count] : driver().calls_by_name)
    std::fprintf(file, "%s %lld\n", name.c_str(), static_cast<long long>(count));
  std::fclose(file);
}

}  // namespace

Driver::Driver() {
  read_failure(*this, setting_of("GRADLOOM_STRICT_FAIL"));
  std::atexit(report_at_exit);
}

Driver& driver() {
  static Driver& one = *new Driver;
  return one;
}

void complain(const std::string& what) {
  const std::string line = "strict driver: " + what + "\n";
  driver().complaints += line;
  if (write(2, line.data(), line.size()) < 0) std::abort();
}

std::string left() {
  Driver& d = driver();
  std::string text = d.memory.left();
  const auto add = [&](std::size_t count, const char* what) {
    if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  };
  add(d.streams.live().size() - (d.default_stream != nullptr ? 1 : 0), "streams");
  add(d.events.live().size(), "events");
  add(d.graphs.live().size(), "graphs");
  add(d.programs.live().size(), "executable graphs");
  add(d.modules.live().size(), "modules");
  for (const auto& [what, count] : d.holds_by_name) add(std::size_t(count), what.c_str());
  return text;
}

cudaError_t take_last_error() { return std::exchange(last_error, cudaSuccess); }
void set_last_error(cudaError_t error) { last_error = error; }
void choose_device() { device_chosen = true; }

Call::Call(const char* name, unsigned rules) : lock_(driver().mutex), name_(name) {
  Driver& d = driver();
  const auto due = [&](std::int64_t& count, bool counts, const char* kind) {
    return counts && ++count == d.fail_at && d.fail_kind == kind;
  };
  const bool lost = due(d.counts.calls, true, "lost"),
             full = due(d.counts.allocations, (rules & allocates) != 0, "memory"),
             refuses = due(d.counts.launches, (rules & launches) != 0, "launch");
  if (lost) d.lost = cudaErrorLaunchFailure;
  if (d.in_host_function) {
    error_ = fail(cudaErrorNotPermitted, "called by a function of the host that a stream runs");
  } else if (d.lost != cudaSuccess) {
    error_ = fail(d.lost);
  } else if (full || refuses) {
    error_ = fail(full ? cudaErrorMemoryAllocation : cudaErrorLaunchOutOfResources);
  } else if ((rules & on_device) != 0 && !device_chosen) {
    error_ = fail(cudaErrorInvalidDevice, "this thread has chosen no device");
  } else if ((rules & unsafe) != 0) {
    for (const auto& recording : d.recordings) {
      const bool forbids = recording->mode == cudaStreamCaptureModeGlobal ||
                           (recording->mode == cudaStreamCaptureModeThreadLocal &&
                            recording->thread == std::this_thread::get_id());
      if (forbids)
        error_ = break_recording(*recording, cudaErrorStreamCaptureUnsupported,
                                 "not possible while work is recorded");
    }
  }
}

cudaError_t Call::fail(cudaError_t error, const std::string& why) const {
  if (!why.empty()) complain(std::string(name_) + ": " + why);
  last_error = error;
  return error;
}

cudaError_t Call::break_recording(RecordingState& recording, cudaError_t error,
                                  const std::string& why) const {
  if (recording.broken.empty()) recording.broken = std::string(name_) + ": " + why;
  return fail(error, why);
}

cudaError_t Call::check_stream(const CUstream_st* stream) const {
  if (stream != nullptr && stream != cudaStreamLegacy && stream != cudaStreamPerThread)
    return check(driver().streams, stream, "stream");
  const std::string why = "the default stream, which waits for all others";
  for (const auto& recording : driver().recordings)
    if (recording->broken.empty()) return break_recording(*recording, cudaErrorStreamCaptureImplicit, why);
  return fail(cudaErrorInvalidResourceHandle, why);
}

namespace {

// A call that queues work, for who watches: from here to the end of the scope.
class Watched {
 public:
  explicit Watched(Work& work) : kind_(watched_kind(work)) {
    Driver& d = driver();
    if (!kind_) return;
    work.correlation = number_ = ++d.correlations;
    if (d.observer != nullptr) work.told = d.observer->called(*kind_, 0, number_);
  }
  ~Watched() {
    const StrictObserver* const observer = driver().observer;
    if (kind_ && observer != nullptr) (void)observer->called(*kind_, 1, number_);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  std::optional<StrictWorkKind> kind_;
  std::uint32_t number_ = 0;
};

}  // namespace

cudaError_t Call::submit(CUstream_st* stream, Work work) const {
  if (const cudaError_t error = check_stream(stream); error != cudaSuccess) return error;
  const Watched watched(work);
  work.stream = stream->number;
  if (stream->recording == nullptr) {
    stream->queue.push_back(std::move(work));
    run_early();
    return driver().lost != cudaSuccess ? fail(driver().lost) : cudaSuccess;
  }
  RecordingState& recording = *stream->recording;
  if (!recording.broken.empty()) return fail(cudaErrorStreamCaptureInvalidated, "the recording is broken");
  work.node = new_node(0);
  recording.nodes.list.push_back({std::move(work), std::exchange(stream->last, {})});
  stream->last = {recording.nodes.list.size() - 1};
  return cudaSuccess;
}

std::uint64_t new_node(std::uint64_t original) {
  Driver& d = driver();
  const std::uint64_t node = ++d.nodes;
  if (d.observer != nullptr && original != 0) d.observer->node(node, 0);
  if (d.observer != nullptr) d.observer->node(node, original);
  return node;
}

std::uint32_t stream_number(const CUstream_st* stream) {
  return driver().streams.has(stream) && stream->alive ? stream->number : 0;
}

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void* strict_runtime(const char* name) {
  static const std::map<std::string, void*> functions = {
#define STRICT_FUNCTION(name) {#name, reinterpret_cast<void*>(name)}
      STRICT_FUNCTION(cudaSetDevice),
      STRICT_FUNCTION(cudaStreamCreateWithFlags),
      STRICT_FUNCTION(cudaStreamDestroy),
      STRICT_FUNCTION(cudaStreamBeginCapture),
      STRICT_FUNCTION(cudaStreamEndCapture),
      STRICT_FUNCTION(cudaGraphLaunch),
      STRICT_FUNCTION(cudaGraphDestroy),
      STRICT_FUNCTION(cudaGraphExecDestroy),
#undef STRICT_FUNCTION
      {"cudaGraphInstantiate",
       reinterpret_cast<void*>(
           static_cast<cudaError_t (*)(cudaGraphExec_t*, cudaGraph_t, unsigned long long)>(
               cudaGraphInstantiate))}};
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

EXPORTED const char* strict_complaints() {
  static std::string text;
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  text = std::exchange(d.complaints, "");
  return text.c_str();
}

EXPORTED const char* strict_left() {
  static std::string text;
  const std::lock_guard lock(driver().mutex);
  text = left();
  return text.c_str();
}

EXPORTED void strict_counts(StrictCounts* counts) { *counts = driver().counts; }

EXPORTED void strict_fail(const char* what) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  d.counts = {};
  d.calls_by_name.clear();
  d.lost = cudaSuccess;
  read_failure(d, what);
}

}  // namespace gradloom::strict
