// What the tests of the optimizers' kernels share.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/arguments.h"

namespace gradloom::kernels::test {

// The options in settings that have members of these names; without tensors and what a step reads.
template <class Settings>
OptimizerArgs optimizer_options(const Settings& s, DType dtype, const std::vector<std::int64_t>& sizes) {
  return {.dtype = dtype,
          .kind = s.kind,
          .count = std::int64_t(sizes.size()),
          .sizes = sizes.data(),
          .beta1 = s.beta1,
          .beta2 = s.beta2,
          .epsilon = s.epsilon,
          .weight_decay = s.weight_decay,
          .momentum = s.momentum,
          .dampening = s.dampening,
          .lr_decay = s.lr_decay,
          .initial_sum = s.initial_sum,
          .nesterov = s.nesterov,
          .maximize = s.maximize,
          .correct_bias = s.correct_bias,
          .lr_factor = s.lr_factor,
          .clip_value = s.clip_value};
}

}  // namespace gradloom::kernels::test
