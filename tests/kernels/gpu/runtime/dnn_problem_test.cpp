// Convolutions as tensors of a graph library: dims, strides, and which address is which.
#include "kernels/gpu/runtime/dnn_problem.h"

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

TEST(DnnProblem, TwoSpatialDims) {
  const ConvolutionProblem p = convolution_problem(arguments(ConvolutionKind::backward_data));
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
  const ConvolutionProblem p = convolution_problem(args);
  EXPECT_EQ(p.x.dims, (DnnSizes{2, 6, 7, 9, 8}));
  EXPECT_EQ(p.x.strides, (DnnSizes{3024, 504, 72, 8, 1}));
  EXPECT_EQ(p.w.dims, (DnnSizes{10, 3, 3, 3, 2}));
  EXPECT_EQ(p.stride, (DnnSizes{2, 2, 1}));
  ConvolutionArgs padded = arguments(ConvolutionKind::forward);
  padded.shape.pad_front = padded.shape.pad_back = 1;
  padded.shape.t = 3;
  EXPECT_EQ(convolution_problem(padded).pad_begin, (DnnSizes{1, 1, 0})) << "a depth of 1 that is padded";
}

TEST(DnnProblem, EveryKindHasItsOwnOrderOfAddresses) {
  alignas(16) char a[16], b[16], out[16];
  const auto at = [&](ConvolutionKind kind) {
    ConvolutionArgs args = arguments(kind);
    args.a = a;
    args.b = b;
    args.out = out;
    return tensors_of(args);
  };
  using Tensors = std::array<void*, 3>;
  EXPECT_EQ(at(ConvolutionKind::forward), (Tensors{a, b, out}));
  EXPECT_EQ(at(ConvolutionKind::backward_data), (Tensors{out, b, a}));
  EXPECT_EQ(at(ConvolutionKind::backward_weights), (Tensors{b, out, a}));
  EXPECT_TRUE(aligned({a, b, out}, 16));
  EXPECT_FALSE(aligned({a, b + 8, out}, 16));
  EXPECT_FALSE(aligned({a, nullptr, out}, 16));
}

TEST(DnnProblem, TheKeyTellsProblemsApart) {
  const ConvolutionArgs args = arguments(ConvolutionKind::forward);
  EXPECT_EQ(key_of(args), key_of(args));
  EXPECT_NE(key_of(args), key_of(arguments(ConvolutionKind::backward_data)));
  const auto differs = [&](const auto& change) {
    ConvolutionArgs other = args;
    change(other);
    return key_of(other) != key_of(args);
  };
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { x.workspace_bytes = 64; }));
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { x.shape.dtype = DType::bf16; }));
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { ++x.shape.groups; }));
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { ++x.shape.pad_right; }));
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { ++x.shape.pad_back; }));
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { ++x.shape.dilation_d; }));
  EXPECT_TRUE(differs([](ConvolutionArgs& x) { ++x.shape.n; }));
}

}  // namespace
}  // namespace gradloom::kernels::gpu
