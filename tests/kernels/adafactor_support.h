// Calls of Adafactor's kernel, for the tests of the CPU's and of the GPUs'.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/arguments.h"

namespace gradloom::kernels::test {

struct AdafactorSettings {
  double lr = 1, lr_factor = 1, beta1 = 0, epsilon = 1e-30, epsilon2 = 1e-3, weight_decay = 0;
  double clip_threshold = 1, decay_rate = -0.8, clip_value = 0;
  bool scale_parameter = true, relative_step = true, warmup_init = false, maximize = false;
  bool factored = true, scaled = false;
};

struct AdafactorShape {
  std::int64_t matrices, rows, columns;
  std::int64_t elements() const { return matrices * rows * columns; }
};

// Of one tensor; states that it has not are empty.
template <class T>
struct AdafactorState {
  std::vector<T> param, state1, state2, state3;
};
template <class T>
using AdafactorTensors = std::vector<AdafactorState<T>>;

// All zeros.
template <class T>
AdafactorState<T> adafactor_state(const AdafactorSettings& s, const AdafactorShape& shape) {
  const auto zeros = [](std::int64_t n) { return std::vector<T>(std::size_t(n)); };
  const std::int64_t n = shape.elements();
  return {zeros(n), zeros(s.factored ? shape.matrices * shape.rows : n),
          zeros(s.factored ? shape.matrices * shape.columns : 0), zeros(s.beta1 > 0 ? n : 0)};
}

// The argument struct of a call, and the lists that it points to.
class AdafactorCall {
 public:
  AdafactorCall(const AdafactorSettings& s, DType dtype, const std::vector<AdafactorShape>& shapes)
      : settings_(s), dtype_(dtype) {
    for (const AdafactorShape& shape : shapes) {
      sizes_.push_back(shape.elements());
      rows_.push_back(shape.rows);
      columns_.push_back(shape.columns);
    }
  }
  template <class Grad, class From, class To>
  void add(const Grad& grad, const From& from, To& to) {
    grad_.push_back(grad.data());
    param_.push_back(from.param.data());
    state1_.push_back(from.state1.data());
    state2_.push_back(from.state2.data());
    state3_.push_back(from.state3.data());
    param_out_.push_back(to.param.data());
    state1_out_.push_back(to.state1.data());
    state2_out_.push_back(to.state2.data());
    state3_out_.push_back(to.state3.data());
  }
  // Without step, grad_scale, apply and workspace.
  OptimizerArgs args() const {
    const AdafactorSettings& s = settings_;
    const bool averaged = s.beta1 > 0;
    return {.dtype = dtype_,
            .kind = OptimizerKind::adafactor,
            .count = std::int64_t(sizes_.size()),
            .sizes = sizes_.data(),
            .beta1 = s.beta1,
            .epsilon = s.epsilon,
            .weight_decay = s.weight_decay,
            .epsilon2 = s.epsilon2,
            .clip_threshold = s.clip_threshold,
            .decay_rate = s.decay_rate,
            .maximize = s.maximize,
            .scale_parameter = s.scale_parameter,
            .relative_step = s.relative_step,
            .warmup_init = s.warmup_init,
            .lr_factor = s.lr_factor,
            .clip_value = s.clip_value,
            .factored = s.factored,
            .rows = rows_.data(),
            .columns = columns_.data(),
            .lr = &settings_.lr,
            .grad = grad_.data(),
            .param = param_.data(),
            .state1 = state1_.data(),
            .state2 = s.factored ? state2_.data() : nullptr,
            .state3 = averaged ? state3_.data() : nullptr,
            .param_out = param_out_.data(),
            .state1_out = state1_out_.data(),
            .state2_out = s.factored ? state2_out_.data() : nullptr,
            .state3_out = averaged ? state3_out_.data() : nullptr};
  }

 private:
  AdafactorSettings settings_;
  DType dtype_;
  std::vector<std::int64_t> sizes_, rows_, columns_;
  std::vector<const void*> grad_, param_, state1_, state2_, state3_;
  std::vector<void*> param_out_, state1_out_, state2_out_, state3_out_;
};

}  // namespace gradloom::kernels::test
