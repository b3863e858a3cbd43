// Kernels as problems of a graph library: dims, strides, which address is which,
// and what is not handed to it.
#include "engine/device/gpu/runtime/dnn_problem.h"

#include <gtest/gtest.h>

namespace gradloom::kernels::gpu {
namespace {

ConvolutionArgs arguments(ConvolutionKind kind) {
  ConvolutionArgs args{};
  ConvolutionDesc& s = args.shape;
  s.n = 2;
  s.c = 6;
  s.h = 9;
  s.w = 8;
  s.k = 10;
  s.r = 3;
  s.s = 2;
  s.oh = 5;
  s.ow = 8;
  s.stride_h = 2;
  s.pad_top = 1;
  s.pad_bottom = 2;
  s.pad_right = 1;
  s.dilation_w = 1;
  s.groups = 2;
  args.kind = kind;
  return args;
}

template <class Args>
const DnnCall only(const Args& args) {
  std::optional<DnnCall> call = dnn_call(args);
  EXPECT_TRUE(call.has_value());
  return call ? std::move(*call) : DnnCall{};
}
template <class Problem, class Args>
Problem problem(const Args& args) {
  return std::get<Problem>(only(args).problem);
}
void* place(const DnnCall& call, std::int64_t id) {
  for (const DnnCall::Place& p : call.places)
    if (p.id == id) return p.address;
  return nullptr;
}

alignas(16) char memory[4096];

// ---- convolution ------------------------------------------------------------------------------------------------------------------

TEST(DnnProblem, TwoSpatialDims) {
  const auto p = problem<ConvolutionProblem>(arguments(ConvolutionKind::backward_data));
  EXPECT_EQ(p.kind, ConvolutionKind::backward_data);
  EXPECT_EQ(p.x.dims, (DnnSizes{2, 6, 9, 8}));
  EXPECT_EQ(p.x.strides, (DnnSizes{432, 72, 8, 1}));
  EXPECT_EQ(p.w.dims, (DnnSizes{10, 3, 3, 2})) << "channels of a group";
  EXPECT_EQ(p.w.strides, (DnnSizes{18, 6, 2, 1}));
  EXPECT_EQ(p.y.dims, (DnnSizes{2, 10, 5, 8}));
  EXPECT_EQ(p.y.strides, (DnnSizes{400, 40, 8, 1}));
  EXPECT_EQ(p.stride, (DnnSizes{2, 1}));
  EXPECT_EQ(p.pad_begin, (DnnSizes{1, 0}));
  EXPECT_EQ(p.pad_end, (DnnSizes{2, 1}));
  EXPECT_EQ(p.dilation, (DnnSizes{1, 1}));
  EXPECT_NE(p.x.id, p.w.id);
  EXPECT_NE(p.w.id, p.y.id);
  EXPECT_NE(p.x.id, p.y.id);
}

TEST(DnnProblem, ThreeSpatialDims) {
  ConvolutionArgs args = arguments(ConvolutionKind::forward);
  args.shape.d = 7;
  args.shape.t = 3;
  args.shape.od = 3;
  args.shape.stride_d = 2;
  args.shape.dilation_d = 1;
  const auto p = problem<ConvolutionProblem>(args);
  EXPECT_EQ(p.x.dims, (DnnSizes{2, 6, 7, 9, 8}));
  EXPECT_EQ(p.x.strides, (DnnSizes{3024, 504, 72, 8, 1}));
  EXPECT_EQ(p.w.dims, (DnnSizes{10, 3, 3, 3, 2}));
  EXPECT_EQ(p.stride, (DnnSizes{2, 2, 1}));
  ConvolutionArgs padded = arguments(ConvolutionKind::forward);
  padded.shape.pad_front = padded.shape.pad_back = 1;
  padded.shape.t = 3;
  EXPECT_EQ(problem<ConvolutionProblem>(padded).pad_begin, (DnnSizes{1, 1, 0}))
      << "a depth of 1 that is padded";
}

TEST(DnnProblem, EveryKindHasItsOwnOrderOfAddresses) {
  char *const a = memory, *const b = memory + 16, *const out = memory + 32;
  const auto at = [&](ConvolutionKind kind) {
    ConvolutionArgs args = arguments(kind);
    args.a = a;
    args.b = b;
    args.out = out;
    const DnnCall call = only(args);
    EXPECT_TRUE(aligned(call));
    return std::vector<void*>{place(call, 'x'), place(call, 'w'), place(call, 'y')};
  };
  using Places = std::vector<void*>;
  EXPECT_EQ(at(ConvolutionKind::forward), (Places{a, b, out}));
  EXPECT_EQ(at(ConvolutionKind::backward_data), (Places{out, b, a}));
  EXPECT_EQ(at(ConvolutionKind::backward_weights), (Places{b, out, a}));
  ConvolutionArgs args = arguments(ConvolutionKind::forward);
  args.a = a;
  args.out = out;
  EXPECT_FALSE(aligned(only(args))) << "no weights";
  args.b = b + 8;
  EXPECT_FALSE(aligned(only(args)));
  args.shape.dtype = DType::f64;
  EXPECT_FALSE(dnn_call(args));
}

TEST(DnnProblem, TheKeyTellsProblemsApart) {
  const ConvolutionArgs args = arguments(ConvolutionKind::forward);
  EXPECT_EQ(key_of(only(args)), key_of(only(args)));
  EXPECT_NE(key_of(only(args)), key_of(only(arguments(ConvolutionKind::backward_data))));
  const auto differs = [&](const auto& change) {
    ConvolutionArgs other = args;
    change(other);
    return key_of(only(other)) != key_of(only(args));
  };
  EXPECT_TRUE(differs([](ConvolutionArgs& x) {
    x.workspace = memory;
    x.workspace_bytes = 64;
  }));
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { x.shape.dtype = DType::bf16; }));
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { x.shape.groups = 1; }));
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { ++x.shape.pad_right; }));
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { ++x.shape.pad_back; }));
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { x.shape.dilation_w = 2; }));
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { ++x.shape.n; }));
}

// ---- pooling ----------------------------------------------------------------------------------------------------------------------

// 3x2 windows of stride 2 over 8x7, padded by 1 above and to the left.
PoolShape pool_shape() {
  return {12, {1, 8, 7}, {1, 4, 4}, {1, 3, 2}, {1, 2, 2}, {0, 1, 1}, {0, 0, 0}, {1, 1, 1}};
}

TEST(DnnProblem, PoolingInPlanes) {
  MaxPoolArgs max{};
  max.dtype = DType::bf16;
  max.shape = pool_shape();
  max.x = memory;
  max.y = memory + 16;
  auto p = problem<PoolProblem>(max);
  EXPECT_EQ(p.mode, PoolMode::max);
  EXPECT_FALSE(p.backward);
  EXPECT_EQ(p.x.dtype, DType::bf16);
  EXPECT_EQ(p.x.dims, (DnnSizes{12, 1, 8, 7}));
  EXPECT_EQ(p.y.dims, (DnnSizes{12, 1, 4, 4}));
  EXPECT_EQ(p.kernel, (DnnSizes{3, 2}));
  EXPECT_EQ(p.stride, (DnnSizes{2, 2}));
  EXPECT_EQ(p.pad_begin, (DnnSizes{1, 1}));
  EXPECT_EQ(p.pad_end, (DnnSizes{0, 0}));
  EXPECT_EQ(place(only(max), 'x'), memory);
  EXPECT_EQ(place(only(max), 'y'), memory + 16);
  AveragePoolGradArgs grad{DType::f32, pool_shape(), PoolDivisor::padded, memory, memory + 16};
  p = problem<PoolProblem>(grad);
  EXPECT_EQ(p.mode, PoolMode::average_padded);
  EXPECT_TRUE(p.backward);
  EXPECT_EQ(place(only(grad), 'y'), memory) << "dy";
  EXPECT_EQ(place(only(grad), 'x'), memory + 16) << "dx";
  grad.shape.in[0] = grad.shape.out[0] = 3;
  EXPECT_EQ(problem<PoolProblem>(grad).x.dims, (DnnSizes{12, 1, 3, 8, 7}));
  EXPECT_EQ(problem<PoolProblem>(grad).kernel, (DnnSizes{1, 3, 2}));
}

TEST(DnnProblem, PoolingsThatStayOurs) {
  const auto average = [](const auto& change) {
    AveragePoolArgs args{DType::f32, pool_shape(), PoolDivisor::inside, memory, memory + 16};
    change(args);
    return dnn_call(args).has_value();
  };
  EXPECT_TRUE(average([](AveragePoolArgs&) {}));
  EXPECT_FALSE(average([](AveragePoolArgs& a) { a.dtype = DType::f64; }));
  EXPECT_FALSE(average([](AveragePoolArgs& a) { a.divisor = PoolDivisor::one; }));
  EXPECT_FALSE(average([](AveragePoolArgs& a) { a.shape.dilation[1] = 2; }));
  EXPECT_FALSE(average([](AveragePoolArgs& a) { a.shape.pad_begin[2] = 2; })) << "a window of pads alone";
  // ceil_mode: one more row of windows, the last of which reaches two rows beyond the pads.
  const auto beyond = [](AveragePoolArgs& a) { a.shape.out[1] = 5; };
  EXPECT_TRUE(average(beyond));
  EXPECT_FALSE(average([&](AveragePoolArgs& a) {
    beyond(a);
    a.divisor = PoolDivisor::padded;
  })) << "it would count the rows beyond";
  MaxPoolArgs max{};
  max.dtype = DType::f32;
  max.shape = pool_shape();
  std::int64_t positions[1];
  max.argmax = positions;
  EXPECT_FALSE(dnn_call(max));
  max.argmax = nullptr;
  max.indices = positions;
  EXPECT_FALSE(dnn_call(max));
}

// ---- batch normalization ----------------------------------------------------------------------------------------------------------

TEST(DnnProblem, BatchNormalizationOfRows) {
  BatchNormArgs args{};
  args.dtype = DType::bf16;
  args.parameters = DType::f32;
  args.training = true;
  args.n = 32;
  args.c = 48;
  args.spatial = 1;
  args.epsilon = 0.25;
  args.x = memory;
  args.y = memory + 16;
  args.saved_mean = memory + 32;
  const auto p = problem<BatchNormProblem>(args);
  EXPECT_EQ(p.x.dims, (DnnSizes{32, 48, 1, 1}));
  EXPECT_EQ(p.x.strides[0], 48);
  EXPECT_EQ(p.x.strides[1], 1);
  EXPECT_EQ(p.scale.dims, (DnnSizes{1, 48, 1, 1}));
  EXPECT_EQ(p.scale.dtype, DType::f32);
  EXPECT_EQ(p.epsilon, 0.25);
  EXPECT_EQ(place(only(args), 'm'), memory + 32);
  const auto stays_ours = [&](const auto& change) {
    BatchNormArgs other = args;
    change(other);
    return !dnn_call(other);
  };
  EXPECT_TRUE(stays_ours([](BatchNormArgs& a) { a.training = false; }));
  EXPECT_TRUE(stays_ours([](BatchNormArgs& a) { a.spatial = 4; }));
  EXPECT_TRUE(stays_ours([](BatchNormArgs& a) { a.parameters = DType::bf16; }));
  EXPECT_TRUE(stays_ours([](BatchNormArgs& a) { a.y = memory; })) << "in place";
  EXPECT_TRUE(stays_ours([](BatchNormArgs& a) { a.y = nullptr; })) << "mean and variance alone";
  BatchNormGradArgs grad{};
  grad.dtype = grad.parameters = DType::f32;
  grad.training = true;
  grad.n = 32;
  grad.c = 48;
  grad.spatial = 1;
  grad.dy = memory;
  grad.x = memory + 16;
  grad.dx = memory + 32;
  EXPECT_TRUE(problem<BatchNormProblem>(grad).backward);
  EXPECT_EQ(place(only(grad), 'y'), memory);
  EXPECT_EQ(place(only(grad), 'd'), memory + 32);
  for (void* const elsewhere : {static_cast<void*>(memory), static_cast<void*>(nullptr)}) {
    grad.dx = elsewhere;
    EXPECT_FALSE(dnn_call(grad)) << "in place, and the sums alone";
  }
}

// ---- attention --------------------------------------------------------------------------------------------------------------------

AttentionArgs attention() {
  AttentionArgs a{DType::bf16, 2, 3, 8, 16, 8, 24};
  const auto dense = [&](std::int64_t(&to)[4], std::int64_t rows, std::int64_t columns) {
    to[3] = 1;
    to[2] = columns;
    to[1] = rows * columns;
    to[0] = 3 * rows * columns;
  };
  dense(a.q_strides, 8, 8);
  dense(a.k_strides, 16, 8);
  dense(a.v_strides, 16, 24);
  dense(a.y_strides, 8, 24);
  a.scale = 0.5;
  a.q = memory;
  a.k = memory + 16;
  a.v = memory + 32;
  a.y = memory + 48;
  a.workspace = memory + 1024;
  a.workspace_bytes = std::size_t{1} << 20;
  return a;
}

// Of it, with results that lie as the operands do.
AttentionGradArgs gradient_of(const AttentionArgs& forward) {
  AttentionGradArgs g{forward};
  std::copy_n(forward.y_strides, 4, g.dy_strides);
  std::copy_n(forward.q_strides, 4, g.dq_strides);
  std::copy_n(forward.k_strides, 4, g.dk_strides);
  std::copy_n(forward.v_strides, 4, g.dv_strides);
  g.forward.log_sum_exp = reinterpret_cast<float*>(memory + 144);
  g.dy = memory + 80;
  g.dq = memory + 96;
  g.dk = memory + 112;
  g.dv = memory + 128;
  return g;
}

TEST(DnnProblem, AttentionForward) {
  AttentionArgs args = attention();
  const DnnCall call = only(args);
  const auto p = std::get<AttentionProblem>(call.problem);
  EXPECT_FALSE(p.backward || p.causal || p.mask);
  EXPECT_EQ(p.k.dims, (DnnSizes{2, 3, 16, 8}));
  EXPECT_EQ(p.y.strides, (DnnSizes{576, 192, 24, 1}));
  EXPECT_EQ(p.log_sum_exp.dims, (DnnSizes{2, 3, 8, 1}));
  EXPECT_EQ(p.log_sum_exp.dtype, DType::f32);
  EXPECT_EQ(place(call, 'y'), memory + 48);
  EXPECT_EQ(place(call, 'l'), memory + 1024) << "nobody wants it";
  EXPECT_EQ(call.workspace, memory + 1280) << "behind log_sum_exp, 192 bytes";
  EXPECT_EQ(call.workspace_bytes, (std::size_t{1} << 20) - 256);
  AttentionArgs telling = attention();
  telling.log_sum_exp = reinterpret_cast<float*>(memory + 144);
  EXPECT_EQ(place(only(telling), 'l'), memory + 144);
  EXPECT_EQ(key_of(only(telling)), key_of(call));
  args.mask = memory + 64;
  std::fill_n(args.mask_dims, 4, 1);
  args.mask_dims[3] = 16;
  EXPECT_EQ(problem<AttentionProblem>(args).mask->dims, (DnnSizes{1, 1, 1, 16}));
  EXPECT_EQ(place(only(args), 'm'), memory + 64);
  EXPECT_NE(key_of(only(args)), key_of(call));
  AttentionArgs causal = attention();
  causal.causal = true;
  EXPECT_NE(key_of(only(causal)), key_of(call));
  causal.scale = 0.25;
  EXPECT_NE(key_of(only(causal)), key_of(call));
}

TEST(DnnProblem, AttentionOfHalfTypesAlone) {
  AttentionArgs args = attention();
  for (const DType type : {DType::f16, DType::bf16}) {
    args.dtype = type;
    const auto p = problem<AttentionProblem>(args);
    EXPECT_EQ(p.q.dtype, type);
    EXPECT_EQ(std::get<AttentionProblem>(dnn_call(gradient_of(args)).value().problem).dv.dtype, type);
    EXPECT_GT(library_workspace_bytes(args), 0u);
  }
  for (const DType type : {DType::f32, DType::f64}) {
    args.dtype = type;
    EXPECT_FALSE(dnn_call(args));
    EXPECT_EQ(library_workspace_bytes(args), 0u);
  }
}

// From what the forward gave: one call.
TEST(DnnProblem, AttentionBackward) {
  AttentionGradArgs args = gradient_of(attention());
  args.dy_strides[0] = 1024;
  const DnnCall call = only(args);
  const auto& p = std::get<AttentionProblem>(call.problem);
  EXPECT_TRUE(p.backward);
  EXPECT_EQ(p.y.strides, (DnnSizes{576, 192, 24, 1}));
  EXPECT_EQ(p.dy.strides, (DnnSizes{1024, 192, 24, 1}));
  EXPECT_EQ(p.log_sum_exp.dims, (DnnSizes{2, 3, 8, 1}));
  EXPECT_EQ(place(call, 'q'), memory);
  EXPECT_EQ(place(call, 'y'), memory + 48);
  EXPECT_EQ(place(call, 'l'), memory + 144);
  EXPECT_EQ(place(call, 'r'), memory + 1024) << "sums of rows, 192 bytes";
  EXPECT_EQ(call.workspace, memory + 1280);
  EXPECT_EQ(call.workspace_bytes, (std::size_t{1} << 20) - 256);
  EXPECT_EQ(place(call, 'Y'), memory + 80);
  EXPECT_EQ(place(call, 'Q'), memory + 96);
  EXPECT_EQ(place(call, 'K'), memory + 112);
  EXPECT_EQ(place(call, 'V'), memory + 128);
  EXPECT_TRUE(aligned(call));
}

// Of a query, key and value beside each other, and of gradients that are rows of another width.
TEST(DnnProblem, AttentionOfRowsOfALargerTensor) {
  const AttentionGradArgs dense = gradient_of(attention());
  AttentionGradArgs args = dense;
  args.forward.q_strides[2] = 40;
  args.dq_strides[2] = 48;
  args.dk_strides[0] = 1024;
  args.dv_strides[1] = 2048;
  const auto p = problem<AttentionProblem>(args);
  EXPECT_EQ(p.q.strides[2], 40);
  EXPECT_EQ(p.dq.strides, (DnnSizes{192, 64, 48, 1}));
  EXPECT_EQ(p.dk.strides, (DnnSizes{1024, 128, 8, 1}));
  EXPECT_EQ(p.dv.strides, (DnnSizes{1152, 2048, 24, 1}));
  EXPECT_EQ(p.dy.strides, (DnnSizes{576, 192, 24, 1}));
  args.forward.q_strides[2] = 8;
  EXPECT_NE(key_of(*dnn_call(args)), key_of(*dnn_call(dense))) << "told apart by the results' strides";
  args.dv_strides[3] = 2;
  EXPECT_FALSE(dnn_call(args)) << "columns apart";
  args.dv_strides[3] = 1;
  args.dy_strides[3] = 2;
  EXPECT_FALSE(dnn_call(args));
}

TEST(DnnProblem, AttentionsThatStayOurs) {
  const auto stays_ours = [](const auto& change) {
    AttentionArgs args = attention();
    change(args);
    return !dnn_call(args) && !dnn_call(gradient_of(args));
  };
  EXPECT_FALSE(stays_ours([](AttentionArgs&) {}));
  EXPECT_TRUE(stays_ours([](AttentionArgs& a) { a.dtype = DType::f32; }));
  EXPECT_TRUE(stays_ours([](AttentionArgs& a) { a.k_strides[3] = 16; })) << "columns apart";
  EXPECT_TRUE(stays_ours([](AttentionArgs& a) { a.workspace_bytes = 128; }));
  AttentionArgs large = attention();
  large.rows = large.keys = 16384;
  EXPECT_GT(library_workspace_bytes(large), 0u);
  EXPECT_EQ(library_workspace_bytes(gradient_of(large)), 0u) << "scores of 3 GiB";
}

}  // namespace
}  // namespace gradloom::kernels::gpu
