// Optimizer updates of many tensors over several steps, and the global norm,
// on the executor against the CPU's.
#include "tests/kernels/gpu/support.h"
#include "tests/kernels/optimizer_support.h"

namespace gradloom::kernels::gpu::test {
namespace {

struct Settings {
  OptimizerKind kind;
  double lr = 0.01, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-6, weight_decay = 0.02;
  double momentum = 0, dampening = 0, lr_decay = 0, initial_sum = 0;
  double alpha = 0.95, momentum_decay = 0.02;
  bool nesterov = false, maximize = false, correct_bias = true, scaled = false, in_place = true;
  bool amsgrad = false, centered = false, decoupled = false;
  double lr_factor = 1, clip_value = 0;
  int apply = -1;  // -1: null
  bool eight_bit_states = false;
};

using kernels::test::has_state;

// With Lion's default, moment and gradient of half types cancel to zero, whose sign is that of a rounding.
std::vector<Settings> every_optimizer() {
  std::vector<Settings> all = kernels::test::every_optimizer<Settings>();
  for (Settings& s : all)
    if (s.kind == OptimizerKind::lion) s.beta1 = 0.8937;
  return all;
}

using Sizes = std::vector<i64>;

template <class T>
using Tensors = std::vector<std::vector<Host<T>>>;

template <class T>
Tensors<T> tensors(const Sizes& sizes, std::uint64_t seed, double low, double high) {
  Tensors<T> all;
  for (const i64 n : sizes) all.push_back(numbers<T>(n, seed + all.size(), low, high));
  return all;
}

template <class T>
struct State {
  Tensors<T> param, state1, state2, state3;
};

// The lists of pointers that a call takes.
struct Lists {
  std::vector<const void*> grad, param, state1, state2, state3;
  std::vector<void*> param_out, state1_out, state2_out, state3_out;
};

OptimizerArgs arguments(const Settings& s, DType dtype, const Sizes& sizes, const Lists& lists) {
  OptimizerArgs args = kernels::test::optimizer_options(s, dtype, sizes);
  args.grad = lists.grad.data();
  args.param = lists.param.data();
  args.state1 = lists.state1.empty() ? nullptr : lists.state1.data();
  args.state2 = lists.state2.empty() ? nullptr : lists.state2.data();
  args.state3 = lists.state3.empty() ? nullptr : lists.state3.data();
  args.param_out = lists.param_out.data();
  args.state1_out = lists.state1_out.empty() ? nullptr : lists.state1_out.data();
  args.state2_out = lists.state2_out.empty() ? nullptr : lists.state2_out.data();
  args.state3_out = lists.state3_out.empty() ? nullptr : lists.state3_out.data();
  return args;
}

template <class T>
void cpu_step(const Settings& s, const Sizes& sizes, std::int64_t step, const Host<T>& scale,
              Tensors<T>& grad, State<T>& state) {
  Lists lists;
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    lists.grad.push_back(grad[t].data());
    for (const auto& [there, from, to, tensor] :
         {std::tuple{true, &lists.param, &lists.param_out, &state.param[t]},
          std::tuple{has_state(s, 1), &lists.state1, &lists.state1_out, &state.state1[t]},
          std::tuple{has_state(s, 2), &lists.state2, &lists.state2_out, &state.state2[t]},
          std::tuple{has_state(s, 3), &lists.state3, &lists.state3_out, &state.state3[t]}}) {
      if (!there) continue;
      from->push_back(tensor->data());
      to->push_back(tensor->data());
    }
  }
  OptimizerArgs args = arguments(s, cpu_dtype<T>(), sizes, lists);
  std::vector<std::uint8_t> workspace(kernels::workspace_bytes(Target::cpu, args) + 1);
  args.lr = &s.lr;
  args.step = &step;
  args.grad_scale = s.scaled ? &scale : nullptr;
  const bool apply = s.apply == 1;
  args.apply = s.apply < 0 ? nullptr : &apply;
  args.workspace = workspace.data();
  cpu().optimizer(args);
}

std::string named(const char* kind, std::size_t t) { return std::string(kind) + " " + std::to_string(t); }

template <class T>
Results gpu_step(const Settings& s, const Sizes& sizes, std::int64_t step, const Host<T>& scale,
                 const Tensors<T>& grad, const State<T>& state, std::size_t offset) {
  return on_device([&](Device& device) {
    Lists lists;
    const auto add = [&](const char* kind, std::size_t t, const std::vector<Host<T>>& v,
                         std::vector<const void*>& from, std::vector<void*>& to) {
      T* const out = s.in_place ? device.inout<T>(named(kind, t), v, offset)
                                : device.out<T>(named(kind, t), v.size(), offset);
      from.push_back(s.in_place ? out : device.in<T>(v, offset));
      to.push_back(out);
    };
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      lists.grad.push_back(device.in<T>(grad[t], offset));
      add("param", t, state.param[t], lists.param, lists.param_out);
      if (s.kind == OptimizerKind::sgd && s.momentum == 0 && t % 2 == 1) {  // without a state
        lists.state1.push_back(nullptr);
        lists.state1_out.push_back(nullptr);
      } else {
        add("state1", t, state.state1[t], lists.state1, lists.state1_out);
      }
      if (has_state(s, 2)) add("state2", t, state.state2[t], lists.state2, lists.state2_out);
      if (has_state(s, 3)) add("state3", t, state.state3[t], lists.state3, lists.state3_out);
    }
    OptimizerArgs args = arguments(s, gpu_dtype<T>(), sizes, lists);
    args.lr = device.in<double>({s.lr});
    args.step = device.in<std::int64_t>({step});
    args.grad_scale = s.scaled ? device.in<T>({scale}) : nullptr;
    if (s.apply >= 0)
      args.apply = reinterpret_cast<const bool*>(device.in<std::uint8_t>({std::uint8_t(s.apply)}));
    args.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, args));
    device.run(optimizer, args);
  });
}

// Every step starts from the same state on both sides.
template <class T>
void check(const Settings& s, const Sizes& sizes, std::size_t offset = 0) {
  const Host<T> scale = Host<T>(0.5);
  const double least =
      kernels::test::is_positive(s.kind, 1) ? 0.02 : -0.1;  // above the square of a third state
  State<T> state{tensors<T>(sizes, 10, -1, 1), tensors<T>(sizes, 20, least, 0.1),
                 tensors<T>(sizes, 30, 0, 0.1), tensors<T>(sizes, 40, 0, 0.1)};
  for (const std::int64_t step : {1, 2, 7}) {  // RAdam adapts from the sixth on
    if (step == 1 && (s.kind == OptimizerKind::sgd || s.kind == OptimizerKind::adagrad) && has_state(s, 1))
      state.state1[0].assign(state.state1[0].size(), Host<T>(NAN));
    Tensors<T> grad = tensors<T>(sizes, 100 * std::uint64_t(step), -1, 1);
    const Results gpu = gpu_step<T>(s, sizes, step, scale, grad, state, offset);
    cpu_step<T>(s, sizes, step, scale, grad, state);
    Tolerance close = tolerance<T>({2e-5, 1e-6});
    if (s.kind == OptimizerKind::lamb && sizeof(T) == 2)
      close.absolute = 3 * s.lr / 256;  // the update is that of the rounded moments
    const auto compare = [&](const char* kind, Tensors<T>& expected) {
      for (std::size_t t = 0; t < sizes.size(); ++t) {
        if (gpu.bytes.count(named(kind, t)) == 0) continue;
        expect_close(
            gpu.get<T>(named(kind, t)), widen(expected[t]), close,
            named(kind, t) + ", optimizer " + std::to_string(int(s.kind)) + ", step " + std::to_string(step));
        for (auto& v : expected[t]) v = to_host(to_device<T>(v));
      }
    };
    compare("param", state.param);
    compare("state1", state.state1);
    compare("state2", state.state2);
    compare("state3", state.state3);
  }
}

template <class T>
class GpuOptimizer : public testing::Test {};
using Floats = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(GpuOptimizer, Floats);

const Sizes kFew = {1, 0, 8192, 8193, 3001, 17, 0};

TYPED_TEST(GpuOptimizer, Sgd) {
  Settings s{OptimizerKind::sgd};
  check<TypeParam>(s, kFew);
  s.in_place = false;
  check<TypeParam>(s, kFew);
  s.momentum = 0.9;
  s.scaled = true;
  check<TypeParam>(s, kFew, 1);
  s.nesterov = s.maximize = s.in_place = true;
  check<TypeParam>(s, kFew);
  s.nesterov = false;
  s.dampening = 0.3;
  check<TypeParam>(s, kFew);
}

TYPED_TEST(GpuOptimizer, AdamAndAdamW) {
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adamw}) {
    Settings s{kind};
    check<TypeParam>(s, kFew);
    s.scaled = s.maximize = true;
    s.in_place = false;
    check<TypeParam>(s, kFew, 1);
  }
}

TYPED_TEST(GpuOptimizer, AdamWOfHuggingFace) {
  Settings s{OptimizerKind::adamw_hf};
  check<TypeParam>(s, kFew);
  s.correct_bias = s.in_place = false;
  s.scaled = s.maximize = true;
  check<TypeParam>(s, kFew, 1);
}

TYPED_TEST(GpuOptimizer, AdagradAndLion) {
  for (Settings s : every_optimizer()) {
    if (s.kind != OptimizerKind::adagrad && s.kind != OptimizerKind::lion) continue;
    check<TypeParam>(s, kFew);
    s.lr_decay = 0.2;
    s.initial_sum = 0.3;
    s.scaled = s.maximize = true;
    s.in_place = false;
    check<TypeParam>(s, kFew, 1);
  }
}

TYPED_TEST(GpuOptimizer, RmspropNadamRadamAdadeltaAndAmsgrad) {
  for (Settings s : every_optimizer()) {
    const bool newer = s.kind == OptimizerKind::rmsprop || s.kind == OptimizerKind::nadam ||
                       s.kind == OptimizerKind::radam || s.kind == OptimizerKind::adadelta;
    if (!newer && !s.amsgrad) continue;
    check<TypeParam>(s, kFew);
    s.decoupled = s.scaled = s.maximize = true;
    s.in_place = false;
    s.momentum = s.momentum_decay = 0;
    check<TypeParam>(s, kFew, 1);
  }
}

TYPED_TEST(GpuOptimizer, Lamb) {
  Settings s{OptimizerKind::lamb};
  check<TypeParam>(s, kFew);
  s.in_place = false;
  s.scaled = true;
  check<TypeParam>(s, {20000, 3, 0, 9000}, 1);
}

TYPED_TEST(GpuOptimizer, AStepThatIsNotAppliedChangesNothing) {
  for (Settings s : every_optimizer()) {
    for (const int apply : {0, 1}) {
      s.apply = apply;
      check<TypeParam>(s, kFew);
    }
  }
}

TYPED_TEST(GpuOptimizer, ClippedByValueWithAFactorOfTheRate) {
  for (Settings s : every_optimizer()) {
    s.scaled = s.maximize = true;
    s.lr_factor = 0.3;
    s.clip_value = 0.2;
    check<TypeParam>(s, kFew);
  }
}

TYPED_TEST(GpuOptimizer, MoreTensorsThanOneLaunchTakes) {
  Sizes sizes;
  for (i64 t = 0; t < 101; ++t) sizes.push_back(t % 7 == 3 ? 0 : t % 11 + 1);
  sizes[50] = 8200;
  check<TypeParam>({OptimizerKind::adamw}, sizes);
  check<TypeParam>({OptimizerKind::lamb}, sizes);
  check<TypeParam>({.kind = OptimizerKind::adamw, .amsgrad = true}, sizes);
  check<TypeParam>({.kind = OptimizerKind::rmsprop, .centered = true}, sizes);
}

TYPED_TEST(GpuOptimizer, LambWithoutNorm) {  // |p| = 0: the ratio is 1
  const Sizes sizes = {5};
  const Settings s{OptimizerKind::lamb};
  const Tensors<TypeParam> zeros = tensors<TypeParam>(sizes, 1, 0, 0);
  State<TypeParam> state{zeros, zeros, zeros, zeros};
  Tensors<TypeParam> grad = tensors<TypeParam>(sizes, 4, 0.5, 1);
  const Results gpu = gpu_step<TypeParam>(s, sizes, 1, 1, grad, state, 0);
  cpu_step<TypeParam>(s, sizes, 1, 1, grad, state);
  Tolerance close = tolerance<TypeParam>({2e-5, 1e-6});
  if (sizeof(TypeParam) == 2) close.relative = 0x1p-7;  // the moments round too
  expect_close(gpu.get<TypeParam>("param 0"), widen(state.param[0]), close, "param");
}

// One step; gradients and copies are in T, or gradients in float where it is void.
template <class T>
Results update_in(const Settings& s, const Sizes& sizes) {
  using Low = std::conditional_t<std::is_void_v<T>, bf16, T>;
  return on_device([&](Device& device) {
    Lists lists;
    std::vector<DType> types;
    std::vector<i64> copies;
    std::vector<void*> copy_out;
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      const auto grad = numbers<Low>(sizes[t], 100 + t, -1, 1);
      const bool is_low = !std::is_void_v<T> && t % 2 == 0;
      types.push_back(is_low ? gpu_dtype<Low>() : DType::f32);
      lists.grad.push_back(is_low ? static_cast<const void*>(device.in<Low>(grad)) : device.in<float>(grad));
      const auto add = [&](const char* kind, double low, std::vector<const void*>& from,
                           std::vector<void*>& to) {
        to.push_back(device.inout<float>(named(kind, t), numbers<float>(sizes[t], 10 + t, low, 1), 0));
        from.push_back(to.back());
      };
      add("param", -1, lists.param, lists.param_out);
      add("state1", 0, lists.state1, lists.state1_out);
      if (has_state(s, 2)) add("state2", 0, lists.state2, lists.state2_out);
      if (has_state(s, 3)) add("state3", 0, lists.state3, lists.state3_out);
      copies.push_back(t % 3 == 0 ? i64(copy_out.size()) : -1);
      if (t % 3 == 0) copy_out.push_back(device.out<Low>(named("copy", t), std::size_t(sizes[t]), 0));
    }
    OptimizerArgs args = arguments(s, DType::f32, sizes, lists);
    args.lr = device.in<double>({s.lr});
    args.step = device.in<std::int64_t>({3});
    args.grad_types = types.data();
    args.low_type = gpu_dtype<Low>();
    args.copies = copies.data();
    args.copy_out = copy_out.data();
    args.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, args));
    device.run(optimizer, args);
    GlobalNormArgs norm{
        DType::f32, i64(sizes.size()), sizes.data(), lists.grad.data(), device.out<float>("norm", 1),
        nullptr,    types.data()};
    norm.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, norm));
    device.run(global_norm, norm);
  });
}

// Gradients in 16 bits give the bits of the same gradients in float, and copies are the parameters rounded.
template <class T>
void check_low(const Settings& s, const Sizes& sizes) {
  const Results low = update_in<T>(s, sizes), wide = update_in<void>(s, sizes);
  const auto same = [&](const std::string& name) {
    EXPECT_EQ(low.bytes.at(name), wide.bytes.at(name)) << name << " of " << int(s.kind);
  };
  if (std::is_same_v<T, bf16>) same("norm");  // the float gradients are exact in bf16
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    if (std::is_same_v<T, bf16>) same(named("param", t)), same(named("state1", t));
    if (t % 3 != 0) continue;
    std::vector<Host<T>> rounded;
    for (const double v : low.get<float>(named("param", t)))
      rounded.push_back(to_host(to_device<T>(float(v))));
    EXPECT_EQ(low.get<T>(named("copy", t)), rounded) << int(s.kind);
  }
}

TEST(GpuOptimizerIn16Bits, GradientsAndCopies) {
  for (Settings s : every_optimizer()) {
    check_low<bf16>(s, kFew);
    s.clip_value = 0.2;
    check_low<f16>(s, kFew);
  }
}

// As on the CPU (tests/kernels/optimizer_test.cpp), bit for bit.
TEST(GpuOptimizerIn16Bits, RoundsParametersAtRandom) {
  const Settings s{.kind = OptimizerKind::sgd, .lr = 0x1p-10, .weight_decay = 0};
  const std::int64_t step = 7;
  const RandomState random{42, 15};
  const std::vector<std::uint64_t> keys = {5, 6, 7, 8, 9, 10, 11};
  const Results gpu = on_device([&](Device& device) {
    Lists lists;
    for (std::size_t t = 0; t < kFew.size(); ++t) {
      const std::vector<float> ones(static_cast<std::size_t>(kFew[t]), 1.0F);
      lists.grad.push_back(device.in<float>(ones));
      lists.param_out.push_back(device.inout<bf16>(named("param", t), ones));
      lists.param.push_back(lists.param_out.back());
    }
    OptimizerArgs args = arguments(s, DType::f32, kFew, lists);
    args.lr = device.in<double>({s.lr});
    args.step = device.in<std::int64_t>({step});
    args.low_params = true;
    args.low_type = DType::bf16;
    args.random = reinterpret_cast<const RandomState*>(
        device.in<std::int64_t>({std::int64_t(random.seed), std::int64_t(random.step)}));
    args.keys = keys.data();
    device.run(optimizer, args);
  });
  for (std::size_t t = 0; t < kFew.size(); ++t) {
    const auto param = gpu.get<bf16>(named("param", t));
    for (std::size_t i = 0; i < param.size(); ++i) {
      const auto word = portable::philox_block(i / 4, random.seed ^ keys[t], std::uint64_t(step)).word[i % 4];
      const unsigned bits = __builtin_bit_cast(unsigned, 1.0F - 0x1p-10F) + (word >> 16);
      ASSERT_EQ(param[i], __builtin_bit_cast(float, bits & 0xffff0000u)) << t << " " << i;
    }
  }
}

// ---- states of 8 bits -----------------------------------------------------------------------------------------------------------

using Bytes = std::vector<std::vector<std::uint8_t>>;

template <class T>
struct EightBits {
  Tensors<T> param, grad;
  Bytes state1, state2;
};

// add(name, contents, inputs, outputs) adds a tensor to both lists.
template <class T, class Add>
Lists eight_bit_lists(const Settings& s, EightBits<T>& e, const Add& add) {
  Lists lists;
  for (std::size_t t = 0; t < e.param.size(); ++t) {
    add(named("param", t), e.param[t], lists.param, lists.param_out);
    add(named("state1", t), e.state1[t], lists.state1, lists.state1_out);
    if (has_state(s, 2)) add(named("state2", t), e.state2[t], lists.state2, lists.state2_out);
  }
  return lists;
}

template <class T>
Results gpu_step(const Settings& s, const Sizes& sizes, EightBits<T> e) {
  return on_device([&](Device& device) {
    Lists lists = eight_bit_lists(s, e, [&](const std::string& name, const auto& v, auto& from, auto& to) {
      using Element =
          std::conditional_t<std::is_same_v<decltype(v), const std::vector<std::uint8_t>&>, std::uint8_t, T>;
      Element* const out = s.in_place ? device.inout<Element>(name, v) : device.out<Element>(name, v.size());
      from.push_back(s.in_place ? out : device.in<Element>(v));
      to.push_back(out);
    });
    for (const auto& grad : e.grad) lists.grad.push_back(device.in<T>(grad));
    OptimizerArgs args = arguments(s, gpu_dtype<T>(), sizes, lists);
    args.lr = device.in<double>({s.lr});
    args.step = device.in<std::int64_t>({3});
    args.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, args));
    device.run(optimizer, args);
  });
}

template <class T>
void cpu_step(const Settings& s, const Sizes& sizes, EightBits<T>& e) {
  Lists lists = eight_bit_lists(s, e, [&](const std::string&, auto& v, auto& from, auto& to) {
    from.push_back(v.data());
    to.push_back(v.data());
  });
  for (const auto& grad : e.grad) lists.grad.push_back(grad.data());
  OptimizerArgs args = arguments(s, cpu_dtype<T>(), sizes, lists);
  std::vector<std::uint8_t> workspace(kernels::workspace_bytes(Target::cpu, args) + 1);
  const std::int64_t step = 3;
  args.lr = &s.lr;
  args.step = &step;
  args.workspace = workspace.data();
  cpu().optimizer(args);
}

// Numbers that are a code apart at most (a number between two codes may be rounded either way), and hardly any.
void expect_same_states(const std::vector<std::uint8_t>& got, const std::vector<std::uint8_t>& expected,
                        std::size_t count, bool positive, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  const auto numbers = kernels::test::decode(expected, count, positive),
             others = kernels::test::decode(got, count, positive);
  std::size_t apart = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int a = got[got.size() - count + i], b = expected[got.size() - count + i];
    ASSERT_LE(std::abs(a - b), 1) << what << " " << i;
    apart += a != b;
    ASSERT_TRUE(a != b || std::fabs(others[i] - numbers[i]) <= 1e-5 * std::fabs(numbers[i]))
        << what << " " << i;
  }
  EXPECT_LE(apart, count / 1000) << what;
}

TYPED_TEST(GpuOptimizer, StatesOf8Bits) {
  using T = TypeParam;
  for (Settings s : every_optimizer()) {
    if (!kernels::test::may_be_of_8_bits(s)) continue;
    const OptimizerKind kind = s.kind;
    for (const bool in_place : {true, false}) {
      s.in_place = in_place;
      s.eight_bit_states = true;
      const bool positive = kernels::test::is_positive(kind, 1);
      EightBits<T> e{tensors<T>(kFew, 10, -1, 1), tensors<T>(kFew, 100, -1, 1), {}, {}};
      for (std::size_t t = 0; t < kFew.size(); ++t) {
        e.state1.push_back(kernels::test::encode(
            widen(numbers<double>(kFew[t], 20 + t, positive ? 0 : -0.1, 0.1)), positive));
        e.state2.push_back(kernels::test::encode(widen(numbers<double>(kFew[t], 30 + t, 0, 0.1)), true));
      }
      const Results gpu = gpu_step(s, kFew, e);
      cpu_step(s, kFew, e);
      Tolerance close = tolerance<T>({2e-5, 1e-6});
      if (kind == OptimizerKind::lamb) close.absolute += s.lr / 100;  // of a moment that is a code apart
      for (std::size_t t = 0; t < kFew.size(); ++t) {
        const auto count = static_cast<std::size_t>(kFew[t]);
        const std::string what = ", optimizer " + std::to_string(int(kind));
        expect_close(gpu.get<T>(named("param", t)), widen(e.param[t]), close, named("param", t) + what);
        expect_same_states(gpu.bytes.at(named("state1", t)), e.state1[t], count, positive,
                           named("state1", t) + what);
        if (has_state(s, 2))
          expect_same_states(gpu.bytes.at(named("state2", t)), e.state2[t], count, true,
                             named("state2", t) + what);
      }
    }
  }
}

template <class T>
void check_norm(const Sizes& sizes, std::size_t offset = 0) {
  const Tensors<T> all = tensors<T>(sizes, 3, -1, 1);
  double squares = 0;
  for (const auto& tensor : all) {
    for (const auto v : tensor) squares += double(v) * double(v);
  }
  const Results gpu = on_device([&](Device& device) {
    std::vector<const void*> pointers;
    for (const auto& tensor : all) pointers.push_back(device.in<T>(tensor, offset));
    GlobalNormArgs args{gpu_dtype<T>(),  i64(sizes.size()),        sizes.data(),
                        pointers.data(), device.out<T>("norm", 1), nullptr};
    args.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, args));
    device.run(global_norm, args);
  });
  expect_close(gpu.get<T>("norm"), {std::sqrt(squares)}, tolerance<T>({1e-6, 0}),
               std::to_string(sizes.size()) + " tensors");
}

TYPED_TEST(GpuOptimizer, GlobalNorm) {
  check_norm<TypeParam>({});
  check_norm<TypeParam>({0, 0});
  check_norm<TypeParam>({1});
  check_norm<TypeParam>(kFew);
  check_norm<TypeParam>(kFew, 1);
  check_norm<TypeParam>({100000});
  Sizes many;
  for (i64 t = 0; t < 300; ++t) many.push_back(t % 5);
  check_norm<TypeParam>(many);
}

template <class T>
void check_accumulate(const Sizes& sizes, i64 micro, std::size_t offset = 0) {
  const Tensors<T> sums = tensors<T>(sizes, 3, -1, 1), parts = tensors<T>(sizes, 4, -1, 1);
  const Results gpu = on_device([&](Device& device) {
    std::vector<const void*> from, old;
    std::vector<void*> to;
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      from.push_back(device.in<T>(parts[t], offset));
      to.push_back(device.inout<T>(named("sums", t), sums[t], offset));
      old.push_back(to.back());
    }
    device.run(accumulate, AccumulateArgs{gpu_dtype<T>(), i64(sizes.size()), sizes.data(), 4, old.data(),
                                          from.data(), nullptr, device.in<std::int64_t>({micro}), to.data()});
  });
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    std::vector<double> expected;
    for (std::size_t i = 0; i < sums[t].size(); ++i)
      expected.push_back((micro == 0 ? 0 : double(sums[t][i])) + double(parts[t][i]) / 4);
    expect_close(gpu.get<T>(named("sums", t)), expected, tolerance<T>({1e-6, 1e-7}),
                 "tensor " + std::to_string(t));
  }
}

TYPED_TEST(GpuOptimizer, Accumulate) {
  for (const i64 micro : {0, 1}) {
    check_accumulate<TypeParam>({}, micro);
    check_accumulate<TypeParam>({0, 0}, micro);
    check_accumulate<TypeParam>(kFew, micro);
    check_accumulate<TypeParam>(kFew, micro, 1);
    Sizes many;
    for (i64 t = 0; t < 200; ++t) many.push_back(t % 5);
    check_accumulate<TypeParam>(many, micro);
  }
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
