// Modules through the CUDA plugin's own code, over the strict driver: a loop's memory is the device's, and its work is in the default stream.
#include <algorithm>

#include "tests/app/module_on_device.h"
#include "tests/app/strict_cuda.h"

namespace gradloom {
namespace {

TEST(StrictCudaModules, GradientsArePyTorchs) {
  const StrictCuda strict;
  for (const char* const name : {"mlp", "cnn-digits"}) expect_module_on(kStrictDevice, name, {}, 1e-3);
  EXPECT_EQ(strict.complaints(), "");
  EXPECT_EQ(strict.left(), "");
  EXPECT_GT(strict.counts().work, 100);
}

// A device, and modules of a folder with loops in one stream of the program.
class StrictCudaStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = open_device(kStrictDevice);
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(device).value();
  }
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(strict_.complaints(), "");
  }
  static std::unique_ptr<Opened> open(const char* name) {
    return open_folder(name, {"--device", kStrictDevice});
  }
  // What a loop's calls leave that are not recorded.
  Loop called(Opened& o, Loop with) {
    DeviceLoop loop(*o.module, std::move(with), *device_);
    EXPECT_TRUE(loop.forward().ok());
    EXPECT_TRUE(loop.backward().ok());
    return std::move(loop.loop);
  }
  static void expect_same(const Loop& got, const Loop& want, const std::string& what) {
    expect_bits(got.outputs, want.outputs, what + ", output");
    expect_bits(got.input_gradients, want.input_gradients, what + ", input gradient");
    expect_bits(got.parameter_gradients, want.parameter_gradients, what + ", gradient");
  }

  const StrictCuda strict_;
  std::unique_ptr<Device> device_;
};

// Calls are ordered with the stream that they name, whichever had the module before.
TEST_F(StrictCudaStreams, CallsComeInStreamsOfTheProgram) {
  const auto o = open("cnn-digits");
  ASSERT_NE(o, nullptr);
  const Loop want = called(*o, o->loop());
  const CallersStream first(strict_), second(strict_);
  DeviceLoop one(*o->module, o->loop(), *device_, first.get()),
      two(*o->module, o->loop(), *device_, second.get());
  for (DeviceLoop* const loop : {&one, &two}) {
    ASSERT_TRUE(loop->place().ok());
    ASSERT_TRUE(loop->queue_forward().ok());
  }
  for (DeviceLoop* const loop : {&two, &one}) {
    ASSERT_TRUE(loop->queue_backward().ok());
    ASSERT_TRUE(loop->get_results().ok());
    expect_same(loop->loop, want, loop == &one ? "first" : "second");
  }
}

TEST_F(StrictCudaStreams, AModuleClosesWhileItsWorkIsQueued) {
  auto o = open("cnn-digits");
  ASSERT_NE(o, nullptr);
  const Loop want = called(*o, o->loop());
  const CallersStream stream(strict_);
  DeviceLoop loop(*o->module, o->loop(), *device_, stream.get());
  ASSERT_TRUE(loop.place().ok());
  ASSERT_TRUE(loop.queue_forward().ok());
  ASSERT_TRUE(loop.queue_backward().ok());
  o->module.reset();
  ASSERT_TRUE(loop.get_results().ok());
  expect_bits(loop.loop.parameter_gradients, want.parameter_gradients, "gradient");
}

// As torch.cuda.graph does with a step of a training loop: calls, then a recording of them, which is replayed on other inputs.
TEST_F(StrictCudaStreams, CallsAreRecordedAndReplayed) {
  for (const char* const name : {"mlp", "cnn-digits"}) {
    SCOPED_TRACE(name);
    const auto o = open(name);
    ASSERT_NE(o, nullptr);
    CallersStream stream(strict_);
    DeviceLoop loop(*o->module, o->loop(), *device_, stream.get());
    ASSERT_TRUE(loop.forward().ok());
    ASSERT_TRUE(loop.backward().ok());
    void* const program = stream.record([&]() -> Status {
      TRY(loop.queue_forward());
      return loop.queue_backward();
    });
    for (const float factor : {-0.5f, 1.0f}) {
      Loop with = o->loop();
      for (Tensor& input : with.inputs) {
        input = Loop::copy_of(input);
        if (input.dtype() != DType::f32) continue;
        auto* const x = reinterpret_cast<float*>(input.mutable_data());
        std::for_each(x, x + input.count(), [&](float& element) { element *= factor; });
      }
      const Loop want = called(*o, std::move(with));
      ASSERT_TRUE(loop.replace_inputs(want.inputs).ok());
      stream.replay(program);
      ASSERT_TRUE(loop.get_results().ok());
      expect_same(loop.loop, want, "inputs times " + std::to_string(factor));
    }
  }
}

// Each replay of a forward draws what the calls behind the recorded one would, and its backward the same, however they are recorded.
TEST_F(StrictCudaStreams, ReplaysDrawOtherNumbers) {
  const auto o = open("bert-tiny");
  ASSERT_NE(o, nullptr);
  std::vector<Loop> want;
  for (std::uint64_t step = 0; step < 3; ++step) {
    Loop with = o->loop();
    with.step += step;
    want.push_back(called(*o, std::move(with)));
  }
  ASSERT_FALSE(bit_equal(want[0].outputs[0], want[1].outputs[0])) << "nothing is drawn";
  CallersStream stream(strict_);
  DeviceLoop loop(*o->module, o->loop(), *device_, stream.get());
  ASSERT_TRUE(loop.forward().ok());
  expect_bits(loop.loop.outputs, want[0].outputs, "a call");
  ASSERT_TRUE(loop.backward().ok());
  void* const forward = stream.record([&] { return loop.queue_forward(); });
  void* const backward = stream.record([&] { return loop.queue_backward(); });
  for (std::size_t replay = 1; replay < want.size(); ++replay) {
    stream.replay(forward);
    (void)called(*o, o->loop());  // draws for itself
    stream.replay(backward);
    ASSERT_TRUE(loop.get_results().ok());
    expect_same(loop.loop, want[replay], "replay " + std::to_string(replay));
  }
  // A forward that was called, whose backward is recorded.
  ASSERT_TRUE(loop.queue_forward().ok());
  void* const alone = stream.record([&] { return loop.queue_backward(); });
  for (int replay = 0; replay < 2; ++replay) {
    stream.replay(alone);
    ASSERT_TRUE(loop.get_results().ok());
    expect_same(loop.loop, want[0], "backward alone");
    ASSERT_TRUE(loop.queue_forward().ok()) << "which it has used up";
  }
}

}  // namespace
}  // namespace gradloom
