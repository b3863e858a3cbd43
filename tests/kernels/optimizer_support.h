// What the tests of the optimizers' kernels share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/block_quantization.h"

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
          .eight_bit_states = s.eight_bit_states,
          .lr_factor = s.lr_factor,
          .clip_value = s.clip_value};
}

// ---- states of 8 bits ------------------------------------------------------------------------------------------

inline bool is_positive(OptimizerKind kind, int state) {
  return state == 2 || kind == OptimizerKind::adagrad;
}

inline float scale_in(const std::vector<std::uint8_t>& encoded, std::size_t i) {
  float scale = 0;
  std::memcpy(&scale, encoded.data() + i / portable::kCodeBlock * sizeof scale, sizeof scale);
  return scale;
}
inline std::vector<double> decode(const std::vector<std::uint8_t>& encoded, std::size_t count,
                                  bool positive) {
  std::vector<double> numbers(count);
  for (std::size_t i = 0; i < count; ++i)
    numbers[i] =
        double(portable::map_value(encoded[encoded.size() - count + i], positive)) * scale_in(encoded, i);
  return numbers;
}
inline std::vector<std::uint8_t> encode(const std::vector<double>& numbers, bool positive) {
  std::vector<std::uint8_t> encoded(std::size_t(portable::encoded_bytes(std::int64_t(numbers.size()))));
  for (std::size_t begin = 0; begin < numbers.size(); begin += portable::kCodeBlock) {
    const std::size_t end = std::min(begin + portable::kCodeBlock, numbers.size());
    const auto [least, most] =
        std::minmax_element(numbers.begin() + std::ptrdiff_t(begin), numbers.begin() + std::ptrdiff_t(end));
    const float scale = portable::block_scale(*least, *most);
    std::memcpy(encoded.data() + begin / portable::kCodeBlock * sizeof scale, &scale, sizeof scale);
    for (std::size_t i = begin; i < end; ++i)
      encoded[encoded.size() - numbers.size() + i] =
          std::uint8_t(positive ? portable::code_in_block<true>(numbers[i], scale)
                                : portable::code_in_block<false>(numbers[i], scale));
  }
  return encoded;
}

}  // namespace gradloom::kernels::test
