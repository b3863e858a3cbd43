// Devices, memory, streams and events.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/engine/device/gpu/driver/driver.h"

namespace gradloom::strict {
namespace {

constexpr unsigned kOnDevice = Call::on_device, kUnsafe = Call::on_device | Call::unsafe,
                   kAllocates = Call::on_device | Call::unsafe | Call::allocates;

// The event is one, and its latest record was no part of a recording.
cudaError_t check_passed(const Call& call, const CUevent_st* event) {
  if (const cudaError_t error = call.check(driver().events, event, "event"); error != cudaSuccess)
    return error;
  if (event->recording == nullptr) return cudaSuccess;
  return call.fail(cudaErrorCapturedEvent, "the event was last recorded while work was recorded");
}

cudaError_t create_event(const char* name, cudaEvent_t* event, unsigned flags) {
  const Call call(name, Call::on_device | Call::allocates);
  if (call.refused()) return call.error();
  *event = driver().events.make();
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

cudaError_t allocate(const char* name, void** memory, std::size_t bytes, bool pinned) {
  const Call call(name, kAllocates);
  if (call.refused()) return call.error();
  *memory = driver().memory.allocate(bytes, pinned);
  return *memory != nullptr ? cudaSuccess : call.fail(cudaErrorMemoryAllocation);
}

// Waits for everything first, as the real ones do.
cudaError_t release(const char* name, void* memory, bool pinned) {
  const Call call(name, kUnsafe);
  if (call.refused() || memory == nullptr) return call.error();
  if (const cudaError_t lost = run_all(); lost != cudaSuccess) return call.fail(lost);
  const auto wrong = driver().memory.release(memory, pinned);
  return wrong ? call.fail(cudaErrorInvalidValue, *wrong) : cudaSuccess;
}

}  // namespace

std::size_t device_bytes() { return driver().memory.limit_bytes(); }

}  // namespace gradloom::strict

using namespace gradloom::strict;

// ---- devices --------------------------------------------------------------------------------------------------------------------

extern "C" cudaError_t cudaGetDeviceCount(int* count) {
  const Call call("cudaGetDeviceCount", Call::anywhere);
  if (!call.refused()) *count = 1;
  return call.error();
}

extern "C" cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Call call("cudaGetDeviceProperties", Call::anywhere);
  if (call.refused()) return call.error();
  if (device != 0) return call.fail(cudaErrorInvalidDevice, "there is one device");
  *properties = {};
  std::strcpy(properties->name, "strict driver");
  properties->major = 9;
  properties->warpSize = 32;
  properties->multiProcessorCount = 4;
  properties->sharedMemPerBlock = 49152;
  properties->totalGlobalMem = driver().memory.limit_bytes();
  const int number = getenv("GRADLOOM_STRICT_SAME_DEVICE") != nullptr
                         ? 1
                         : getpid();  // each process has a device of its own
  std::memcpy(properties->uuid.bytes, &number, sizeof number);
  return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device) {
  const Call call("cudaDeviceGetAttribute", Call::anywhere);
  if (call.refused()) return call.error();
  if (device != 0) return call.fail(cudaErrorInvalidDevice, "there is one device");
  *value = 1000;
  return cudaSuccess;
}

extern "C" cudaError_t cudaSetDevice(int device) {
  const Call call("cudaSetDevice", Call::anywhere);
  if (call.refused()) return call.error();
  if (device != 0) return call.fail(cudaErrorInvalidDevice, "there is one device");
  choose_device();
  return cudaSuccess;
}

extern "C" cudaError_t cudaGetDevice(int* device) {
  const Call call("cudaGetDevice", kOnDevice);
  if (!call.refused()) *device = 0;
  return call.error();
}

extern "C" cudaError_t cudaDeviceSynchronize() {
  const Call call("cudaDeviceSynchronize", kUnsafe);
  if (call.refused()) return call.error();
  const cudaError_t lost = run_all();
  return lost == cudaSuccess ? cudaSuccess : call.fail(lost);
}

extern "C" cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
extern "C" cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
extern "C" cudaError_t cudaGetLastError() { return take_last_error(); }

// ---- memory ---------------------------------------------------------------------------------------------------------------------

extern "C" cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return allocate("cudaMalloc", memory, bytes, false);
}
extern "C" cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return allocate("cudaHostAlloc", memory, bytes, true);
}
extern "C" cudaError_t cudaFree(void* memory) { return release("cudaFree", memory, false); }
extern "C" cudaError_t cudaFreeHost(void* memory) { return release("cudaFreeHost", memory, true); }

extern "C" cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Call call("cudaMemGetInfo", kOnDevice);
  if (call.refused()) return call.error();
  *total = driver().memory.limit_bytes();
  *free = *total - driver().memory.used_bytes();
  return cudaSuccess;
}

extern "C" cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes,
                                       cudaMemcpyKind kind, cudaStream_t stream) {
  const Call call("cudaMemcpyAsync", kOnDevice | Call::launches);
  if (call.refused() || bytes == 0) return call.error();
  const GuardedMemory& memory = driver().memory;
  Work work{Work::copy};
  work.target = target;
  work.source = source;
  work.bytes = bytes;
  for (const void* at : {static_cast<const void*>(target), source})
    if (const auto wrong = memory.wrong(at, bytes)) return call.fail(cudaErrorInvalidValue, *wrong);
  const Allocation *const to = memory.find(target), *const from = memory.find(source);
  const bool to_device = to != nullptr && !to->pinned, from_device = from != nullptr && !from->pinned;
  const cudaMemcpyKind real = from_device ? (to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                                          : (to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost);
  if (kind != cudaMemcpyDefault && kind != real)
    return call.fail(cudaErrorInvalidValue, "the direction is another than that of the addresses");
  if ((to == nullptr || from == nullptr) && call.check_stream(stream) == cudaSuccess &&
      stream->recording != nullptr)
    return call.break_recording(*stream->recording, cudaErrorStreamCaptureUnsupported,
                                "memory that is not pinned, while work is recorded");
  if (from == nullptr) {
    const auto* const first = static_cast<const unsigned char*>(source);
    work.before.assign(first, first + bytes);
  }
  return call.submit(stream, std::move(work));
}

extern "C" cudaError_t cudaMemsetAsync(void* target, int byte, std::size_t bytes, cudaStream_t stream) {
  const Call call("cudaMemsetAsync", kOnDevice | Call::launches);
  if (call.refused() || bytes == 0) return call.error();
  const Allocation* const memory = driver().memory.find(target);
  if (memory == nullptr) return call.fail(cudaErrorInvalidValue, "memory that is not the device's");
  if (const auto wrong = driver().memory.wrong(target, bytes))
    return call.fail(cudaErrorInvalidValue, *wrong);
  Work work{Work::fill};
  work.target = target;
  work.bytes = bytes;
  work.byte = byte;
  return call.submit(stream, std::move(work));
}

// ---- functions of the host -----------------------------------------------------------------------------------------------------

extern "C" cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user) {
  const Call call("cudaLaunchHostFunc", kOnDevice | Call::launches);
  if (call.refused()) return call.error();
  if (function == nullptr) return call.fail(cudaErrorInvalidValue, "no function");
  Work work{Work::host};
  work.function = function;
  work.user = user;
  return call.submit(stream, std::move(work));
}

// ---- streams and events ---------------------------------------------------------------------------------------------------------

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const Call call("cudaStreamCreateWithFlags", kAllocates);
  if (call.refused()) return call.error();
  if (flags != cudaStreamNonBlocking)
    complain("cudaStreamCreateWithFlags: a stream that waits for the default stream");
  *stream = driver().streams.make();
  static std::uint32_t made = 0;
  (*stream)->number = ++made;
  return cudaSuccess;
}

// The real one lets what is queued there run on; here it runs at once.
extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Call call("cudaStreamDestroy", kOnDevice);
  cudaError_t error = call.refused() ? call.error() : call.check_stream(stream);
  if (error != cudaSuccess) return error;
  if (stream->recording != nullptr)
    return call.break_recording(*stream->recording, cudaErrorStreamCaptureUnsupported,
                                "the stream is recorded");
  error = stream->queue.empty() ? cudaSuccess : run_all();
  if (error != cudaSuccess) return call.fail(error);
  driver().streams.destroy(stream);
  return cudaSuccess;
}

extern "C" cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return create_event("cudaEventCreate", event, 0);
}
extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return create_event("cudaEventCreateWithFlags", event, flags);
}

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Call call("cudaEventDestroy", kOnDevice);
  const cudaError_t error = call.refused() ? call.error() : call.check(driver().events, event, "event");
  if (error == cudaSuccess) driver().events.destroy(event);
  return error;
}

// Whoever has work in the default stream orders it with others by events, outside of recordings.
static cudaStream_t of_event(cudaStream_t stream) {
  Driver& d = driver();
  if (stream != nullptr || !d.recordings.empty()) return stream;
  if (d.default_stream == nullptr) d.default_stream = d.streams.make();
  return d.default_stream;
}

extern "C" cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Call call("cudaEventRecord", kOnDevice);
  stream = of_event(stream);
  cudaError_t error = call.refused() ? call.error() : call.check(driver().events, event, "event");
  if (error == cudaSuccess) error = call.check_stream(stream);
  if (error != cudaSuccess) return error;
  event->recording = stream->recording;
  event->last = stream->last;
  if (stream->recording != nullptr)
    return stream->recording->broken.empty()
               ? cudaSuccess
               : call.fail(cudaErrorStreamCaptureInvalidated, "the recording is broken");
  Work work{Work::record};
  work.event = event;
  work.serial = ++event->recorded;
  return call.submit(stream, std::move(work));
}

extern "C" cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Call call("cudaStreamWaitEvent", kOnDevice);
  stream = of_event(stream);
  cudaError_t error = call.refused() ? call.error() : call.check(driver().events, event, "event");
  if (error == cudaSuccess) error = call.check_stream(stream);
  if (error != cudaSuccess) return error;
  const auto& recording = event->recording;
  if (stream->recording != nullptr && stream->recording != recording)
    return call.break_recording(*stream->recording, cudaErrorStreamCaptureIsolation,
                                "a stream that is recorded cannot wait for an event from outside");
  if (recording != nullptr) {
    if (recording->ended) return check_passed(call, event);
    if (stream->recording == nullptr && !stream->queue.empty() && stream->queue.back().kind == Work::wait)
      complain("cudaStreamWaitEvent: a stream joins a recording that waits outside of it");
    if (stream->recording == nullptr) stream->last.clear();
    stream->recording = recording;
    stream->last.insert(stream->last.end(), event->last.begin(), event->last.end());
    return cudaSuccess;
  }
  Work work{Work::wait};
  work.event = event;
  work.serial = event->recorded;  // its latest record now; none: nothing to wait for
  return call.submit(stream, std::move(work));
}

extern "C" cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Call call("cudaEventQuery", kUnsafe);
  const cudaError_t error = call.refused() ? call.error() : check_passed(call, event);
  if (error != cudaSuccess) return error;
  if (event->done == event->recorded) return cudaSuccess;
  const cudaError_t lost = run_until(event, event->recorded);  // next time it has happened
  return call.fail(lost == cudaSuccess ? cudaErrorNotReady : lost);
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Call call("cudaEventSynchronize", kUnsafe);
  const cudaError_t error = call.refused() ? call.error() : check_passed(call, event);
  if (error != cudaSuccess) return error;
  if (event->recorded == 0) complain("cudaEventSynchronize: the event was never recorded");
  const cudaError_t lost = run_until(event, event->recorded);
  return lost == cudaSuccess ? cudaSuccess : call.fail(lost);
}

extern "C" cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const Call call("cudaEventElapsedTime", kOnDevice);
  cudaError_t error = call.refused() ? call.error() : check_passed(call, from);
  if (error == cudaSuccess) error = check_passed(call, to);
  if (error != cudaSuccess) return error;
  for (const cudaEvent_t event : {from, to}) {
    if (event->recorded == 0 || !event->timed)
      return call.fail(cudaErrorInvalidResourceHandle, "an event was never recorded, or is not timed");
    if (event->done != event->recorded)
      return call.fail(cudaErrorNotReady, "work before an event still runs");
  }
  *milliseconds = float(double(to->time_ns - from->time_ns) / 1e6);
  return cudaSuccess;
}
