// Who asks cuDNN to compute, with a library that counts and fails (fake_cudnn.cpp): what it did is told in its own words.
#include "engine/device/gpu/runtime/dnn_library.h"

#include "engine/device/gpu/runtime/cudnn_api.h"
#include "tests/engine/device/gpu/runtime/fake_toolkit.h"

namespace gradloom::kernels::gpu {
namespace {

alignas(256) char somewhere[256];  // addresses: nothing is read

DnnCalls pooling(std::int64_t channels) {
  DnnCall call;
  const DnnTensor x = dense_tensor(1, DType::f32, {2, channels, 8, 8}),
                  y = dense_tensor(2, DType::f32, {2, channels, 4, 4});
  call.problem = PoolProblem{PoolMode::max, false, x, y, {2, 2}, {2, 2}, {0, 0}, {0, 0}};
  call.places = {{1, somewhere}, {2, somewhere}};
  call.workspace = somewhere;
  call.workspace_bytes = 64;
  return {call};
}

class Cudnn : public ::testing::Test {
 protected:
  void SetUp() override {
    Answer why;
    dnn_ = open_dnn_library(90, &why);
    ASSERT_NE(dnn_, nullptr) << why.text;
    library_.function<void(std::int64_t)>("fake_engine_workspace")(0);
  }
  Answer run(const DnnCalls& calls, bool capturing = false) {
    return run_dnn(*dnn_, calls, nullptr, capturing);
  }
  void fail_finalize(int type, int status) {
    library_.fail(("finalize " + std::to_string(type)).c_str(), 1, status);
  }
  const test::FakeLibrary library_{"libcudnn.so.9"};
  DnnLibraryPtr dnn_;
};

TEST_F(Cudnn, TellsTheEngine) {
  const Answer answer = run(pooling(3));
  EXPECT_TRUE(answer.taken);
  EXPECT_EQ(answer.text, "engine 17");
  EXPECT_EQ(run(pooling(3), true).text, "engine 17") << "known when the step is recorded";
}

TEST_F(Cudnn, WhatItHasNotIsRefused) {
  Answer answer = run({});
  EXPECT_FALSE(answer.taken || answer.failed);
  library_.function<void(std::int64_t)>("fake_engine_workspace")(65);
  answer = run(pooling(4));
  EXPECT_FALSE(answer.taken || answer.failed);
  EXPECT_EQ(answer.text, "no engine: 2 want more than 64 bytes of workspace");  // one by each heuristic
  fail_finalize(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 3000);
  answer = run(pooling(5));
  EXPECT_FALSE(answer.taken || answer.failed);
  EXPECT_EQ(answer.text, "its graph: CUDNN_STATUS_NOT_SUPPORTED: on demand");
}

TEST_F(Cudnn, AMistakeIsAFailure) {
  fail_finalize(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 2000);
  Answer answer = run(pooling(6));
  EXPECT_FALSE(answer.taken);
  EXPECT_TRUE(answer.failed);
  EXPECT_EQ(answer.text, "its graph: CUDNN_STATUS_BAD_PARAM: on demand") << "of the part that was wrong";
  fail_finalize(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5000);
  EXPECT_TRUE(run(pooling(7)).taken) << "the other heuristic's engine";
  answer = run(pooling(8), true);
  EXPECT_TRUE(answer.failed);
  EXPECT_EQ(answer.text, "first seen while the step is recorded");
}

TEST_F(Cudnn, WhatFailsOnceIsNotTriedAgain) {
  EXPECT_TRUE(run(pooling(9)).taken);
  library_.fail("execute", 1, 5000);
  const Answer answer = run(pooling(9));
  EXPECT_FALSE(answer.taken);
  EXPECT_TRUE(answer.failed);
  EXPECT_EQ(answer.text, "cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED: on demand");
  const int executed = library_.count("execute");
  EXPECT_EQ(run(pooling(9)).text, answer.text);
  EXPECT_EQ(library_.count("execute"), executed);
}

TEST(CudnnMissing, SaysWhetherItIsWanted) {
  const test::FakeLibrary library("libcudnn.so.9");
  Answer why;
  setenv("GRADLOOM_CUDNN", "0", 1);
  EXPECT_EQ(open_dnn_library(90, &why), nullptr);
  EXPECT_FALSE(why.failed) << "it was left out on purpose";
  unsetenv("GRADLOOM_CUDNN");
  library.fail("create handle", 1, 5000);
  EXPECT_EQ(open_dnn_library(90, &why), nullptr);
  EXPECT_TRUE(why.failed);
  EXPECT_EQ(why.text, "cudnnCreate: CUDNN_STATUS_EXECUTION_FAILED: on demand");
}

}  // namespace
}  // namespace gradloom::kernels::gpu
