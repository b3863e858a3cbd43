// cuDNN's plans for a described H200, where the library is: it makes them without a GPU, all but running
// them, and without a driver (fake_driver.cpp). That the library accepts the description of every
// convolution, pooling, normalization and attention that is handed to it, has an engine that may be used, and
// is content with the workspace that plans have for it.
#include "engine/device/gpu/runtime/cudnn_plan.h"
#include "tests/paths.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

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
constexpr int kTensorCore = 0, kDownConvert = 1, kReducedPrecision = 2, kFft = 3, kNondeterministic = 4,
              kWinograd = 5;

struct Case {
  const char* name;
  std::int64_t n, c, size, k, kernel, stride, pad, dilation = 1, groups = 1, depth = 1;
};
constexpr Case kConvolutions[] = {
    {"ResNet's first", 32, 3, 224, 64, 7, 2, 3},     {"3x3", 32, 64, 56, 64, 3, 1, 1},
    {"3x3 of stride 2", 32, 128, 56, 128, 3, 2, 1},  {"1x1", 32, 256, 56, 64, 1, 1, 0},
    {"1x1 of stride 2", 32, 256, 56, 512, 1, 2, 0},  {"dilated", 8, 64, 33, 64, 3, 1, 2, 2},
    {"groups", 8, 128, 28, 256, 3, 1, 1, 1, 32},     {"odd sizes", 3, 5, 17, 7, 3, 1, 1},
    {"three dims", 2, 16, 14, 32, 3, 1, 1, 1, 1, 8},
};

alignas(16) char somewhere[64];  // an address: nothing is run

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
  args.workspace = somewhere;
  args.workspace_bytes = std::max(workspace_bytes(Target::gpu, args), library_workspace_bytes(args));
  return args;
}

bool has(const std::vector<int>& notes, int note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

// The call has a place for each of the plan's tensors, and for nothing else.
void expect_places(const CudnnPlan& plan, const DnnCall& call) {
  std::vector<std::int64_t> ids = plan.tensors(), placed;
  for (const DnnCall::Place& place : call.places) placed.push_back(place.id);
  std::sort(ids.begin(), ids.end());
  std::sort(placed.begin(), placed.end());
  EXPECT_EQ(ids, placed);
}

std::unique_ptr<CudnnPlan> plan_of(const DnnCall& call, bool tf32 = false, int capability = 90) {
  auto plan = CudnnPlan::create({nullptr, kH200, capability, tf32}, call.problem, call.workspace_bytes);
  if (plan != nullptr && !call.places.empty()) expect_places(*plan, call);
  return plan;
}
template <class Args>
std::unique_ptr<CudnnPlan> plan_of(const Args& args, bool tf32 = false) {
  const std::optional<DnnCall> call = dnn_call(args);
  return call ? plan_of(*call, tf32) : nullptr;
}

// Same bits every time, sums of half types in f32 and not of transforms, f32 not rounded.
void expect_allowed(const CudnnPlan& plan, DType type) {
  EXPECT_GE(plan.engine(), 0);
  EXPECT_FALSE(has(plan.notes(), kNondeterministic));
  EXPECT_FALSE(has(plan.notes(), kReducedPrecision));
  EXPECT_FALSE(has(plan.notes(), kFft));
  if (is_half(type)) {
    EXPECT_FALSE(has(plan.notes(), kWinograd));
    return;
  }
  for (const int note : {kTensorCore, kDownConvert}) EXPECT_FALSE(has(plan.notes(), note)) << note;
}
const char* name_of(DType type) {
  return type == DType::f16 ? ", f16" : type == DType::bf16 ? ", bf16" : ", f32";
}

class CudnnPlans : public ::testing::Test {
 protected:
  // cuDNN looks for the driver under its name, which this library bears too.
  static void SetUpTestSuite() {
    ASSERT_NE(dlopen(GRADLOOM_FAKE_DRIVER, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  }
  void SetUp() override {
    if (cudnn_version() < 90800) GTEST_SKIP() << "no cuDNN here that plans for described devices";
  }
};

// ---- convolution ------------------------------------------------------------------------------------------------------------------

TEST_F(CudnnPlans, EveryConvolutionHasAnEngineWithinItsWorkspace) {
  for (const Case& from : kConvolutions) {
    for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
      for (const ConvolutionKind kind :
           {ConvolutionKind::forward, ConvolutionKind::backward_data, ConvolutionKind::backward_weights}) {
        SCOPED_TRACE(std::string(from.name) + ", kind " + std::to_string(int(kind)) + name_of(type));
        const ConvolutionArgs args = arguments(from, kind, type);
        const auto plan = plan_of(args);
        ASSERT_NE(plan, nullptr);
        EXPECT_LE(plan->workspace_bytes(), args.workspace_bytes);
        expect_allowed(*plan, type);
      }
    }
  }
}

// The workspace of the plan is what lets the fast engines run: those with tensor cores want channels last.
TEST_F(CudnnPlans, TensorCoresServeBf16) {
  int fast = 0, slow = 0;
  for (const Case& from : kConvolutions) {
    ConvolutionArgs args = arguments(from, ConvolutionKind::forward, DType::bf16);
    const auto with = plan_of(args);
    args.workspace = nullptr;
    const auto without = plan_of(args);
    ASSERT_NE(with, nullptr) << from.name;
    fast += has(with->notes(), kTensorCore);
    slow += without == nullptr || !has(without->notes(), kTensorCore);
    if (without != nullptr) {
      EXPECT_EQ(without->workspace_bytes(), 0u) << from.name;
    }
  }
  EXPECT_EQ(fast, int(std::size(kConvolutions)) - 1) << "all but odd sizes";
  EXPECT_GT(slow, 0);
}

TEST_F(CudnnPlans, Tf32IsForThoseWhoAsk) {
  const auto plan = plan_of(arguments(kConvolutions[1], ConvolutionKind::forward, DType::f32), true);
  ASSERT_NE(plan, nullptr);
  EXPECT_TRUE(has(plan->notes(), kTensorCore));
}

TEST_F(CudnnPlans, WhatCannotBeIsRefused) {
  ConvolutionArgs args = arguments(kConvolutions[1], ConvolutionKind::forward, DType::bf16);
  const DnnProblem problem = dnn_call(args).value().problem;
  EXPECT_EQ(CudnnPlan::create({nullptr, "{}", 90, false}, problem, args.workspace_bytes), nullptr);
  EXPECT_EQ(CudnnPlan::create({nullptr, "no JSON", 90, false}, problem, args.workspace_bytes), nullptr);
  EXPECT_EQ(CudnnPlan::create({}, problem, args.workspace_bytes), nullptr);
  ++args.shape.oh;  // more rows than the window makes
  EXPECT_EQ(plan_of(args), nullptr);
}

// ---- pooling ----------------------------------------------------------------------------------------------------------------------

struct PoolCase {
  const char* name;
  std::int64_t planes, depth, size, kernel, stride, pad;
  bool ceil = false;
};
constexpr PoolCase kPools[] = {
    {"ResNet's", 32 * 64, 1, 112, 3, 2, 1},
    {"halves", 32 * 128, 1, 56, 2, 2, 0},
    {"overlapping", 64, 1, 35, 3, 1, 1},
    {"everything", 32 * 2048, 1, 7, 7, 1, 0},
    {"three dims", 16, 8, 14, 2, 2, 0},
    {"odd sizes", 15, 1, 17, 3, 2, 1},
    {"last window beyond", 64, 1, 14, 3, 2, 0, true},
};

PoolShape pool_shape(const PoolCase& from) {
  PoolShape s{};
  s.planes = from.planes;
  const bool deep = from.depth > 1;
  for (int d = 0; d < 3; ++d) {
    const bool used = d > 0 || deep;
    s.in[d] = d > 0 ? from.size : from.depth;
    s.kernel[d] = used ? from.kernel : 1;
    s.stride[d] = used ? from.stride : 1;
    s.pad_begin[d] = s.pad_end[d] = used ? from.pad : 0;
    s.dilation[d] = 1;
    const std::int64_t room = s.in[d] + 2 * s.pad_begin[d] - s.kernel[d];
    s.out[d] = (room + (from.ceil ? s.stride[d] - 1 : 0)) / s.stride[d] + 1;
  }
  return s;
}

TEST_F(CudnnPlans, EveryPoolingHasAnEngine) {
  for (const PoolCase& from : kPools) {
    for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
      SCOPED_TRACE(std::string(from.name) + name_of(type));
      const PoolShape shape = pool_shape(from);
      MaxPoolArgs max{};
      max.dtype = type;
      max.shape = shape;
      std::vector<std::unique_ptr<CudnnPlan>> plans;
      plans.push_back(plan_of(max));
      for (const PoolDivisor divisor : {PoolDivisor::inside, PoolDivisor::padded}) {
        if (from.ceil && divisor == PoolDivisor::padded) continue;  // not handed to it (dnn_problem_test.cpp)
        plans.push_back(plan_of(AveragePoolArgs{type, shape, divisor, nullptr, nullptr}));
        plans.push_back(plan_of(AveragePoolGradArgs{type, shape, divisor, nullptr, nullptr}));
      }
      for (const auto& plan : plans) {
        ASSERT_NE(plan, nullptr);
        EXPECT_EQ(plan->workspace_bytes(), 0u);
        expect_allowed(*plan, type);
      }
    }
  }
}

// ---- batch normalization ----------------------------------------------------------------------------------------------------------

TEST_F(CudnnPlans, RowsAreNormalizedWithinOurWorkspace) {
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    SCOPED_TRACE(name_of(type));
    BatchNormArgs forward{};
    forward.dtype = type;
    forward.parameters = DType::f32;
    forward.training = true;
    forward.n = 64;
    forward.c = 256;
    forward.spatial = 1;
    forward.epsilon = 1e-5;
    forward.x = somewhere;
    forward.y = somewhere + 16;
    BatchNormGradArgs backward{};
    backward.dtype = type;
    backward.parameters = DType::f32;
    backward.training = true;
    backward.n = 64;
    backward.c = 256;
    backward.spatial = 1;
    backward.x = somewhere;
    backward.dy = somewhere + 16;
    backward.dx = somewhere + 32;
    for (const auto& plan : {plan_of(forward), plan_of(backward)}) {
      ASSERT_NE(plan, nullptr);
      expect_allowed(*plan, type);
    }
  }
}

// Why images are not handed to it: channels first it has one engine, whose workspace is a second x and y (and
// dy), channels last.
TEST_F(CudnnPlans, ImagesWouldBeCopied) {
  const DnnSizes images{32, 64, 56, 56}, channels{1, 64, 1, 1};
  const auto image_bytes =
      std::size_t(2 * std::accumulate(images.begin(), images.end(), std::int64_t{1}, std::multiplies<>()));
  BatchNormProblem p{};
  p.epsilon = 1e-5;
  for (auto [tensor, id] : {std::pair(&p.x, 'x'), {&p.y, 'y'}, {&p.dx, 'd'}})
    *tensor = dense_tensor(id, DType::bf16, images);
  for (auto [tensor, id] :
       {std::pair(&p.scale, 's'), {&p.bias, 'b'}, {&p.dscale, 'g'}, {&p.mean, 'm'}, {&p.inv_std, 'i'}})
    *tensor = dense_tensor(id, DType::f32, channels);
  for (const bool backward : {false, true}) {
    p.backward = backward;
    const auto plan = plan_of(DnnCall{p, {}, nullptr, std::size_t{1} << 30});
    ASSERT_NE(plan, nullptr);
    EXPECT_GE(plan->workspace_bytes(), (backward ? 3 : 2) * image_bytes);
  }
}

// ---- attention --------------------------------------------------------------------------------------------------------------------

struct AttentionCase {
  const char* name;
  std::int64_t batch, heads, rows, keys, d, e;
  bool causal = false, heads_inside = false;
  std::int64_t mask[4] = {0, 0, 0, 0};
  bool rows_of_one = false;  // queries, keys and values beside each other in one tensor, and their gradients
};
constexpr AttentionCase kAttentions[] = {
    {"GPT-2's", 8, 12, 1024, 1024, 64, 64, true, true},
    {"BERT's", 8, 12, 128, 128, 64, 64, false, true, {8, 1, 1, 128}},
    {"ViT's", 8, 12, 197, 197, 64, 64},
    {"Llama's", 1, 32, 2048, 2048, 128, 128, true, true},
    {"one head", 24, 1, 512, 512, 64, 64},
    {"other keys", 2, 8, 512, 100, 64, 64, false, true},
    {"wide values", 2, 8, 512, 512, 64, 128},
    {"causal, odd", 2, 8, 77, 77, 64, 64, true},
    {"few", 2, 2, 8, 8, 16, 16},
    {"a mask for all", 2, 8, 197, 197, 64, 64, false, false, {1, 1, 197, 197}},
    {"a mask per head", 2, 8, 512, 512, 64, 64, false, true, {1, 8, 512, 512}},
    {"GPT-2's, in rows", 8, 12, 1024, 1024, 64, 64, true, true, {}, true},
    {"BERT's, in rows", 8, 12, 128, 128, 64, 64, false, true, {8, 1, 1, 128}, true},
};

AttentionArgs arguments(const AttentionCase& from, DType type = DType::bf16) {
  AttentionArgs a{};
  a.dtype = type;
  a.batch = from.batch;
  a.heads = from.heads;
  a.rows = from.rows;
  a.keys = from.keys;
  a.d = from.d;
  a.e = from.e;
  a.scale = 0.125;
  a.causal = from.causal;
  const auto strides = [&](std::int64_t(&to)[4], std::int64_t rows, std::int64_t columns,
                           std::int64_t tensors) {
    to[0] = tensors * from.heads * rows * columns;
    to[1] = from.heads_inside ? columns : rows * columns;
    to[2] = from.heads_inside ? tensors * from.heads * columns : columns;
    to[3] = 1;
  };
  const std::int64_t tensors = from.rows_of_one ? 3 : 1;
  strides(a.q_strides, a.rows, a.d, tensors);
  strides(a.k_strides, a.keys, a.d, tensors);
  strides(a.v_strides, a.keys, a.e, tensors);
  strides(a.y_strides, a.rows, a.e, 1);
  std::copy(std::begin(from.mask), std::end(from.mask), a.mask_dims);
  a.mask = from.mask[3] > 0 ? somewhere : nullptr;
  a.workspace = somewhere;
  return a;
}

// Its gradients lie as the operands do.
AttentionGradArgs gradient_of(const AttentionArgs& forward) {
  AttentionGradArgs g{forward};
  std::copy_n(forward.y_strides, 4, g.dy_strides);
  std::copy_n(forward.q_strides, 4, g.dq_strides);
  std::copy_n(forward.k_strides, 4, g.dk_strides);
  std::copy_n(forward.v_strides, 4, g.dv_strides);
  return g;
}

TEST_F(CudnnPlans, EveryAttentionHasAnEngineWithinItsWorkspace) {
  for (const AttentionCase& from : kAttentions) {
    for (const DType type : {DType::f16, DType::bf16}) {
      SCOPED_TRACE(std::string(from.name) + name_of(type));
      AttentionArgs args = arguments(from, type);
      args.workspace_bytes = library_workspace_bytes(args);
      const std::optional<DnnCall> forward = dnn_call(args);
      args.workspace_bytes = library_workspace_bytes(gradient_of(args));
      const std::optional<DnnCall> backward = dnn_call(gradient_of(args));
      for (const auto* call : {&forward, &backward}) {
        ASSERT_TRUE(call->has_value());
        const auto plan = plan_of(**call);
        ASSERT_NE(plan, nullptr);
        EXPECT_LE(plan->workspace_bytes(), (*call)->workspace_bytes);
        EXPECT_TRUE(has(plan->notes(), kTensorCore));
        expect_allowed(*plan, type);
      }
    }
  }
}

TEST_F(CudnnPlans, AttentionsThatItRefuses) {
  AttentionArgs args = arguments(kAttentions[0]);
  args.d = 36;  // no pack of 16 bytes
  args.workspace_bytes = library_workspace_bytes(args);
  EXPECT_EQ(plan_of(args), nullptr);
  args = arguments(kAttentions[0]);
  args.workspace_bytes = library_workspace_bytes(gradient_of(args));
  std::optional<DnnCall> call = dnn_call(gradient_of(args));
  ASSERT_TRUE(call.has_value());
  EXPECT_EQ(plan_of(*call, false, 100), nullptr) << "a knob decides there whether its bits are the same";
  call->workspace_bytes = 1 << 20;
  EXPECT_EQ(plan_of(*call), nullptr) << "the form that needs no more has other bits every time";
}

}  // namespace
}  // namespace gradloom::kernels::gpu
