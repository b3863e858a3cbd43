// What the strict driver finds: each rule is broken on purpose, and the driver must say so, in the words that are expected here. Each
// test is a process of its own where the device is lost or the process ends.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/engine/device/gpu/driver/driver.h"

namespace gradloom::strict {
namespace {

struct Add {
  float* to;
  const float* from;
  int count;
};
void add(const void* params) {
  const auto& p = *static_cast<const Add*>(params);
  for (int i = 0; i < p.count; ++i) p.to[i] += p.from[i];
}

class StrictDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&event_), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device_), kBytes), cudaSuccess);
    ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&pinned_), kBytes, cudaHostAllocDefault), cudaSuccess);
    for (int i = 0; i < kCount; ++i) pinned_[i] = float(i);
    said();
  }
  void TearDown() override { strict_fail(""); }
  // What it complained about since it was last asked.
  static std::string said() { return std::exchange(driver().complaints, ""); }
  static void expect_said(const std::string& words) {
    const std::string text = said();
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
  // So many blocks of one thread, which add device memory to itself.
  cudaError_t launch_add(cudaStream_t stream, int count = kCount, ThreeDims grid = {1, 1, 1},
                         ThreeDims block = {1, 1, 1}, std::size_t shared_bytes = 0) const {
    (void)cudaGetLastError();
    const Add params{device_, device_, count};
    launch(stream, keep_program(add, grid, block, shared_bytes, &params, sizeof params));
    return cudaGetLastError();
  }
  cudaError_t copy(void* to, const void* from, cudaStream_t stream, std::size_t bytes = kBytes) const {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
  }
  cudaError_t begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) const {
    return cudaStreamBeginCapture(stream_, mode);
  }
  // The recording ends without a graph, for this reason.
  void expect_broken(cudaError_t error) const {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), error);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(launch_add(stream_), cudaSuccess) << "the stream is not usable after a broken recording";
  }

  static constexpr int kCount = 64;
  static constexpr std::size_t kBytes = kCount * sizeof(float);
  cudaStream_t stream_ = nullptr, other_ = nullptr;
  cudaEvent_t event_ = nullptr;
  float *device_ = nullptr, *pinned_ = nullptr;
};

// ---- order ----------------------------------------------------------------------------------------------------------------------

TEST_F(StrictDriver, WorkRunsWhenItIsWaitedFor) {
  float result[kCount] = {};
  ASSERT_EQ(copy(device_, pinned_, stream_), cudaSuccess);
  ASSERT_EQ(launch_add(stream_), cudaSuccess);
  ASSERT_EQ(copy(pinned_, device_, stream_), cudaSuccess);
  EXPECT_EQ(pinned_[3], 3) << "nobody has waited";
  ASSERT_EQ(copy(result, device_, stream_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(pinned_[3], 6);
  EXPECT_EQ(result[3], 6);
  EXPECT_EQ(said(), "");
}

TEST_F(StrictDriver, AMissingWaitIsAWrongNumber) {
  ASSERT_EQ(cudaMemsetAsync(device_, 0, kBytes, stream_), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(copy(device_, pinned_, stream_), cudaSuccess);
  ASSERT_EQ(copy(pinned_, device_, other_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(pinned_[3], 0) << "the second stream did not wait for the first";
}

TEST_F(StrictDriver, EventsAreRecordedAndLive) {
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, event_, event_), cudaErrorInvalidResourceHandle);
  expect_said("never recorded");
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  expect_said("never recorded");
  ASSERT_EQ(launch_add(stream_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, event_, event_), cudaErrorNotReady);
  expect_said("still runs");
  ASSERT_EQ(cudaEventDestroy(event_), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event_, stream_), cudaErrorInvalidResourceHandle);
  expect_said("the event was destroyed");
  ASSERT_EQ(cudaStreamDestroy(other_), cudaSuccess);
  EXPECT_EQ(launch_add(other_), cudaErrorInvalidResourceHandle);
  expect_said("the stream was destroyed");
}

TEST_F(StrictDriver, TheDefaultStreamIsNotUsed) {
  EXPECT_EQ(cudaMemsetAsync(device_, 0, kBytes, nullptr), cudaErrorInvalidResourceHandle);
  expect_said("the default stream");
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault), cudaSuccess);
  expect_said("waits for the default stream");
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(device_, 0, kBytes, nullptr), cudaErrorStreamCaptureImplicit);
  expect_broken(cudaErrorStreamCaptureInvalidated);
}

TEST_F(StrictDriver, EveryThreadChoosesItsDevice) {
  cudaError_t error = cudaSuccess;
  std::thread([&] { error = launch_add(stream_); }).join();
  EXPECT_EQ(error, cudaErrorInvalidDevice);
  expect_said("this thread has chosen no device");
}

// ---- memory ---------------------------------------------------------------------------------------------------------------------

TEST_F(StrictDriver, DeviceMemoryIsNotTheHosts) {
  volatile float* const memory = device_;
  EXPECT_DEATH((void)(memory[2] == 0),
               "strict driver: the host touches byte 8 of device memory of 256 bytes");
}

TEST_F(StrictDriver, FreedMemoryIsGone) {
  volatile float* const pinned = pinned_;
  ASSERT_EQ(cudaFreeHost(pinned_), cudaSuccess);
  EXPECT_DEATH((void)(pinned[0] == 0), "touches byte 0 of pinned memory of 256 bytes, which was freed");
  ASSERT_EQ(cudaFree(device_), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(device_, 0, kBytes, stream_), cudaErrorInvalidValue);
  expect_said("256 bytes at 0 of device memory of 256 bytes, which was freed");
  EXPECT_EQ(cudaFree(device_), cudaErrorInvalidValue);
  expect_said("was freed before");
  EXPECT_DEATH(
      {
        (void)launch_add(stream_);
        (void)cudaDeviceSynchronize();
      },
      "work of the device touches byte 0 of device memory of 256 bytes, which was freed");
}

TEST_F(StrictDriver, WorkStaysInItsMemory) {
  EXPECT_EQ(copy(device_, pinned_, stream_, kBytes + 4), cudaErrorInvalidValue);
  expect_said("260 bytes at 0 of device memory of 256 bytes");
  EXPECT_EQ(cudaMemsetAsync(device_ + 1, 0, kBytes, stream_), cudaErrorInvalidValue);
  expect_said("256 bytes at 4 of device memory of 256 bytes");
  EXPECT_DEATH(
      {
        (void)launch_add(stream_, kCount + 1);
        (void)cudaDeviceSynchronize();
      },
      "work of the device touches byte 256 of device memory of 256 bytes");
}

// A device of much memory is waited for as fast as one of little: rocBLAS' workspace alone is 32 MiB, and each result of a sample a copy.
TEST_F(StrictDriver, MemoryIsOpenedOnceForKernelsAndNotForCopies) {
  const GuardedMemory& memory = driver().memory;
  const std::int64_t before = memory.openings();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cudaMemsetAsync(device_, 0, kBytes, stream_), cudaSuccess);
    ASSERT_EQ(copy(device_, pinned_, stream_), cudaSuccess);
    ASSERT_EQ(copy(pinned_, device_, stream_), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  EXPECT_EQ(memory.openings(), before);
  ASSERT_EQ(launch_add(stream_), cudaSuccess);
  ASSERT_EQ(launch_add(stream_), cudaSuccess);
  ASSERT_EQ(copy(pinned_, device_, stream_), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(memory.openings(), before + 1);
  EXPECT_EQ(pinned_[3], 12);
  volatile float* const closed = device_;
  EXPECT_DEATH((void)(closed[2] == 0), "the host touches byte 8 of device memory");
}

TEST_F(StrictDriver, WritesAroundAnAllocationAreFound) {
  float* small = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&small), 100), cudaSuccess);
  const Add params{small, small, 26};
  launch(stream_, keep_program(add, {1, 1, 1}, {1, 1, 1}, 0, &params, sizeof params));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  expect_said("device memory of 100 bytes was written around");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress) << "it stays";
  strict_fail("");  // the device is back
  EXPECT_EQ(cudaFree(small), cudaErrorInvalidValue);
  expect_said("was written around");
}

TEST_F(StrictDriver, MemoryIsReleasedAsItWasTaken) {
  EXPECT_EQ(cudaFree(pinned_), cudaErrorInvalidValue);
  expect_said("is of the other kind");
  EXPECT_EQ(cudaFree(device_ + 1), cudaErrorInvalidValue);
  expect_said("no allocation begins there");
  const std::string before = left();
  EXPECT_NE(before.find("allocations of device memory"), std::string::npos) << before;
}

TEST_F(StrictDriver, ASourceThatIsNotPinnedStaysUntilTheCopyRan) {
  std::vector<float> pageable(kCount, 1);
  ASSERT_EQ(copy(device_, pageable.data(), stream_), cudaSuccess);
  pageable[0] = 2;
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  expect_said("which is not pinned, was changed before the copy ran");
  ASSERT_EQ(copy(device_, pageable.data(), stream_), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(said(), "");
  EXPECT_EQ(cudaMemcpyAsync(device_, pinned_, kBytes, cudaMemcpyDeviceToHost, stream_),
            cudaErrorInvalidValue);
  expect_said("direction");
  EXPECT_EQ(cudaMemsetAsync(pageable.data(), 0, kBytes, stream_), cudaErrorInvalidValue);
  expect_said("not the device's");
}

// ---- launches -------------------------------------------------------------------------------------------------------------------

TEST_F(StrictDriver, LaunchesHaveLimits) {
  for (const ThreeDims grid : {ThreeDims{0, 1, 1}, {1, 65536, 1}, {1, 1, 65536}}) {
    EXPECT_EQ(launch_add(stream_, 1, grid), cudaErrorInvalidConfiguration);
    expect_said("bad grid");
  }
  for (const ThreeDims block : {ThreeDims{1025, 1, 1}, {1, 1, 65}, {32, 64, 1}}) {
    EXPECT_EQ(launch_add(stream_, 1, {1, 1, 1}, block), cudaErrorInvalidConfiguration);
    expect_said("bad block");
  }
  EXPECT_EQ(launch_add(stream_, 1, {1, 1, 1}, {1, 1, 1}, 49153), cudaErrorInvalidConfiguration);
  expect_said("49153 bytes of dynamic");
}

TEST_F(StrictDriver, ALostDeviceStaysLost) {
  strict_fail("fault:1");
  ASSERT_EQ(launch_add(stream_), cudaSuccess) << "errors of work come later";
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 64), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaEventDestroy(event_), cudaErrorLaunchFailure);
  EXPECT_EQ(said(), "") << "nobody is to blame";
}

TEST_F(StrictDriver, CallsFailOnDemand) {
  void* memory = nullptr;
  strict_fail("memory:2");
  ASSERT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 64), cudaErrorMemoryAllocation);
  strict_fail("launch:1");
  EXPECT_EQ(launch_add(stream_), cudaErrorLaunchOutOfResources);
  EXPECT_EQ(launch_add(stream_), cudaSuccess);
  strict_fail("lost:1");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  strict_fail("");
  setenv("GRADLOOM_STRICT_MEMORY_MB", "1", 1);
  EXPECT_EQ(cudaMalloc(&memory, 1 << 20), cudaErrorMemoryAllocation);
  unsetenv("GRADLOOM_STRICT_MEMORY_MB");
  EXPECT_EQ(said(), "");
}

// ---- recordings -----------------------------------------------------------------------------------------------------------------

TEST_F(StrictDriver, WhatIsNotQueuedBreaksARecording) {
  void* memory = nullptr;
  ASSERT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
  const std::vector<std::pair<const char*, std::function<cudaError_t()>>> calls = {
      {"cudaMalloc", [&] { return cudaMalloc(&memory, 64); }},
      {"cudaHostAlloc", [&] { return cudaHostAlloc(&memory, 64, 0); }},
      {"cudaFree", [&] { return cudaFree(device_); }},
      {"cudaDeviceSynchronize", [&] { return cudaDeviceSynchronize(); }},
      {"cudaEventQuery", [&] { return cudaEventQuery(event_); }},
      {"cudaEventSynchronize", [&] { return cudaEventSynchronize(event_); }},
      {"cudaMemcpyAsync", [&] { return copy(device_, &memory, stream_, sizeof memory); }},
      {"cudaStreamDestroy", [&] { return cudaStreamDestroy(stream_); }}};
  for (const auto& [name, call] : calls) {
    ASSERT_EQ(begin(), cudaSuccess);
    ASSERT_EQ(launch_add(stream_), cudaSuccess);
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported) << name;
    expect_said(name);
    EXPECT_EQ(launch_add(stream_), cudaErrorStreamCaptureInvalidated) << name;
    expect_broken(cudaErrorStreamCaptureInvalidated);
    expect_said(std::string("the recording is broken by ") + name);
  }
}

TEST_F(StrictDriver, OtherThreadsBreakGlobalRecordingsAlone) {
  for (const auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
    cudaError_t error = cudaSuccess;
    ASSERT_EQ(begin(mode), cudaSuccess);
    std::thread([&] {
      (void)cudaSetDevice(0);
      void* memory = nullptr;
      error = cudaMalloc(&memory, 64);
    }).join();
    const bool global = mode == cudaStreamCaptureModeGlobal;
    EXPECT_EQ(error, global ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph),
              global ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
  }
}

TEST_F(StrictDriver, ForksAreJoined) {
  ASSERT_EQ(begin(), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  ASSERT_EQ(launch_add(other_), cudaSuccess);
  expect_broken(cudaErrorStreamCaptureUnjoined);
  expect_said("was not joined");
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  expect_said("last recorded while work was recorded");
  ASSERT_EQ(begin(), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureUnmatched);
  expect_said("began in another stream");
  expect_broken(cudaErrorStreamCaptureInvalidated);
}

TEST_F(StrictDriver, RecordingsWaitForNothingOutside) {
  ASSERT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaErrorStreamCaptureIsolation);
  expect_said("an event from outside");
  expect_broken(cudaErrorStreamCaptureInvalidated);
}

TEST_F(StrictDriver, AGraphRunsInAnOrderThatItsWaitsAllow) {
  for (const bool joined : {true, false}) {
    for (int i = 0; i < kCount; ++i) pinned_[i] = 1;
    ASSERT_EQ(begin(), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(device_, 0, kBytes, stream_), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
    ASSERT_EQ(copy(device_, pinned_, other_), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
    if (joined) {
      EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaSuccess);
    }
    ASSERT_EQ(launch_add(stream_), cudaSuccess);  // reads what the copy has brought
    if (!joined) {
      EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaSuccess);
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t program = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess) << said();
    ASSERT_EQ(cudaGraphInstantiate(&program, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    ASSERT_EQ(cudaGraphUpload(program, stream_), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(program, stream_), cudaSuccess);
    ASSERT_EQ(cudaGraphExecDestroy(program), cudaSuccess) << "it runs to its end";
    ASSERT_EQ(copy(pinned_, device_, stream_), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(pinned_[7], joined ? 2 : 1);
    EXPECT_EQ(said(), "");
    EXPECT_EQ(cudaGraphLaunch(program, stream_), cudaErrorInvalidResourceHandle);
    expect_said("the executable graph was destroyed");
  }
}

TEST_F(StrictDriver, AGraphNeedsItsMemory) {
  ASSERT_EQ(begin(), cudaSuccess);
  ASSERT_EQ(copy(device_, pinned_, stream_), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t program = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&program, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaFree(device_), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(program, stream_), cudaErrorInvalidValue);
  expect_said("which was freed");
}

}  // namespace
}  // namespace gradloom::strict
