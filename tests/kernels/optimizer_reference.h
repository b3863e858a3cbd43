// One step of the optimizers by the formulas of kernels/optimizers.def, in double and element by element: what the kernels are held
// against. Adafactor's stands in adafactor_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/optimizer_kind.h"

namespace gradloom::kernels::test {

struct OptimizerSettings {
  OptimizerKind kind;
  double lr = 0.01, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.02;
  double momentum = 0, dampening = 0, lr_decay = 0, initial_sum = 0;
  double alpha = 0.95, momentum_decay = 0.02;
  bool nesterov = false, maximize = false, correct_bias = true;
  bool amsgrad = false, centered = false, decoupled = false;
  double lr_factor = 1, clip_value = 0;
  bool eight_bit_states = false;
};

// A parameter or one element of it, with its states.
template <class Numbers>
struct OptimizerTensor {
  Numbers param{}, state1{}, state2{}, state3{};
};
using OptimizerElement = OptimizerTensor<double>;

inline double correction(double beta, std::int64_t t) { return 1 - std::pow(beta, double(t)); }

inline double adam_reference(const OptimizerSettings& s, std::int64_t t, double m, double v) {
  return m / correction(s.beta1, t) / (std::sqrt(v / correction(s.beta2, t)) + s.epsilon);
}

inline double nadam_reference(const OptimizerSettings& s, std::int64_t t, double g, double m, double v) {
  const auto mu = [&](std::int64_t step) {
    return s.beta1 * (1 - 0.5 * std::pow(0.96, double(step) * s.momentum_decay));
  };
  double product = 1;
  for (std::int64_t step = 1; step <= t; ++step) product *= mu(step);
  const double all = (1 - mu(t)) / (1 - product) * g + mu(t + 1) / (1 - product * mu(t + 1)) * m;
  return all / (std::sqrt(v / correction(s.beta2, t)) + s.epsilon);
}

inline double radam_reference(const OptimizerSettings& s, std::int64_t t, double m, double v) {
  const double all = 2 / (1 - s.beta2) - 1, m_hat = m / correction(s.beta1, t);
  const double length = all - 2 * double(t) * std::pow(s.beta2, double(t)) / correction(s.beta2, t);
  if (length <= 5) return m_hat;
  const double rectified = std::sqrt((length - 4) * (length - 2) * all / ((all - 4) * (all - 2) * length));
  return m_hat * rectified * std::sqrt(correction(s.beta2, t)) / (std::sqrt(v) + s.epsilon);
}

// Those with moments; LAMB's parameter follows when all moments are there.
inline void moment_reference(const OptimizerSettings& s, std::int64_t t, double g, OptimizerElement& e) {
  const bool newer = s.kind == OptimizerKind::nadam || s.kind == OptimizerKind::radam;
  if (s.kind == OptimizerKind::adam || (newer && !s.decoupled)) g += s.weight_decay * e.param;
  if (s.kind == OptimizerKind::adamw || (newer && s.decoupled)) e.param *= 1 - s.lr * s.weight_decay;
  e.state1 = s.beta1 * e.state1 + (1 - s.beta1) * g;
  e.state2 = s.beta2 * e.state2 + (1 - s.beta2) * g * g;
  if (s.kind == OptimizerKind::nadam) {
    e.param -= s.lr * nadam_reference(s, t, g, e.state1, e.state2);
  } else if (s.kind == OptimizerKind::radam) {
    e.param -= s.lr * radam_reference(s, t, e.state1, e.state2);
  } else if (s.kind == OptimizerKind::adamw_hf) {
    const double rate =
        s.correct_bias ? s.lr * std::sqrt(correction(s.beta2, t)) / correction(s.beta1, t) : s.lr;
    e.param -= rate * e.state1 / (std::sqrt(e.state2) + s.epsilon);
    e.param -= s.lr * s.weight_decay * e.param;
  } else if (s.kind != OptimizerKind::lamb) {
    if (s.amsgrad) e.state3 = std::max(e.state3, e.state2);
    e.param -= s.lr * adam_reference(s, t, e.state1, s.amsgrad ? e.state3 : e.state2);
  }
}

inline void rmsprop_reference(const OptimizerSettings& s, double g, OptimizerElement& e) {
  e.state1 = s.alpha * e.state1 + (1 - s.alpha) * g * g;
  if (s.centered) e.state3 = s.alpha * e.state3 + (1 - s.alpha) * g;
  const double spread = s.centered ? std::max(0.0, e.state1 - e.state3 * e.state3) : e.state1;
  double update = g / (std::sqrt(spread) + s.epsilon);
  if (s.momentum != 0) update = e.state2 = s.momentum * e.state2 + update;
  e.param -= s.lr * update;
}

// g: scaled, clipped and with its sign.
inline void element_reference(const OptimizerSettings& s, std::int64_t t, double g, OptimizerElement& e) {
  const double decayed = g + s.weight_decay * e.param;
  switch (s.kind) {
    case OptimizerKind::sgd: {
      double step = decayed;
      if (s.momentum != 0) {
        e.state1 = t == 1 ? decayed : s.momentum * e.state1 + (1 - s.dampening) * decayed;
        step = s.nesterov ? decayed + s.momentum * e.state1 : e.state1;
      }
      e.param -= s.lr * step;
      return;
    }
    case OptimizerKind::adagrad:
      e.state1 = (t == 1 ? s.initial_sum : e.state1) + decayed * decayed;
      e.param -= s.lr / (1 + double(t - 1) * s.lr_decay) * decayed / (std::sqrt(e.state1) + s.epsilon);
      return;
    case OptimizerKind::lion: {
      const double c = s.beta1 * e.state1 + (1 - s.beta1) * g;
      e.param -= s.lr * ((c > 0) - (c < 0) + s.weight_decay * e.param);
      e.state1 = s.beta2 * e.state1 + (1 - s.beta2) * g;
      return;
    }
    case OptimizerKind::rmsprop: return rmsprop_reference(s, decayed, e);
    case OptimizerKind::adadelta: {
      e.state1 = s.alpha * e.state1 + (1 - s.alpha) * decayed * decayed;
      const double update = std::sqrt(e.state2 + s.epsilon) / std::sqrt(e.state1 + s.epsilon) * decayed;
      e.state2 = s.alpha * e.state2 + (1 - s.alpha) * update * update;
      e.param -= s.lr * update;
      return;
    }
    default: return moment_reference(s, t, g, e);
  }
}

// LAMB's step of a parameter whose moments are the new ones.
inline void lamb_reference(const OptimizerSettings& s, std::int64_t t,
                           OptimizerTensor<std::vector<double>>& all) {
  std::vector<double>& p = all.param;
  std::vector<double> update(p.size());
  double p2 = 0, u2 = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    update[i] = adam_reference(s, t, all.state1[i], all.state2[i]) + s.weight_decay * p[i];
    p2 += p[i] * p[i];
    u2 += update[i] * update[i];
  }
  const double trust = p2 > 0 && u2 > 0 ? std::sqrt(p2 / u2) : 1;
  for (std::size_t i = 0; i < p.size(); ++i) p[i] -= s.lr * trust * update[i];
}

// One step of one tensor.
inline void step_reference(OptimizerSettings s, std::int64_t t, double scale, const std::vector<double>& grad,
                           OptimizerTensor<std::vector<double>>& all) {
  s.lr *= s.lr_factor;
  for (std::size_t i = 0; i < grad.size(); ++i) {
    double g = grad[i] * scale;
    if (s.clip_value > 0) g = std::clamp(g, -s.clip_value, s.clip_value);
    if (s.maximize) g = -g;
    OptimizerElement e{all.param[i], all.state1[i], all.state2[i], all.state3[i]};
    element_reference(s, t, g, e);
    all.param[i] = e.param;
    all.state1[i] = e.state1;
    all.state2[i] = e.state2;
    all.state3[i] = e.state3;
  }
  if (s.kind == OptimizerKind::lamb) lamb_reference(s, t, all);
}

}  // namespace gradloom::kernels::test
