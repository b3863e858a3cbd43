// Optimizer updates against the published formulas in double over several steps; the global norm.
#include "tests/kernels/optimizer_reference.h"
#include "tests/kernels/optimizer_support.h"
#include "kernels/philox.h"
#include "tests/kernels/support.h"

#include <array>
#include <bit>
#include <optional>

namespace gradloom::kernels::test {
namespace {

using Settings = OptimizerSettings;
using Doubles = OptimizerTensor<std::vector<double>>;

const std::vector<std::int64_t> kSizes = {1, 0, 8192, 8193, 70001, 17};

template <class T>
using Tensors = std::vector<std::vector<T>>;

template <class T>
Tensors<T> tensors(std::uint64_t seed, bool zero = false) {
  Tensors<T> all;
  for (const std::int64_t n : kSizes) {
    all.push_back(zero ? std::vector<T>(std::size_t(n), T(0)) : values<T>(n, seed + all.size(), -1, 1));
  }
  return all;
}
template <class T>
std::vector<void*> pointers(Tensors<T>& all) {
  std::vector<void*> p;
  for (auto& tensor : all) p.push_back(tensor.data());
  return p;
}

// Without tensors and what a step reads but lr.
template <class T>
OptimizerArgs arguments(const Settings& s) {
  OptimizerArgs args = optimizer_options(s, dtype_of<T>(), kSizes);
  args.lr = &s.lr;
  return args;
}

template <class T>
struct Kept {
  Tensors<T> param, state1, state2, state3;
  auto groups() { return std::array{&param, &state1, &state2, &state3}; }
};

// Points at those that there are with these settings.
template <class T>
struct Addresses {
  std::vector<void*> param, state1, state2, state3;
  explicit Addresses(Kept<T>& kept)
      : param(pointers(kept.param)),
        state1(pointers(kept.state1)),
        state2(pointers(kept.state2)),
        state3(pointers(kept.state3)) {}
  void read_by(OptimizerArgs& args, const Settings& s) const {
    args.param = param.data();
    args.state1 = has_state(s, 1) ? state1.data() : nullptr;
    args.state2 = has_state(s, 2) ? state2.data() : nullptr;
    args.state3 = has_state(s, 3) ? state3.data() : nullptr;
  }
  void written_by(OptimizerArgs& args, const Settings& s) const {
    args.param_out = param.data();
    args.state1_out = has_state(s, 1) ? state1.data() : nullptr;
    args.state2_out = has_state(s, 2) ? state2.data() : nullptr;
    args.state3_out = has_state(s, 3) ? state3.data() : nullptr;
  }
};

template <class T>
void check(const Settings& s, bool scaled, Tolerance tolerance) {
  constexpr int kSteps = 7;  // RAdam adapts from the sixth on
  const T scale = T(0.5);
  const Tensors<T> start = tensors<T>(10);
  std::vector<Tensors<T>> grads;
  for (int step = 1; step <= kSteps; ++step) grads.push_back(tensors<T>(100 * std::uint64_t(step)));
  Kept<double> reference;
  for (std::size_t t = 0; t < start.size(); ++t) {
    const std::vector<double> zeros(start[t].size());
    Doubles all{{start[t].begin(), start[t].end()}, zeros, zeros, zeros};
    for (int step = 1; step <= kSteps; ++step) {
      const auto& grad = grads[std::size_t(step - 1)][t];
      step_reference(s, step, scaled ? double(scale) : 1.0, {grad.begin(), grad.end()}, all);
    }
    reference.param.push_back(all.param);
    reference.state1.push_back(all.state1);
    reference.state2.push_back(all.state2);
    reference.state3.push_back(all.state3);
  }
  std::vector<double> expected;
  for (const auto* group : reference.groups())
    for (const auto& tensor : *group) expected.insert(expected.end(), tensor.begin(), tensor.end());
  for (const bool in_place : {true, false}) {
    expect_on_every_level(
        [&](const CpuKernels& k) {
          Kept<T> kept{start, tensors<T>(0, true), tensors<T>(0, true), tensors<T>(0, true)};
          if ((s.kind == OptimizerKind::sgd && s.momentum != 0) || s.kind == OptimizerKind::adagrad)
            kept.state1[0][0] = T(NAN);  // the first state is not read
          for (std::int64_t step = 1; step <= kSteps; ++step) {
            Tensors<T>& grad = grads[std::size_t(step - 1)];
            Kept<T> next = kept;
            const auto g = pointers(grad);
            const Addresses<T> from(kept), to(in_place ? kept : next);
            OptimizerArgs args = arguments<T>(s);
            args.step = &step;
            args.grad_scale = scaled ? &scale : nullptr;
            args.grad = g.data();
            from.read_by(args, s);
            to.written_by(args, s);
            std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
            args.workspace = workspace.data();
            k.optimizer(args);
            if (!in_place) kept = next;
          }
          std::vector<T> all;
          for (const auto* group : kept.groups())
            for (const auto& tensor : *group) all.insert(all.end(), tensor.begin(), tensor.end());
          return all;
        },
        expected, tolerance, "kind " + std::to_string(int(s.kind)));
  }
}

template <class T>
void check_all(Tolerance tolerance) {
  Settings sgd{OptimizerKind::sgd};
  check<T>(sgd, false, tolerance);
  sgd.momentum = 0.9;
  check<T>(sgd, true, tolerance);
  sgd.nesterov = sgd.maximize = true;
  check<T>(sgd, false, tolerance);
  sgd.nesterov = false;
  sgd.dampening = 0.3;
  check<T>(sgd, false, tolerance);
  check<T>({OptimizerKind::adam}, false, tolerance);
  check<T>({OptimizerKind::adamw}, true, tolerance);
  check<T>({OptimizerKind::lamb}, false, tolerance);
  Settings adagrad{OptimizerKind::adagrad};
  check<T>(adagrad, true, tolerance);
  adagrad.lr_decay = 0.2;
  adagrad.initial_sum = 0.3;
  adagrad.maximize = true;
  check<T>(adagrad, false, tolerance);
  check<T>({OptimizerKind::lion}, false, tolerance);
  check<T>({.kind = OptimizerKind::lion, .maximize = true}, true, tolerance);
  check<T>({OptimizerKind::adamw_hf}, true, tolerance);
  check<T>({.kind = OptimizerKind::adamw_hf, .correct_bias = false}, false, tolerance);
  check<T>({.kind = OptimizerKind::rmsprop}, true, tolerance);
  check<T>({.kind = OptimizerKind::rmsprop, .centered = true}, false, tolerance);
  for (const OptimizerKind kind : {OptimizerKind::nadam, OptimizerKind::radam}) {
    check<T>({.kind = kind, .decoupled = true}, false, tolerance);
    check<T>({.kind = kind, .beta2 = 0.9, .momentum_decay = 0}, true, tolerance);
  }
  for (Settings s : every_optimizer<Settings>()) {
    check<T>(s, false, tolerance);
    s.maximize = true;
    s.lr_factor = 0.3;
    s.clip_value = 0.2;
    check<T>(s, true, tolerance);
  }
}

// The sign of a NaN is a NaN: what went wrong in a gradient is seen in the parameter.
TEST(Optimizer, LionKeepsZerosAndNaNs) {
  const std::int64_t size = 3, step = 1;
  const double lr = 0.1;
  std::vector<float> param{1, 1, 1}, grad{0, NAN, -2}, m(3);
  const void *const g = grad.data(), *const p = param.data(), *const state = m.data();
  void *const p_out = param.data(), *const state_out = m.data();
  cpu().optimizer({.dtype = DType::f32,
                   .kind = OptimizerKind::lion,
                   .count = 1,
                   .sizes = &size,
                   .beta1 = 0.9,
                   .beta2 = 0.99,
                   .lr_factor = 1,
                   .lr = &lr,
                   .step = &step,
                   .grad = &g,
                   .param = &p,
                   .state1 = &state,
                   .param_out = &p_out,
                   .state1_out = &state_out});
  EXPECT_EQ(param[0], 1);
  EXPECT_TRUE(std::isnan(param[1]));
  EXPECT_FLOAT_EQ(param[2], 1.1F);
}

TEST(Optimizer, Float64FollowsTheFormulas) { check_all<double>({1e-12, 1e-13}); }
TEST(Optimizer, Float32FollowsTheFormulas) { check_all<float>({1e-5, 1e-5}); }

// Gradients as 16-bit numbers give the bits of the same gradients in f32, and copies are the parameters rounded to nearest even.
std::vector<std::uint16_t> brains(const std::vector<float>& from) {
  std::vector<std::uint16_t> to;
  for (const float v : from) {
    const auto bits = std::bit_cast<std::uint32_t>(v);
    to.push_back(std::uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16));
  }
  return to;
}
std::vector<std::uint16_t> halves(const std::vector<float>& from) {
  std::vector<std::uint16_t> to;
  for (const float v : from) to.push_back(std::bit_cast<std::uint16_t>(_Float16(v)));
  return to;
}

struct Updated : Kept<float> {
  std::vector<std::vector<std::uint16_t>> copies;
  std::vector<float> norm = {0};
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all{std::bit_cast<std::uint32_t>(norm[0])};
    for (const auto* group : {&param, &state1, &state2, &state3})
      for (const auto& tensor : *group)
        for (const float v : tensor) all.push_back(std::bit_cast<std::uint32_t>(v));
    return all;
  }
};

// One step; every second gradient in `low` if it is given, and copies of every second parameter.
Updated update_in(const CpuKernels& k, const Settings& s, std::optional<DType> low, bool apply) {
  Updated u{
      {tensors<float>(10), tensors<float>(20, true), tensors<float>(30, true), tensors<float>(40, true)}, {}};
  Tensors<float> grad = tensors<float>(100);
  std::vector<std::vector<std::uint16_t>> low_grad;
  std::vector<void*> g, copy_out;
  std::vector<DType> types;
  std::vector<std::int64_t> copies;
  const DType type = low.value_or(DType::bf16);
  for (std::size_t t = 0; t < grad.size(); ++t) {
    for (float& v : grad[t])
      v = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & 0xffe00000u);  // exact in both
    low_grad.push_back(type == DType::bf16 ? brains(grad[t]) : halves(grad[t]));
    const bool is_low = low && t % 2 == 0;
    types.push_back(is_low ? type : DType::f32);
    g.push_back(is_low ? static_cast<void*>(low_grad[t].data()) : grad[t].data());
    copies.push_back(t % 2 == 1 ? std::int64_t(t / 2) : -1);
    if (t % 2 == 1) u.copies.emplace_back(grad[t].size(), std::uint16_t{1});
  }
  for (auto& copy : u.copies) copy_out.push_back(copy.data());
  const Addresses<float> at(u);
  const std::int64_t step = 7;
  OptimizerArgs args = arguments<float>(s);
  args.step = &step;
  args.apply = &apply;
  args.grad = g.data();
  at.read_by(args, s);
  at.written_by(args, s);
  args.grad_types = types.data();
  args.low_type = type;
  args.copies = copies.data();
  args.copy_out = copy_out.data();
  std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
  args.workspace = workspace.data();
  k.optimizer(args);
  GlobalNormArgs norm{DType::f32, args.count, args.sizes, g.data(), u.norm.data(), nullptr, types.data()};
  std::vector<std::uint8_t> squares(workspace_bytes(Target::cpu, norm) + 1);
  norm.workspace = squares.data();
  k.global_norm(norm);
  return u;
}

TEST(Optimizer, ReadsGradientsAndWritesCopiesIn16Bits) {
  for (const Settings& kind : every_optimizer<Settings>()) {
    for (const DType low : {DType::bf16, DType::f16}) {
      for (const bool apply : {true, false}) {
        Settings s = kind;
        if (low == DType::f16) s.clip_value = 0.3;
        on_every_level(
            [&](const CpuKernels& k) {
              const Updated u = update_in(k, s, low, apply);
              EXPECT_EQ(u.bits(), update_in(k, s, std::nullopt, apply).bits()) << int(s.kind);
              for (std::size_t t = 1; apply && t < u.param.size(); t += 2)
                EXPECT_EQ(u.copies[t / 2], low == DType::bf16 ? brains(u.param[t]) : halves(u.param[t]))
                    << int(s.kind);
              for (const auto& copy : u.copies) {
                EXPECT_TRUE(apply || copy == std::vector<std::uint16_t>(copy.size(), 1)) << "nothing changes";
              }
              return u.param[2];
            },
            [](const auto&, const std::string&) {});
      }
    }
  }
}

// Parameters of bf16 alone: each element goes up or down by the 16 upper bits of its word of Philox, whatever is beside it.
TEST(Optimizer, RoundsParametersAtRandom) {
  const std::int64_t step = 7;
  const double lr = 0x1p-10;         // all that follows is exact in f32
  const RandomState random{42, 15};  // of ranks the same step has several
  const std::vector<std::uint64_t> keys = {5, 6, 7, 8, 9, 10};
  on_every_level(
      [&](const CpuKernels& k) {
        std::vector<std::vector<std::uint16_t>> param;
        Tensors<float> grad;
        std::vector<void*> p, g;
        for (const std::int64_t n : kSizes) {
          param.emplace_back(std::size_t(n), std::uint16_t{0x3f80});  // 1
          grad.emplace_back(std::size_t(n), 1.0F);
        }
        if (param[2].size() > 1) grad[2][0] = NAN, grad[2][1] = -INFINITY;
        for (std::size_t t = 0; t < kSizes.size(); ++t)
          p.push_back(param[t].data()), g.push_back(grad[t].data());
        OptimizerArgs args = arguments<float>({.kind = OptimizerKind::sgd, .weight_decay = 0});
        args.lr = &lr;
        args.step = &step;
        args.grad = g.data();
        args.param = args.param_out = p.data();
        args.low_params = true;
        args.low_type = DType::bf16;
        args.random = &random;
        args.keys = keys.data();
        k.optimizer(args);
        double sum = 0;
        for (std::size_t t = 0; t < kSizes.size(); ++t) {
          for (std::size_t i = 0; i < param[t].size(); ++i) {
            if (t == 2 && i < 2) continue;
            const auto word =
                portable::philox_block(i / 4, random.seed ^ keys[t], std::uint64_t(step)).word[i % 4];
            const std::uint32_t bits = std::bit_cast<std::uint32_t>(1.0F - 0x1p-10F) + (word >> 16);
            EXPECT_EQ(param[t][i], bits >> 16) << t << " " << i;
            if (t == 4) sum += std::bit_cast<float>(std::uint32_t(param[t][i]) << 16);
          }
        }
        EXPECT_EQ(param[2][0] & 0x7fc0, 0x7fc0) << "NaN";
        EXPECT_EQ(param[2][1], 0x7f80) << "infinity";
        EXPECT_NEAR(sum / double(kSizes[4]), 1 - 0x1p-10, 4 * 0x1p-8 * 0.45 / std::sqrt(double(kSizes[4])));
        return grad[0];
      },
      [](const auto&, const std::string&) {});
}

// ---- states of 8 bits ------------------------------------------------------------------------------------------

using Bytes = std::vector<std::vector<std::uint8_t>>;

// Parameters and states of all tensors after one step from encoded states.
template <class T>
struct EightBits {
  Tensors<T> param = tensors<T>(10), grad = tensors<T>(100);
  Bytes state1, state2;

  explicit EightBits(OptimizerKind kind) {
    for (std::size_t t = 0; t < kSizes.size(); ++t) {
      state1.push_back(encode(values<double>(kSizes[t], 200 + t, is_positive(kind, 1) ? 0 : -0.5, 0.5),
                              is_positive(kind, 1)));
      state2.push_back(encode(values<double>(kSizes[t], 300 + t, 0, 0.5), true));  // of all that have one
    }
  }
  void step(const CpuKernels& k, const Settings& s, std::int64_t step, bool in_place, bool apply = true) {
    Tensors<T> param_new = param;
    Bytes state1_new = state1, state2_new = state2;
    const auto g = pointers(grad), p = pointers(param), p_out = in_place ? p : pointers(param_new);
    const auto s1 = pointers(state1), s1_out = in_place ? s1 : pointers(state1_new);
    const auto s2 = pointers(state2), s2_out = in_place ? s2 : pointers(state2_new);
    OptimizerArgs args = arguments<T>(s);
    args.step = &step;
    args.apply = &apply;
    args.grad = g.data();
    args.param = p.data(), args.param_out = p_out.data();
    if (has_state(s, 1)) args.state1 = s1.data(), args.state1_out = s1_out.data();
    if (has_state(s, 2)) args.state2 = s2.data(), args.state2_out = s2_out.data();
    std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
    args.workspace = workspace.data();
    k.optimizer(args);
    if (!in_place) param = param_new, state1 = state1_new, state2 = state2_new;
  }
};

// The numbers of `got` are as near to `expected` as a block of them allows. rounding: of what is encoded, computed from numbers of
// at most 1.
void expect_encoded(const std::vector<std::uint8_t>& got, const std::vector<double>& expected, bool positive,
                    double rounding, const std::string& what) {
  const std::vector<double> numbers = decode(got, expected.size(), positive);
  for (std::size_t i = 0; i < expected.size(); i += i % 64 == 0 ? 1 : 7) {
    const double scale = scale_in(got, i), x = expected[i];
    double nearest = INFINITY;
    for (int code = positive && x > 0 ? 1 : 0; code < portable::kCodes; ++code)
      nearest = std::min(nearest, std::fabs(portable::map_value(code, positive) * scale - x));
    ASSERT_LE(std::fabs(numbers[i] - x),
              nearest + 1e-6 * std::fabs(x) + 1e-7 * std::fabs(scale) + 2 * rounding)
        << what << " " << i;
  }
  for (std::size_t i = 0; i < expected.size(); i += portable::kCodeBlock) {
    double most = 0;
    for (std::size_t j = i; j < std::min(i + portable::kCodeBlock, expected.size()); ++j)
      most = std::max(most, std::fabs(expected[j]));
    ASSERT_NEAR(std::fabs(scale_in(got, i)), most, 1e-7 * most + rounding)
        << what << ": the largest number stays exact";
  }
}

template <class T>
void check_eight_bits(const Settings& s, Tolerance tolerance) {
  constexpr double kRounding = sizeof(T) == 4 ? 1e-7 : 0;
  constexpr std::int64_t kStep = 7;
  const EightBits<T> start(s.kind);
  for (const bool in_place : {true, false}) {
    on_every_level(
        [&](const CpuKernels& k) {
          EightBits<T> got = start;
          got.step(k, s, kStep, in_place);
          std::vector<T> all;
          for (std::size_t t = 0; t < kSizes.size(); ++t) {
            const auto n = std::size_t(kSizes[t]);
            const std::string what = std::to_string(int(s.kind)) + ", tensor " + std::to_string(t);
            const std::vector<double> grad(start.grad[t].begin(), start.grad[t].end());
            Doubles want{{start.param[t].begin(), start.param[t].end()},
                         decode(start.state1[t], n, is_positive(s.kind, 1)),
                         decode(start.state2[t], n, true),
                         std::vector<double>(n)};
            const std::vector<double> before = want.param;
            step_reference(s, kStep, 1, grad, want);
            expect_encoded(got.state1[t], want.state1, is_positive(s.kind, 1), kRounding,
                           what + ": first state");
            if (has_state(s, 2))
              expect_encoded(got.state2[t], want.state2, true, kRounding, what + ": second state");
            if (s.kind == OptimizerKind::lamb) {  // the norm is of the update as it can be computed again
              want = {before, decode(got.state1[t], n, false), decode(got.state2[t], n, true), want.state3};
              lamb_reference(s, kStep, want);
            }
            for (std::size_t i = 0; i < n; ++i)
              EXPECT_NEAR(double(got.param[t][i]), want.param[i],
                          tolerance.absolute + tolerance.relative * std::fabs(want.param[i]))
                  << what;
            all.insert(all.end(), got.param[t].begin(), got.param[t].end());
          }
          return all;
        },
        [](const auto&, const std::string&) {});
  }
}

std::vector<Settings> eight_bit_settings() {
  std::vector<Settings> all;
  for (Settings s : every_optimizer<Settings>()) {
    if (!may_be_of_8_bits(s)) continue;
    s.eight_bit_states = true;
    s.nesterov = s.kind == OptimizerKind::sgd;
    s.maximize = s.kind == OptimizerKind::adamw;
    if (s.kind == OptimizerKind::lion) s.beta1 = 0.89;
    all.push_back(s);
  }
  return all;
}

TEST(EightBitStates, Float64FollowsTheFormulas) {
  for (const Settings& s : eight_bit_settings()) check_eight_bits<double>(s, {1e-12, 1e-13});
}
TEST(EightBitStates, Float32FollowsTheFormulas) {
  for (const Settings& s : eight_bit_settings()) check_eight_bits<float>(s, {1e-5, 1e-5});
}

// States begin as bytes of 0; a step that is not applied changes no byte; what is not finite is seen in the parameter ever after.
TEST(EightBitStates, BeginAtZeroAreKeptAndShowWhatIsNotFinite) {
  for (const Settings& s : eight_bit_settings()) {
    EightBits<float> zeros(s.kind), floats(s.kind);
    for (auto* states : {&zeros.state1, &zeros.state2})
      for (auto& state : *states) std::fill(state.begin(), state.end(), std::uint8_t{0});
    const EightBits<float> before = zeros;
    zeros.step(cpu(), s, 1, false, false);
    EXPECT_EQ(zeros.param, before.param) << int(s.kind);
    EXPECT_EQ(zeros.state1, before.state1) << int(s.kind);
    EXPECT_EQ(zeros.state2, before.state2) << int(s.kind);
    zeros.grad[3][300] = NAN;
    zeros.step(cpu(), s, 1, true);
    EXPECT_TRUE(std::isnan(zeros.param[3][300])) << int(s.kind);
    EXPECT_TRUE(s.kind == OptimizerKind::lamb || std::isfinite(zeros.param[3][299])) << int(s.kind);
    EXPECT_TRUE(std::isfinite(zeros.param[4][300])) << int(s.kind);
    zeros.grad[3][300] = 0;
    zeros.step(cpu(), s, 2, true);
    EXPECT_TRUE(std::isnan(zeros.param[3][299])) << "the block is lost, optimizer " << int(s.kind);
    EXPECT_TRUE(s.kind == OptimizerKind::lamb || std::isfinite(zeros.param[3][200])) << int(s.kind);
  }
}

TEST(GlobalNorm, AddsAllTensors) {
  Tensors<float> all = tensors<float>(3);
  double squares = 0;
  for (const auto& tensor : all) {
    for (const float v : tensor) squares += double(v) * double(v);
  }
  const auto data = pointers(all);
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<float> out(1);
        GlobalNormArgs args{DType::f32, std::int64_t(kSizes.size()), kSizes.data(), data.data(), out.data(),
                            nullptr};
        std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
        args.workspace = workspace.data();
        k.global_norm(args);
        return out;
      },
      {std::sqrt(squares)}, {1e-6, 0});
}

// The first micro-batch writes, whatever the sums hold; the others add. Parts of 16 bits are widened.
TEST(Accumulate, AddsAllTensors) {
  Tensors<float> sums = tensors<float>(1), parts = tensors<float>(2);
  std::vector<std::vector<std::uint16_t>> low;
  std::vector<DType> types;
  std::vector<const void*> from;
  for (std::size_t t = 0; t < parts.size(); ++t) {
    for (float& v : parts[t]) v = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & 0xffff0000u);
    low.push_back(brains(parts[t]));
    types.push_back(t % 2 == 0 ? DType::f32 : DType::bf16);
    from.push_back(t % 2 == 0 ? static_cast<const void*>(parts[t].data()) : low[t].data());
  }
  for (const std::int64_t micro : {0, 2}) {
    std::vector<float> expected;
    for (std::size_t t = 0; t < sums.size(); ++t)
      for (std::size_t i = 0; i < sums[t].size(); ++i)
        expected.push_back((micro == 0 ? 0.0f : sums[t][i]) + parts[t][i] / 3.0f);
    on_every_level(
        [&](const CpuKernels& k) {
          Tensors<float> all = sums;
          if (micro == 0)
            for (auto& tensor : all) std::fill(tensor.begin(), tensor.end(), std::nanf(""));
          const auto to = pointers(all);
          const std::vector<const void*> old(to.begin(), to.end());
          AccumulateArgs args{DType::f32,    std::int64_t(kSizes.size()),
                              kSizes.data(), 3,
                              old.data(),    from.data(),
                              types.data(),  &micro,
                              to.data()};
          k.accumulate(args);
          std::vector<float> flat;
          for (const auto& tensor : all) flat.insert(flat.end(), tensor.begin(), tensor.end());
          return flat;
        },
        [&](const std::vector<float>& all, const std::string& level) {
          EXPECT_EQ(all, expected) << level << ", micro-batch " << micro;
        });
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
