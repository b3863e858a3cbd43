// Who asks rocBLAS, with a library and a HIP runtime that count and fail (fake_rocblas.cpp, fake_amdhip64.cpp).
#include "engine/device/gpu/runtime/gemm_library.h"

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
  args.a = args.b = args.c = somewhere;
  return args;
}

class RocblasCalls : public ::testing::Test {
 protected:
  void SetUp() override { gemm_ = open_gemm_library(&why_); }
  Answer run(const GemmArgs& args) {
    std::string used;
    const Answer answer = run_gemm(*gemm_, args, nullptr, &used);
    EXPECT_EQ(used, "rocblas 5.0");
    return answer;
  }
  const test::FakeLibrary runtime_{"libamdhip64.so.7"}, library_{"librocblas.so.5"};
  Answer why_;
  GemmLibraryPtr gemm_;
};

// A step that is recorded may not take memory: the handle has workspace of ours before the first product, and gets none after it.
TEST_F(RocblasCalls, HasItsWorkspaceBeforeTheFirstProduct) {
  ASSERT_NE(gemm_, nullptr) << why_.text;
  EXPECT_EQ(library_.function<std::size_t()>("fake_workspace")(), std::size_t{32} << 20);
  const int taken = runtime_.count("hipMalloc"), given = library_.count("workspace");
  EXPECT_EQ(taken, 1);
  const int products = library_.count("gemm");
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    const Answer answer = run(product(type));
    EXPECT_TRUE(answer.taken) << answer.text;
  }
  EXPECT_EQ(library_.count("gemm"), products + 4);
  EXPECT_EQ(runtime_.count("hipMalloc"), taken);
  EXPECT_EQ(library_.count("workspace"), given);
  const int released = runtime_.count("hipFree");
  gemm_.reset();
  EXPECT_EQ(runtime_.count("hipFree"), released + 1);
}

TEST_F(RocblasCalls, WhatItHasNotIsRefusedAndWhatFailsHasFailed) {
  ASSERT_NE(gemm_, nullptr) << why_.text;
  GemmArgs args = product(DType::f32);
  args.activation = Activation::relu;
  Answer answer = run(args);
  EXPECT_FALSE(answer.taken || answer.failed);
  EXPECT_EQ(answer.text, "it has no epilogues");
  library_.fail("gemm", 1, 6);
  answer = run(product(DType::f32));
  EXPECT_FALSE(answer.taken);
  EXPECT_TRUE(answer.failed);
  EXPECT_EQ(answer.text, "rocblas_gemm_strided_batched_ex: status 6");
}

// No library without its workspace: it would take memory in a step.
TEST_F(RocblasCalls, IsNotOpenedWithoutWorkspace) {
  const int destroyed = library_.count("destroy");
  runtime_.fail("hipMalloc", 1, 2);
  Answer why;
  EXPECT_EQ(open_gemm_library(&why), nullptr);
  EXPECT_TRUE(why.failed);
  EXPECT_EQ(why.text, "no memory for its workspace: hipErrorOutOfMemory");
  library_.fail("workspace", 1, 7);
  EXPECT_EQ(open_gemm_library(&why), nullptr);
  EXPECT_EQ(why.text, "rocblas_set_workspace: status 7");
  EXPECT_EQ(library_.count("destroy"), destroyed + 1);
}

}  // namespace
}  // namespace gradloom::kernels::gpu
