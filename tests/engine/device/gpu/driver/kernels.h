// Kernels as the host executor runs them (engine/device/gpu/host/executor.h), apart from CUDA's headers: both have a dim3.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

struct CUstream_st;

namespace gradloom::strict {

class KeptKernel;  // one launch with its arguments
using KernelPtr = std::shared_ptr<const KeptKernel>;

const std::string& name_of(const KeptKernel& kernel);
// What no GPU takes: grid, block, shared memory.
std::optional<std::string> launch_fault(const KeptKernel& kernel);
// Runs it to its end. What it did wrong.
std::optional<std::string> run(const KeptKernel& kernel);

struct ThreeDims {
  unsigned x, y, z;
};
// A launch of a program, whose one argument has so many bytes.
KernelPtr keep_program(void (*entry)(const void*), ThreeDims grid, ThreeDims block, std::size_t shared_bytes,
                       const void* params, std::size_t bytes);

// What a stream begins with, so that kernels/gpu/*.cu launch on it (host::Queue of kernels/gpu/host.h).
struct LaunchDoor {
  LaunchDoor();
  alignas(void*) std::byte queue[sizeof(void*)];
};
// Where such launches go on: a call of the driver (work.cpp).
void launch(CUstream_st* stream, KernelPtr kernel);

}  // namespace gradloom::strict
