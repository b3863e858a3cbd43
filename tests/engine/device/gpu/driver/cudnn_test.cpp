// Who asks cuDNN to compute (runtime/cudnn*.cpp), with the stand-in that does: numbers, what is said of what was done, each call that fails. And
// the stand-in's rules, each broken on purpose. Convolutions, poolings, normalizations and attention against the CPU's are the operators'
// samples (tests/app/strict_cuda_training_test.cpp).
#include <cmath>
#include <functional>

#include "engine/device/gpu/runtime/cudnn_api.h"
#include "engine/device/gpu/runtime/dnn_library.h"
#include "tests/engine/device/gpu/driver/library_fixture.h"

namespace gradloom::strict {
namespace {

using namespace kernels;
using namespace kernels::gpu;

class Cudnn : public LibraryFixture {
 protected:
  void SetUp() override {
    LibraryFixture::SetUp();
    Answer why;
    dnn_ = open_dnn_library(90, &why);
    ASSERT_NE(dnn_, nullptr) << why.text;
    x_ = device(std::vector<float>(4096, 1));
    y_ = device(std::vector<float>(4096, 0));
    w_ = device(std::vector<float>(4096, 0.5));
    workspace_ = device(std::vector<char>(4096));
  }
  void TearDown() override {
    dnn_.reset();
    LibraryFixture::TearDown();
  }
  Answer run(const std::optional<DnnCall>& call, bool capturing = false) {
    return run_dnn(*dnn_, call, stream_, capturing);
  }
  // Of windows of 2 x 2.
  DnnCall pooling(std::int64_t channels) const {
    DnnCall call;
    const DnnTensor x = dense_tensor(1, DType::f32, {2, channels, 8, 8}),
                    y = dense_tensor(2, DType::f32, {2, channels, 4, 4});
    call.problem = PoolProblem{PoolMode::max, false, x, y, {2, 2}, {2, 2}, {0, 0}, {0, 0}};
    call.places = {{1, x_}, {2, y_}};
    return call;
  }
  // 3 x 3 with a rim of one.
  DnnCall convolution(std::size_t workspace_bytes) const {
    DnnCall call;
    call.problem = ConvolutionProblem{ConvolutionKind::forward,
                                      dense_tensor('x', DType::f32, {1, 2, 4, 4}),
                                      dense_tensor('w', DType::f32, {3, 2, 3, 3}),
                                      dense_tensor('y', DType::f32, {1, 3, 4, 4}),
                                      {1, 1},
                                      {1, 1},
                                      {1, 1},
                                      {1, 1}};
    call.places = {{'x', x_}, {'w', w_}, {'y', y_}};
    call.workspace = workspace_;
    call.workspace_bytes = workspace_bytes;
    return call;
  }
  DnnLibraryPtr dnn_;
  float *x_ = nullptr, *y_ = nullptr, *w_ = nullptr;
  char* workspace_ = nullptr;
};

// Engines that are not deterministic or lose digits are suggested first.
TEST_F(Cudnn, TellsTheEngineAndComputes) {
  EXPECT_EQ(run(convolution(512)).text, "engine 17");
  const auto y = host(y_, 48);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t row = i / 4 % 4, column = i % 4;
    const auto rim = [](std::size_t at) { return at == 0 || at == 3 ? 2 : 3; };
    EXPECT_EQ(y[i], float(rim(row) * rim(column))) << i;  // of 2 channels of halves
  }
  EXPECT_EQ(run(convolution(511)).text, "engine 1") << "the other heuristic's, which wants no workspace";
  EXPECT_EQ(run(convolution(512), true).text, "engine 17") << "known when the step is recorded";
  const Answer answer = run(pooling(8), true);
  EXPECT_TRUE(answer.failed);
  EXPECT_EQ(answer.text, "first seen while the step is recorded");
}

TEST_F(Cudnn, WhatItHasNotIsRefused) {
  Answer answer = run(std::nullopt);
  EXPECT_FALSE(answer.taken || answer.failed);
  DnnCall call = pooling(4);
  call.places[0].address = x_ + 1;
  answer = run(call);
  EXPECT_FALSE(answer.taken || answer.failed);
  EXPECT_EQ(answer.text, "an address is not at a boundary of 16 bytes");
  strict_fail("cudnnBackendFinalize:5:3000");  // two tensors, a window and the operation before it
  answer = run(pooling(5));
  EXPECT_FALSE(answer.taken || answer.failed);
  EXPECT_EQ(answer.text, "its graph: CUDNN_STATUS_NOT_SUPPORTED");
}

TEST_F(Cudnn, WhatFailsOnceIsNotTriedAgain) {
  for (const char* fault : {"cudnnBackendExecute:1", "launch:1"}) {
    const DnnCall call = fault[0] == 'l' ? pooling(9) : pooling(10);
    EXPECT_TRUE(run(call).taken);
    strict_fail(fault);
    const Answer answer = run(call);
    EXPECT_FALSE(answer.taken);
    EXPECT_TRUE(answer.failed);
    EXPECT_EQ(answer.text, "cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED") << fault;
    const std::int64_t executed = driver().calls_by_name["cudnnBackendExecute"];
    EXPECT_EQ(run(call).text, answer.text);
    EXPECT_EQ(driver().calls_by_name["cudnnBackendExecute"], executed);
  }
}

// Every call of a first run, one after the other: another engine, or a failure in the library's words; never a wrong number.
TEST_F(Cudnn, EachCallFailsOnce) {
  strict_fail("");
  ASSERT_TRUE(run(convolution(512)).taken);
  const std::map<std::string, std::int64_t> calls = driver().calls_by_name;
  EXPECT_GT(calls.size(), 5u);
  int failed = 0;
  for (const auto& [name, count] : calls) {
    for (std::int64_t which = 1; which <= count; ++which) {
      const std::string fault = name + ":" + std::to_string(which);
      dnn_.reset();
      Answer why;
      dnn_ = open_dnn_library(90, &why);
      ASSERT_NE(dnn_, nullptr);
      ASSERT_EQ(cudaMemsetAsync(y_, 0, 48 * sizeof(float), stream_), cudaSuccess);
      strict_fail(fault.c_str());
      const Answer answer = run(convolution(512));
      EXPECT_NE(answer.taken, answer.failed) << fault << ": " << answer.text;
      failed += answer.taken ? 0 : 1;
      if (answer.taken) {
        EXPECT_TRUE(answer.text == "engine 17" || answer.text == "engine 1" ||
                    answer.text == "engine -1")  // unreadable
            << fault << ": " << answer.text;
      }
      EXPECT_EQ(host(y_, 1)[0], answer.taken ? 4.0f : 0.0f) << fault;
      EXPECT_EQ(said(), "") << fault;
    }
  }
  EXPECT_GT(failed, 40);
}

TEST_F(Cudnn, WithoutAHandleItSaysWhetherItIsWanted) {
  Answer why;
  setenv("GRADLOOM_CUDNN", "0", 1);
  EXPECT_EQ(open_dnn_library(90, &why), nullptr);
  EXPECT_FALSE(why.failed) << "it was left out on purpose";
  unsetenv("GRADLOOM_CUDNN");
  strict_fail("cudnnCreate:1");
  EXPECT_EQ(open_dnn_library(90, &why), nullptr);
  EXPECT_TRUE(why.failed);
  EXPECT_EQ(why.text, "cudnnCreate: CUDNN_STATUS_EXECUTION_FAILED");
}

// ---- rules ------------------------------------------------------------------------------------------------------------------------

class CudnnRules : public Cudnn {
 protected:
  // What the plugin would never ask: its problem is planned, and the answer has these words.
  void expect_wrong(const DnnCall& call, const std::string& words) {
    const Answer answer = run(call);
    EXPECT_TRUE(answer.failed) << answer.text;
    EXPECT_NE(answer.text.find(words), std::string::npos) << answer.text;
    expect_said(words);
  }
};

TEST_F(CudnnRules, WindowsMakeTheSizesOfTheirResults) {
  DnnCall call = pooling(1);
  std::get<PoolProblem>(call.problem).y = dense_tensor(2, DType::f32, {2, 1, 5, 4});
  expect_wrong(call, "a window makes 4 of dim 2 and not 5");
  call = convolution(512);
  std::get<ConvolutionProblem>(call.problem).dilation = {2, 1};
  expect_wrong(call, "a window makes 2 of dim 2 and not 4");
  std::get<ConvolutionProblem>(call.problem).dilation = {0, 1};
  expect_wrong(call, "a stride or dilation of 0");
  call = convolution(512);
  std::get<ConvolutionProblem>(call.problem).x = dense_tensor('x', DType::f32, {1, 3, 4, 4});
  expect_wrong(call, "images or channels that do not fit the weight");
}

TEST_F(CudnnRules, TensorsHaveDimsStridesAndIdsOfTheirOwn) {
  DnnCall call = pooling(1);
  std::get<PoolProblem>(call.problem).x.strides[3] = 0;
  expect_wrong(call, "a dim or a stride is not positive");
  call = pooling(1);
  std::get<PoolProblem>(call.problem).x.strides.pop_back();
  expect_wrong(call, "a tensor of 4 dims and 3 strides");
  call = pooling(1);
  std::get<PoolProblem>(call.problem).y.id = 1;
  expect_wrong(call, "two tensors with the id 1");
}

TEST_F(CudnnRules, EveryTensorHasMemoryOfTheDevice) {
  DnnCall call = pooling(1);
  call.places.pop_back();
  expect_wrong(call, "tensor 2 has no address");
  alignas(16) static float pageable[256];
  call = pooling(2);
  call.places[0].address = pageable;
  EXPECT_TRUE(run(call).failed);
  expect_said("tensor 1: it is not memory of the device");
  call = pooling(3);
  call.places[0].address = x_ + 4096 - 16;
  EXPECT_TRUE(run(call).failed);
  expect_said("tensor 1: 1536 bytes at 16320 of device memory of 16384 bytes");
  call = convolution(512);
  call.workspace = workspace_ + 4;
  EXPECT_TRUE(run(call).failed);
  expect_said("the workspace does not begin at a boundary of 16 bytes");
}

TEST_F(CudnnRules, DescriptorsAreFinalizedOnceAndBeforeTheyAreUsed) {
  const auto call = [](const char* name, auto* type) {
    return function<std::remove_pointer_t<decltype(type)>>("libcudnn.so.9", name);
  };
  const auto create = call("cudnnBackendCreateDescriptor", static_cast<CudnnCreateDescriptor*>(nullptr));
  const auto destroy = call("cudnnBackendDestroyDescriptor", static_cast<CudnnDestroyDescriptor*>(nullptr));
  const auto finalize = call("cudnnBackendFinalize", static_cast<CudnnDestroyDescriptor*>(nullptr));
  const auto set = call("cudnnBackendSetAttribute", static_cast<CudnnSetAttribute*>(nullptr));
  cudnnBackendDescriptor_t how = nullptr, operation = nullptr;
  ASSERT_EQ(create(CUDNN_BACKEND_MATMUL_DESCRIPTOR, &how), 0);
  ASSERT_EQ(create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, &operation), 0);
  EXPECT_NE(set(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how), 0);
  expect_said("a part that is not finalized");
  EXPECT_NE(finalize(how), 0);
  expect_said("attribute 1500 is missing");
  const std::int64_t wrong = 0;
  EXPECT_EQ(set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_INT64, 1, &wrong), 0);
  EXPECT_NE(finalize(how), 0);
  expect_said("attribute 1500 is of type 3 and not 1");
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  EXPECT_EQ(set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type), 0);
  EXPECT_EQ(finalize(how), 0);
  EXPECT_NE(finalize(how), 0);
  expect_said("the descriptor is finalized");
  EXPECT_NE(set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type), 0);
  expect_said("the descriptor is finalized");
  EXPECT_EQ(destroy(how), 0);
  EXPECT_NE(destroy(how), 0);
  expect_said("no such handle among the cudnn descriptors");
  EXPECT_EQ(destroy(operation), 0);
}

}  // namespace
}  // namespace gradloom::strict
