// One open device, and the way in which a failed call of a vendor's library becomes a GpuStatus with a message.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/device/gpu/plugin.h"
#include "engine/device/gpu/runtime/dnn_library.h"
#include "engine/device/gpu/runtime/error_code.h"
#include "engine/device/gpu/runtime/gemm_library.h"
#include "engine/device/gpu/runtime/names.h"
#include "engine/device/gpu/runtime/ranks_library.h"

struct GpuContext {
  int device = 0;
  std::string architecture;  // "sm_90", "gfx90a:sramecc+:xnack-"
  GPU(Stream_t) streams[GPU_STREAMS] = {};
  std::vector<GPU(Event_t)> events;
  gradloom::kernels::gpu::AlgorithmTable algorithms;
  gradloom::kernels::gpu::GemmLibraryPtr gemm;     // null: none found, our own kernels serve
  gradloom::kernels::gpu::DnnLibraryPtr dnn;       // likewise
  gradloom::kernels::gpu::RanksLibraryPtr ranks;   // null: not joined
  gradloom::kernels::gpu::Answer no_gemm, no_dnn;  // why not
  std::string dnn_name;                            // "cudnn 9.19.0"
  std::string used;                         // the library that was asked last; "": none has such a kernel
  gradloom::kernels::gpu::Answer answer;    // what it said
  int join_event = -1, callers_device = 0;  // of join_stream
  bool capturing = false, lost = false, range_open = false;
  std::string message;
};

struct GpuGraph {
  GPU(Graph_t) graph = nullptr;
  GPU(GraphExec_t) program = nullptr;
};

namespace gradloom::kernels::gpu {

// Stores "what: text (name)" as the message of `context` (null: of the thread) and gives the status.
GpuStatus report(GpuContext* context, GpuStatus status, const std::string& message);
GpuStatus report(GpuContext* context, Error error, const std::string& what);
const char* message_of(const GpuContext* context);

// Before any call: the thread's device is the context's, and a lost device refuses.
GpuStatus enter(GpuContext* context);

// GPU_OK, or the reported status of a failed call.
inline GpuStatus check(GpuContext* context, Error error, const char* what) {
  return error == GPU(Success) ? GPU_OK : report(context, error, what);
}

// kernel_table.cu: queues kernel `id` (KernelId) on `stream`. False when this build has no such kernel or the
// struct's size is another.
bool queue_kernel(unsigned id, const void* args, std::size_t bytes, void* stream);
// kernel_table.cu: gemm_epilogue and convolution_bias of kernels/gpu/kernels.h.
void queue_gemm_epilogue(const GemmArgs& args, void* stream);
void queue_convolution_bias(const ConvolutionArgs& args, void* stream);
// Likewise batch_norm_running of kernels/gpu/batch_norm.h.
void queue_batch_norm_running(const BatchNormArgs& args, void* stream);

}  // namespace gradloom::kernels::gpu
