// Modules on a device whose memory the test brings, as a training loop on a GPU does: against PyTorch's gradients of the folders.
#pragma once

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "tests/app/module_loop.h"

namespace gradloom {

// A loop whose tensors are copied to the device's memory, and results back. Its own work is in a stream of it, which calls are ordered
// with; null: the default one.
class DeviceLoop {
 public:
  DeviceLoop(ModelModule& module, Loop on_host, Device& device, void* stream = nullptr)
      : loop(std::move(on_host)), module_(module), device_(device), stream_(stream) {}
  ~DeviceLoop() {
    for (void* const memory : taken_) device_.release(memory);
  }
  DeviceLoop(const DeviceLoop&) = delete;
  DeviceLoop& operator=(const DeviceLoop&) = delete;

  Status forward(bool no_grad = false) {
    TRY(place(no_grad));
    TRY(queue_forward(no_grad));
    TRY(get(loop.outputs, out_));
    return get(loop.statistics, statistics_);
  }
  // In the arena of a loop of a module like this one.
  Status forward_in(const DeviceLoop& other) {
    arena_ = other.arena_;
    return forward();
  }
  Status backward() {
    TRY(queue_backward());
    TRY(get(loop.input_gradients, input_made_));
    return get(loop.parameter_gradients, made_);
  }

  // The parts of these. The loop's tensors are where calls take them, and the stream knows it:
  Status place(bool no_grad = false) {
    for (auto [to, from] : {std::pair{&in_, &loop.inputs},
                            {&parameters_, &loop.parameters},
                            {&statistics_, &loop.statistics},
                            {&out_, &loop.outputs},
                            {&given_, &loop.output_gradients},
                            {&input_made_, &loop.input_gradients},
                            {&made_, &loop.parameter_gradients}})
      TRY(put(*to, *from));
    if (arena_ == nullptr) arena_ = TRY(take(static_cast<std::size_t>(TRY(module_.arena_bytes(no_grad)))));
    return device_.lead_stream(stream_);
  }
  Status queue_forward(bool no_grad = false) { return module_.forward(call(no_grad)); }
  Status queue_backward() { return module_.backward(call(false)); }
  // Other contents of the inputs, where they are.
  Status replace_inputs(std::vector<Tensor> inputs) {
    loop.inputs = std::move(inputs);
    for (std::size_t i = 0; i < in_.size(); ++i)
      TRY(device_.upload(in_[i], loop.inputs[i].data(), loop.inputs[i].bytes()));
    return device_.lead_stream(stream_);
  }
  // When the stream has done what it has.
  Status get_results() {
    TRY(get(loop.outputs, out_));
    TRY(get(loop.input_gradients, input_made_));
    return get(loop.parameter_gradients, made_);
  }

  Loop loop;

 private:
  Result<void*> take(std::size_t bytes) {
    void* const memory = TRY(device_.allocate(std::max<std::size_t>(bytes, 1)));
    taken_.push_back(memory);
    return memory;
  }
  Status put(std::vector<void*>& to, const std::vector<Tensor>& from) {
    for (const Tensor& t : from) {
      to.push_back(TRY(take(t.bytes())));
      if (t.bytes() > 0) TRY(device_.upload(to.back(), t.data(), t.bytes()));
    }
    return {};
  }
  Status get(std::vector<Tensor>& to, const std::vector<void*>& from) {
    TRY(device_.follow_stream(stream_));
    for (std::size_t i = 0; i < to.size(); ++i)
      if (to[i].bytes() > 0) TRY(device_.download(to[i].mutable_data(), from[i], to[i].bytes()));
    return device_.lead_stream(stream_);
  }
  ModuleCall call(bool no_grad) {
    return {.no_grad = no_grad,
            .inputs = in_.data(),
            .parameters = parameters_.data(),
            .statistics = statistics_.data(),
            .outputs = out_.data(),
            .arena = arena_,
            .seed = loop.seed,
            .step = loop.step,
            .stream = stream_,
            .output_gradients = given_.data(),
            .input_gradients = input_made_.data(),
            .parameter_gradients = made_.data()};
  }

  ModelModule& module_;
  Device& device_;
  void* const stream_;
  std::vector<void*> taken_, in_, parameters_, statistics_, out_, given_, input_made_, made_;
  void* arena_ = nullptr;
};

inline void expect_like(const Tensor& got, const Tensor& want, double bound, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  double largest = 1;
  for (std::int64_t i = 0; i < want.count(); ++i) largest = std::max(largest, std::fabs(want.at(i)));
  for (std::int64_t i = 0; i < want.count(); ++i)
    ASSERT_LE(std::fabs(got.at(i) - want.at(i)), bound * largest) << what << "[" << i << "]";
}

// Two forwards wait for their backwards, which come in the other order; then one that needs none.
inline void expect_module_on(const std::string& id, const std::string& name, const Words& precision,
                             double bound) {
  SCOPED_TRACE(name);
  Words words = precision;
  words.insert(words.end(), {"--device", id});
  const auto o = open_folder(name, words);
  ASSERT_NE(o, nullptr);
  const auto device = open_device(id);
  ASSERT_TRUE(device.ok()) << device.error().message;
  const auto expect_outputs = [&](const Loop& loop) {
    for (std::size_t i = 0; i < std::min(o->references.size(), loop.outputs.size()); ++i)
      expect_like(loop.outputs[i], o->references[i].tensor, bound, "output " + std::to_string(i));
  };
  DeviceLoop one(*o->module, o->loop(), **device), other(*o->module, o->loop(), **device);
  for (DeviceLoop* const loop : {&one, &other}) {
    const Status done = loop->forward();
    ASSERT_TRUE(done.ok()) << done.error().message;
    expect_outputs(loop->loop);
  }
  for (DeviceLoop* const loop : {&other, &one}) {
    const Status done = loop->backward();
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_FALSE(o->gradients.empty());
    for (const NamedTensor& want : o->gradients)
      if (const Tensor* const got = loop->loop.gradient(want.name))
        expect_like(*got, want.tensor, bound, want.name);
  }
  EXPECT_FALSE(one.backward().ok()) << "the forward is used up";
  DeviceLoop alone(*o->module, o->loop(), **device);
  ASSERT_TRUE(alone.forward(true).ok());
  expect_outputs(alone.loop);
  EXPECT_FALSE(alone.backward().ok()) << "nothing was kept";
}

}  // namespace gradloom
