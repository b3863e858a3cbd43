// cuDNN's plans for a described H200, where the library is: it makes them without a GPU, all but running
// them. That the library accepts the description of every convolution, has an engine that may be used, and is
// content with the workspace that plans have for it.
#ifdef GRADLOOM_HAS_CUDNN
#include "kernels/gpu/runtime/cudnn_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gradloom::kernels::gpu {
namespace {

// Numbers of the device's data sheet and of CUDA's programming guide (compute capability 9.0).
constexpr const char* kH200 =
    R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
    R"("multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
    R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":150000000000,)"
    R"("smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":62914560,"cudaDeviceId":0,"deviceVer":900,)"
    R"("driverVer":13000,"deviceName":"NVIDIA H200"})";

// cudnnBackendNumericalNote_t.
constexpr int kTensorCore = 0, kDownConvert = 1, kReducedPrecision = 2, kFft = 3, kNondeterministic = 4;

struct Case {
  const char* name;
  std::int64_t n, c, size, k, kernel, stride, pad, dilation = 1, groups = 1, depth = 1;
};
constexpr Case kCases[] = {
    {"ResNet's first", 32, 3, 224, 64, 7, 2, 3},     {"3x3", 32, 64, 56, 64, 3, 1, 1},
    {"3x3 of stride 2", 32, 128, 56, 128, 3, 2, 1},  {"1x1", 32, 256, 56, 64, 1, 1, 0},
    {"1x1 of stride 2", 32, 256, 56, 512, 1, 2, 0},  {"dilated", 8, 64, 33, 64, 3, 1, 2, 2},
    {"groups", 8, 128, 28, 256, 3, 1, 1, 1, 32},     {"odd sizes", 3, 5, 17, 7, 3, 1, 1},
    {"three dims", 2, 16, 14, 32, 3, 1, 1, 1, 1, 8},
};

ConvolutionArgs arguments(const Case& from, ConvolutionKind kind, DType type) {
  const auto out = [&](std::int64_t size) {
    return (size + 2 * from.pad - from.dilation * (from.kernel - 1) - 1) / from.stride + 1;
  };
  ConvolutionArgs args{};
  ConvolutionDesc& s = args.shape;
  s.dtype = type;
  s.n = from.n;
  s.c = from.c;
  s.h = s.w = from.size;
  s.k = from.k;
  s.r = s.s = from.kernel;
  s.oh = s.ow = out(from.size);
  s.stride_h = s.stride_w = from.stride;
  s.pad_top = s.pad_left = s.pad_bottom = s.pad_right = from.pad;
  s.dilation_h = s.dilation_w = from.dilation;
  s.groups = from.groups;
  if (from.depth > 1) {
    s.d = from.depth;
    s.t = from.kernel;
    s.od = out(from.depth);
    s.stride_d = from.stride;
    s.pad_front = s.pad_back = from.pad;
    s.dilation_d = from.dilation;
  }
  args.kind = kind;
  args.workspace_bytes = workspace_bytes(Target::gpu, args);
  return args;
}

bool has(const std::vector<int>& notes, int note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

class CudnnPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cudnn_version() < 90800) GTEST_SKIP() << "no cuDNN here that plans for described devices";
  }
};

TEST_F(CudnnPlans, EveryConvolutionHasAnEngineWithinItsWorkspace) {
  for (const Case& from : kCases) {
    for (const DType type : {DType::bf16, DType::f32}) {
      for (const ConvolutionKind kind :
           {ConvolutionKind::forward, ConvolutionKind::backward_data, ConvolutionKind::backward_weights}) {
        SCOPED_TRACE(std::string(from.name) + ", kind " + std::to_string(int(kind)) +
                     (type == DType::bf16 ? ", bf16" : ", f32"));
        const ConvolutionArgs args = arguments(from, kind, type);
        const auto plan = CudnnPlan::describe(kH200, convolution_problem(args), args.workspace_bytes, false);
        ASSERT_NE(plan, nullptr);
        EXPECT_LE(plan->workspace_bytes(), args.workspace_bytes);
        EXPECT_GE(plan->engine(), 0);
        EXPECT_FALSE(has(plan->notes(), kNondeterministic));
        EXPECT_FALSE(has(plan->notes(), kReducedPrecision));
        if (type == DType::bf16) continue;
        for (const int note : {kTensorCore, kDownConvert, kFft})
          EXPECT_FALSE(has(plan->notes(), note)) << note;
      }
    }
  }
}

// The workspace of the plan is what lets the fast engines run: those with tensor cores want channels last.
TEST_F(CudnnPlans, TensorCoresServeBf16) {
  int fast = 0, slow = 0;
  for (const Case& from : kCases) {
    const ConvolutionArgs args = arguments(from, ConvolutionKind::forward, DType::bf16);
    const auto with = CudnnPlan::describe(kH200, convolution_problem(args), args.workspace_bytes, false),
               without = CudnnPlan::describe(kH200, convolution_problem(args), 0, false);
    ASSERT_NE(with, nullptr) << from.name;
    fast += has(with->notes(), kTensorCore);
    slow += without == nullptr || !has(without->notes(), kTensorCore);
    if (without != nullptr) {
      EXPECT_EQ(without->workspace_bytes(), 0u) << from.name;
    }
  }
  EXPECT_EQ(fast, int(std::size(kCases)) - 1) << "all but odd sizes";
  EXPECT_GT(slow, 0);
}

TEST_F(CudnnPlans, Tf32IsForThoseWhoAsk) {
  const ConvolutionArgs args = arguments(kCases[1], ConvolutionKind::forward, DType::f32);
  const auto plan = CudnnPlan::describe(kH200, convolution_problem(args), args.workspace_bytes, true);
  ASSERT_NE(plan, nullptr);
  EXPECT_TRUE(has(plan->notes(), kTensorCore));
}

TEST_F(CudnnPlans, WhatCannotBeIsRefused) {
  ConvolutionArgs args = arguments(kCases[1], ConvolutionKind::forward, DType::bf16);
  EXPECT_EQ(CudnnPlan::describe("{}", convolution_problem(args), args.workspace_bytes, false), nullptr);
  EXPECT_EQ(CudnnPlan::describe("no JSON", convolution_problem(args), args.workspace_bytes, false), nullptr);
  EXPECT_EQ(CudnnPlan::create(nullptr, convolution_problem(args), args.workspace_bytes, false), nullptr);
  ++args.shape.oh;  // more rows than the window makes
  EXPECT_EQ(CudnnPlan::describe(kH200, convolution_problem(args), args.workspace_bytes, false), nullptr);
  args = arguments(kCases[1], ConvolutionKind::forward, DType::f64);
  EXPECT_EQ(CudnnPlan::describe(kH200, convolution_problem(args), args.workspace_bytes, false), nullptr);
}

}  // namespace
}  // namespace gradloom::kernels::gpu
#endif
