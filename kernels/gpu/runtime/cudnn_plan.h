// cuDNN's execution plan for one convolution, made through its graph (backend) interface: tensors, the
// operation, a graph of it alone, the engines that the library's heuristics suggest, and of those the first
// that may be used. cuDNN is opened at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/gpu/runtime/dnn_problem.h"

namespace gradloom::kernels::gpu {

// The library's version, 91900; 0: not found, or without what is needed of it.
std::size_t cudnn_version();

class CudnnPlan {
 public:
  // For the device of `handle` (cudnnHandle_t). Null: no engine is deterministic, of the precision asked for
  // and content with `workspace_bytes`, or a call failed. tf32: f32 may be rounded to it.
  static std::unique_ptr<CudnnPlan> create(void* handle, const ConvolutionProblem& problem,
                                           std::size_t workspace_bytes, bool tf32);
  // For a device that is described only, in the library's JSON (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION):
  // nothing to run, needs no GPU. Null too with libraries before 9.8, which cannot.
  static std::unique_ptr<CudnnPlan> describe(const std::string& device_json,
                                             const ConvolutionProblem& problem, std::size_t workspace_bytes,
                                             bool tf32);
  ~CudnnPlan();
  // Queues it on the stream of `handle`. tensors: x, w, y.
  bool run(void* handle, const std::array<void*, 3>& tensors, void* workspace) const;
  std::size_t workspace_bytes() const;
  std::int64_t engine() const;            // its number
  const std::vector<int>& notes() const;  // numerical notes of the engine (cudnnBackendNumericalNote_t)

 private:
  struct Parts;
  explicit CudnnPlan(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace gradloom::kernels::gpu
