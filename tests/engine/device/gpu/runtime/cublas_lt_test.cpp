// Who asks cuBLASLt, with a library that counts and fails (fake_cublas_lt.cpp): what it did is told in its own words.
#include "engine/device/gpu/runtime/gemm_library.h"

#include <library_types.h>

#include "tests/engine/device/gpu/runtime/fake_toolkit.h"

namespace gradloom::kernels::gpu {
namespace {

alignas(256) char somewhere[256];  // addresses: nothing is read

// [64, 64] of a product of depth 96.
GemmArgs product(DType type) {
  GemmArgs args{};
  args.dtype = type;
  args.m = args.n = 64;
  args.k = 96;
  args.a_row = 96;
  args.b_row = args.c_row = 64;
  args.a_col = args.b_col = args.c_col = 1;
  args.alpha = 1;
  args.a = args.b = args.c = args.workspace = somewhere;
  args.workspace_bytes = 1 << 20;
  return args;
}

class CublasLt : public ::testing::Test {
 protected:
  void SetUp() override {
    gemm_ = open_gemm_library(&why_);
    ASSERT_NE(gemm_, nullptr) << why_.text;
  }
  Answer run(const GemmArgs& args) { return run_gemm(*gemm_, args, nullptr); }
  const test::FakeLibrary library_{"libcublasLt.so.13"};
  Answer why_;
  GemmLibraryPtr gemm_;
};

TEST_F(CublasLt, TellsTheAlgorithm) {
  const Answer answer = run(product(DType::f32));
  EXPECT_TRUE(answer.taken);
  EXPECT_FALSE(answer.failed);
  EXPECT_EQ(answer.text, "algorithm 66, tile 20, stages 36");
  EXPECT_EQ(library_.function<std::size_t()>("fake_workspace")(), std::size_t{1} << 20);
  const int asked = library_.count("heuristic");
  EXPECT_EQ(run(product(DType::f32)).text, answer.text) << "chosen once";
  EXPECT_EQ(library_.count("heuristic"), asked);
}

TEST_F(CublasLt, WhatItHasNotIsRefusedAndWhatFailsHasFailed) {
  GemmArgs args = product(DType::f32);
  args.activation = Activation::gelu_erf;
  Answer answer = run(args);
  EXPECT_FALSE(answer.taken || answer.failed);
  EXPECT_EQ(answer.text, "it has no such epilogue");
  library_.fail("heuristic", 1, 15);
  answer = run(product(DType::f64));
  EXPECT_FALSE(answer.taken || answer.failed);
  EXPECT_EQ(answer.text, "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_NOT_SUPPORTED");
  library_.fail("heuristic", 1, 14);
  answer = run(product(DType::f16));
  EXPECT_FALSE(answer.taken);
  EXPECT_TRUE(answer.failed);
  EXPECT_EQ(answer.text, "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_INTERNAL_ERROR");
}

TEST_F(CublasLt, AProductThatFailsIsToldEachTime) {
  EXPECT_TRUE(run(product(DType::bf16)).taken);
  library_.fail("matmul", 1, 14);
  const Answer answer = run(product(DType::bf16));
  EXPECT_FALSE(answer.taken);
  EXPECT_TRUE(answer.failed);
  EXPECT_EQ(answer.text, "cublasLtMatmul: CUBLAS_STATUS_INTERNAL_ERROR");
  EXPECT_TRUE(run(product(DType::bf16)).taken);
  EXPECT_EQ(library_.count("layout create"), library_.count("layout destroy"));
  EXPECT_EQ(library_.count("desc create"), library_.count("desc destroy"));
}

TEST_F(CublasLt, WideResultsAreF32) {
  GemmArgs args = product(DType::bf16);
  const auto d_type = library_.function<int()>("fake_d_type");
  args.k = args.a_row = 160;
  EXPECT_TRUE(run(args).taken);
  EXPECT_EQ(d_type(), CUDA_R_16BF);
  args.wide_c = true;
  EXPECT_TRUE(run(args).taken);
  EXPECT_EQ(d_type(), CUDA_R_32F);
  args.bias = somewhere;
  EXPECT_FALSE(run(args).taken) << "whose epilogue would read a bias of another type";
}

TEST(CublasLtMissing, SaysWhatFailed) {
  const test::FakeLibrary library("libcublasLt.so.13");
  library.fail("create", 1, 14);
  Answer why;
  EXPECT_EQ(open_gemm_library(&why), nullptr);
  EXPECT_TRUE(why.failed);
  EXPECT_EQ(why.text, "cublasLtCreate: CUBLAS_STATUS_INTERNAL_ERROR");
}

}  // namespace
}  // namespace gradloom::kernels::gpu
