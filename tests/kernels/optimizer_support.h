// What the tests of the optimizers' kernels share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string_view>
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
          .alpha = s.alpha,
          .momentum_decay = s.momentum_decay,
          .nesterov = s.nesterov,
          .maximize = s.maximize,
          .correct_bias = s.correct_bias,
          .amsgrad = s.amsgrad,
          .centered = s.centered,
          .decoupled = s.decoupled,
          .eight_bit_states = s.eight_bit_states,
          .lr_factor = s.lr_factor,
          .clip_value = s.clip_value};
}

// What the rows of kernels/optimizers.def say of a state: whether it is there with these settings, and its range. `state`: from 1.
struct OptimizerStateOf {
  OptimizerKind kind;
  int number;
  StateRange range;
  std::string_view needs;
};
inline const std::vector<OptimizerStateOf>& optimizer_states_of_rows() {
  static const std::vector<OptimizerStateOf> all = [] {
    std::vector<OptimizerStateOf> found;
#define STATE(number, name, form, range, needs) {number, StateRange::range, needs},
#define OPTIMIZER(name, title, lr, states, ...)                                 \
  {                                                                             \
    struct Row {                                                                \
      int number;                                                               \
      StateRange range;                                                         \
      const char* needs;                                                        \
    };                                                                          \
    for (const Row& row : std::initializer_list<Row>{states})                   \
      found.push_back({OptimizerKind::name, row.number, row.range, row.needs}); \
  }
#include "kernels/optimizers.def"
#undef OPTIMIZER
#undef STATE
    return found;
  }();
  return all;
}
template <class Settings>
bool has_state(const Settings& s, int number) {
  for (const OptimizerStateOf& state : optimizer_states_of_rows()) {
    if (state.kind != s.kind || state.number != number) continue;
    return state.needs.empty() || (state.needs == "momentum" && s.momentum != 0) ||
           (state.needs == "amsgrad" && s.amsgrad) || (state.needs == "centered" && s.centered);
  }
  return false;
}
inline bool is_positive(OptimizerKind kind, int number) {
  for (const OptimizerStateOf& state : optimizer_states_of_rows())
    if (state.kind == kind && state.number == number) return state.range == StateRange::positive;
  return false;
}
// All but Adafactor, with states where the row has some, and those of a third state.
template <class Settings>
std::vector<Settings> every_optimizer() {
  std::vector<Settings> all;
  const auto add = [&](OptimizerKind kind, bool third) {
    Settings s{};
    s.kind = kind;
    if (kind == OptimizerKind::sgd || kind == OptimizerKind::rmsprop) s.momentum = 0.9;
    s.amsgrad = third && kind != OptimizerKind::rmsprop;
    s.centered = third && kind == OptimizerKind::rmsprop;
    all.push_back(s);
  };
#define OPTIMIZER(name, ...) \
  if (OptimizerKind::name != OptimizerKind::adafactor) add(OptimizerKind::name, false);
#include "kernels/optimizers.def"
#undef OPTIMIZER
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::rmsprop})
    add(kind, true);
  return all;
}

// ---- states of 8 bits ------------------------------------------------------------------------------------------

// RMSprop has no such option, and a third state is not of 8 bits.
template <class Settings>
bool may_be_of_8_bits(const Settings& s) {
  return s.kind != OptimizerKind::rmsprop && !has_state(s, 3);
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
