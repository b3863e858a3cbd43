// cuDNN's execution plan for one problem, made through its graph (backend) interface: a graph of operations
// (cudnn_operations.h), the engines that the library's heuristics suggest for it, and of those the first that
// may be used. cuDNN is opened at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/gpu/runtime/answer.h"
#include "engine/device/gpu/runtime/dnn_problem.h"

namespace gradloom::kernels::gpu {

// The library's version, 91900; 0: not found, or without what is needed of it.
std::size_t cudnn_version();

// What a plan is for: the device of a handle, or one that is described only, in the library's
// JSON (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), which needs no GPU and cannot run.
// Libraries before 9.8 know no descriptions.
struct CudnnDevice {
  void* handle = nullptr;   // cudnnHandle_t
  std::string description;  // without a handle
  int capability = 0;       // 90: sm_90
  bool tf32 = false;        // f32 may be rounded to it
};

class CudnnPlan {
 public:
  // Null: no engine is deterministic, of the precision asked for and content with
  // `workspace_bytes`, or a call failed: *why.
  static std::unique_ptr<CudnnPlan> create(const CudnnDevice& device, const DnnProblem& problem,
                                           std::size_t workspace_bytes, Answer* why = nullptr);
  ~CudnnPlan();
  // Queues it on the stream of `handle`. places: of the tensors().
  Answer run(void* handle, const std::vector<DnnCall::Place>& places, void* workspace) const;
  std::size_t workspace_bytes() const;
  const std::vector<std::int64_t>& tensors() const;  // ids of those that it reads and writes
  std::int64_t engine() const;                       // its number
  const std::vector<int>& notes() const;  // numerical notes of the engine (cudnnBackendNumericalNote_t)

 private:
  struct Parts;
  explicit CudnnPlan(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace gradloom::kernels::gpu
