// Adafactor of many tensors over several steps, on the executor against the CPU's.
#include "tests/kernels/adafactor_support.h"
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

using kernels::test::AdafactorCall, kernels::test::AdafactorSettings, kernels::test::AdafactorShape,
    kernels::test::AdafactorState, kernels::test::AdafactorTensors, kernels::test::adafactor_state;

// Memory of the device as AdafactorCall takes it.
template <class T>
struct OnDevice {
  T* at = nullptr;
  T* data() const { return at; }
};

template <class T>
void cpu_step(const AdafactorSettings& s, const std::vector<AdafactorShape>& shapes, std::int64_t step,
              const std::vector<std::vector<Host<T>>>& grads, AdafactorTensors<Host<T>>& now, bool apply) {
  AdafactorCall call(s, cpu_dtype<T>(), shapes);
  for (std::size_t t = 0; t < shapes.size(); ++t) call.add(grads[t], now[t], now[t]);
  OptimizerArgs args = call.args();
  std::vector<std::uint8_t> workspace(kernels::workspace_bytes(Target::cpu, args) + 1);
  const Host<T> scale = Host<T>(0.5);
  args.step = &step;
  args.grad_scale = s.scaled ? &scale : nullptr;
  args.apply = &apply;
  args.workspace = workspace.data();
  cpu().optimizer(args);
}

std::string named(const char* kind, std::size_t t) { return std::string(kind) + " " + std::to_string(t); }

template <class T>
Results gpu_step(const AdafactorSettings& s, const std::vector<AdafactorShape>& shapes, std::int64_t step,
                 const std::vector<std::vector<Host<T>>>& grads, const AdafactorTensors<Host<T>>& now,
                 bool apply, std::size_t offset) {
  return on_device([&](Device& device) {
    AdafactorCall call(s, gpu_dtype<T>(), shapes);
    for (std::size_t t = 0; t < shapes.size(); ++t) {
      const auto memory = [&](const char* kind, const std::vector<Host<T>>& v) {
        return OnDevice<T>{device.inout<T>(named(kind, t), v, offset)};
      };
      AdafactorState<Host<T>> const& from = now[t];
      struct {
        OnDevice<T> param, state1, state2, state3;
      } state{memory("param", from.param), memory("state1", from.state1), memory("state2", from.state2),
              memory("state3", from.state3)};
      call.add(OnDevice<const T>{device.in<T>(grads[t], offset)}, state, state);
    }
    OptimizerArgs args = call.args();
    args.lr = device.in<double>({s.lr});
    args.step = device.in<std::int64_t>({step});
    args.grad_scale = s.scaled ? device.in<T>({Host<T>(0.5)}) : nullptr;
    args.apply = reinterpret_cast<const bool*>(device.in<std::uint8_t>({std::uint8_t(apply)}));
    args.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, args));
    device.run(optimizer, args);
  });
}

// Every step starts from the same state on both sides.
template <class T>
void check(const AdafactorSettings& s, const std::vector<AdafactorShape>& shapes, std::size_t offset = 0,
           bool apply = true) {
  AdafactorTensors<Host<T>> now;
  for (const AdafactorShape& shape : shapes) {
    now.push_back(adafactor_state<Host<T>>(s, shape));
    now.back().param = numbers<T>(shape.elements(), 10 + now.size(), -0.2, 0.2);
    if (apply) now.back().state1.assign(now.back().state1.size(), Host<T>(NAN));  // the first is not read
  }
  for (std::int64_t step = 1; step <= 3; ++step) {
    std::vector<std::vector<Host<T>>> grads;
    for (const AdafactorShape& shape : shapes)
      grads.push_back(numbers<T>(shape.elements(), 100 * std::uint64_t(step) + grads.size(), 0.1, 1));
    const Results gpu = gpu_step<T>(s, shapes, step, grads, now, apply, offset);
    cpu_step<T>(s, shapes, step, grads, now, apply);
    Tolerance close = tolerance<T>({2e-5, 1e-6});
    if (sizeof(T) == 2) close.absolute = 0.05 / 256;  // the update is that of the rounded moments
    const auto compare = [&](const char* kind, auto member) {
      for (std::size_t t = 0; t < shapes.size(); ++t) {
        std::vector<Host<T>>& expected = now[t].*member;
        expect_close(gpu.get<T>(named(kind, t)), widen(expected), close,
                     named(kind, t) + ", step " + std::to_string(step));
        for (auto& v : expected) v = to_host(to_device<T>(v));
      }
    };
    compare("param", &AdafactorState<Host<T>>::param);
    compare("state1", &AdafactorState<Host<T>>::state1);
    compare("state2", &AdafactorState<Host<T>>::state2);
    compare("state3", &AdafactorState<Host<T>>::state3);
  }
}

template <class T>
class GpuAdafactor : public testing::Test {};
using Floats = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(GpuAdafactor, Floats);

const std::vector<AdafactorShape> kMatrices = {{1, 3, 5},  {2, 3, 4},   {1, 1, 300},
                                               {1, 99, 1}, {1, 96, 90}, {40, 3, 3}};
const std::vector<AdafactorShape> kVectors = {{1, 1, 7}, {0, 1, 1}, {1, 1, 8193}, {1, 1, 1}};

TYPED_TEST(GpuAdafactor, Factored) {
  AdafactorSettings s;
  check<TypeParam>(s, kMatrices);
  s.beta1 = 0.9;
  s.weight_decay = 0.1;
  s.scaled = s.maximize = true;
  check<TypeParam>(s, kMatrices, 1);
}

TYPED_TEST(GpuAdafactor, NotFactored) {
  AdafactorSettings s;
  s.factored = false;
  check<TypeParam>(s, kVectors);
  s.beta1 = 0.9;
  s.scaled = s.maximize = true;
  check<TypeParam>(s, kVectors, 1);
}

TYPED_TEST(GpuAdafactor, WithARateOfItsOwnAndClipped) {
  AdafactorSettings s;
  s.relative_step = s.scale_parameter = false;
  s.lr = 0.02;
  s.lr_factor = 0.5;
  s.clip_value = 0.6;
  s.clip_threshold = 0.7;
  s.decay_rate = -0.5;
  for (const bool factored : {true, false}) {
    s.factored = factored;
    check<TypeParam>(s, factored ? kMatrices : kVectors);
  }
}

TYPED_TEST(GpuAdafactor, AStepThatIsNotAppliedChangesNothing) {
  AdafactorSettings s;
  s.beta1 = 0.9;
  for (const bool factored : {true, false}) {
    s.factored = factored;
    check<TypeParam>(s, factored ? kMatrices : kVectors, 0, false);
  }
}

TYPED_TEST(GpuAdafactor, MoreTensorsThanOneLaunchTakes) {
  std::vector<AdafactorShape> shapes;
  for (std::int64_t t = 0; t < 53; ++t) shapes.push_back({t % 3 + 1, t % 5 + 2, t % 7 + 3});
  check<TypeParam>({}, shapes);
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
