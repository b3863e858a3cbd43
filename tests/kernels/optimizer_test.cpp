// Optimizer updates against the published formulas in double over several steps; the global norm.
#include "tests/kernels/optimizer_support.h"
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

struct Settings {
  OptimizerKind kind;
  double lr = 0.01, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.02;
  double momentum = 0, dampening = 0, lr_decay = 0, initial_sum = 0;
  bool nesterov = false, maximize = false, correct_bias = true;
  double lr_factor = 1, clip_value = 0;
};

std::size_t states_of(const Settings& s) {
  switch (s.kind) {
    case OptimizerKind::sgd: return s.momentum != 0 ? 1 : 0;
    case OptimizerKind::adagrad:
    case OptimizerKind::lion: return 1;
    default: return 2;
  }
}

const std::vector<std::int64_t> kSizes = {1, 0, 8192, 8193, 70001, 17};

// One step of one tensor in double.
void step_reference(Settings s, std::int64_t t, double scale, std::vector<double>& p, std::vector<double>& m,
                    std::vector<double>& v, const std::vector<double>& grad) {
  s.lr *= s.lr_factor;
  std::vector<double> update(p.size());
  double p2 = 0, u2 = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    double g = grad[i] * scale;
    if (s.clip_value > 0) g = std::clamp(g, -s.clip_value, s.clip_value);
    if (s.maximize) g = -g;
    if (s.kind == OptimizerKind::sgd) {
      g += s.weight_decay * p[i];
      if (s.momentum != 0) {
        m[i] = t == 1 ? g : s.momentum * m[i] + (1 - s.dampening) * g;
        g = s.nesterov ? g + s.momentum * m[i] : m[i];
      }
      p[i] -= s.lr * g;
      continue;
    }
    if (s.kind == OptimizerKind::adagrad) {
      g += s.weight_decay * p[i];
      m[i] = (t == 1 ? s.initial_sum : m[i]) + g * g;
      p[i] -= s.lr / (1 + double(t - 1) * s.lr_decay) * g / (std::sqrt(m[i]) + s.epsilon);
      continue;
    }
    if (s.kind == OptimizerKind::lion) {
      const double c = s.beta1 * m[i] + (1 - s.beta1) * g;
      p[i] -= s.lr * ((c > 0) - (c < 0) + s.weight_decay * p[i]);
      m[i] = s.beta2 * m[i] + (1 - s.beta2) * g;
      continue;
    }
    if (s.kind == OptimizerKind::adam) g += s.weight_decay * p[i];
    if (s.kind == OptimizerKind::adamw) p[i] *= 1 - s.lr * s.weight_decay;
    m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
    v[i] = s.beta2 * v[i] + (1 - s.beta2) * g * g;
    if (s.kind == OptimizerKind::adamw_hf) {
      const double rate = s.correct_bias ? s.lr * std::sqrt(1 - std::pow(s.beta2, double(t))) /
                                               (1 - std::pow(s.beta1, double(t)))
                                         : s.lr;
      p[i] -= rate * m[i] / (std::sqrt(v[i]) + s.epsilon);
      p[i] -= s.lr * s.weight_decay * p[i];
      continue;
    }
    const double m_hat = m[i] / (1 - std::pow(s.beta1, double(t))),
                 v_hat = v[i] / (1 - std::pow(s.beta2, double(t)));
    update[i] = m_hat / (std::sqrt(v_hat) + s.epsilon);
    if (s.kind == OptimizerKind::lamb) {
      update[i] += s.weight_decay * p[i];
      p2 += p[i] * p[i];
      u2 += update[i] * update[i];
    } else {
      p[i] -= s.lr * update[i];
    }
  }
  if (s.kind != OptimizerKind::lamb) return;
  const double trust = p2 > 0 && u2 > 0 ? std::sqrt(p2 / u2) : 1;
  for (std::size_t i = 0; i < p.size(); ++i) p[i] -= s.lr * trust * update[i];
}

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
void check(const Settings& s, bool scaled, Tolerance tolerance) {
  constexpr int kSteps = 5;
  const T scale = T(0.5);
  Tensors<double> p(kSizes.size()), m = tensors<double>(0, true), v = m;
  const Tensors<T> start = tensors<T>(10);
  for (std::size_t t = 0; t < start.size(); ++t) p[t].assign(start[t].begin(), start[t].end());
  std::vector<Tensors<T>> grads;
  for (int step = 1; step <= kSteps; ++step) {
    grads.push_back(tensors<T>(100 * std::uint64_t(step)));
    const Tensors<T>& grad = grads.back();
    for (std::size_t t = 0; t < grad.size(); ++t) {
      step_reference(s, step, scaled ? double(scale) : 1.0, p[t], m[t], v[t],
                     {grad[t].begin(), grad[t].end()});
    }
  }
  std::vector<double> expected;
  for (const auto* group : {&p, &m, &v}) {
    for (const auto& tensor : *group) expected.insert(expected.end(), tensor.begin(), tensor.end());
  }
  for (const bool in_place : {true, false}) {
    expect_on_every_level(
        [&](const CpuKernels& k) {
          Tensors<T> param = start, state1 = tensors<T>(0, true), state2 = state1;
          if ((s.kind == OptimizerKind::sgd && s.momentum != 0) || s.kind == OptimizerKind::adagrad)
            state1[0][0] = T(NAN);  // the first state is not read
          for (std::int64_t step = 1; step <= kSteps; ++step) {
            Tensors<T>& grad = grads[std::size_t(step - 1)];
            Tensors<T> param_new = param, state1_new = state1, state2_new = state2;
            const auto g = pointers(grad), p0 = pointers(param), s1 = pointers(state1), s2 = pointers(state2);
            const auto p_out = in_place ? p0 : pointers(param_new),
                       s1_out = in_place ? s1 : pointers(state1_new),
                       s2_out = in_place ? s2 : pointers(state2_new);
            OptimizerArgs args = arguments<T>(s);
            args.step = &step;
            args.grad_scale = scaled ? &scale : nullptr;
            args.grad = g.data();
            args.param = p0.data();
            args.param_out = p_out.data();
            if (states_of(s) > 0) args.state1 = s1.data(), args.state1_out = s1_out.data();
            if (states_of(s) > 1) args.state2 = s2.data(), args.state2_out = s2_out.data();
            std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
            args.workspace = workspace.data();
            k.optimizer(args);
            if (!in_place) {
              param = param_new;
              state1 = state1_new;
              state2 = state2_new;
            }
          }
          std::vector<T> all;
          for (const auto* group : {&param, &state1, &state2}) {
            for (const auto& tensor : *group) all.insert(all.end(), tensor.begin(), tensor.end());
          }
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
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::lamb,
        OptimizerKind::adagrad, OptimizerKind::lion, OptimizerKind::adamw_hf}) {
    Settings clipped{.kind = kind, .maximize = true, .lr_factor = 0.3, .clip_value = 0.2};
    if (kind == OptimizerKind::sgd) clipped.momentum = 0.9;
    check<T>(clipped, true, tolerance);
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

}  // namespace
}  // namespace gradloom::kernels::test
