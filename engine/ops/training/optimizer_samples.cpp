// The samples of operator Optimizer (optimizer.cpp).
#include <cmath>
#include <string>
#include <utility>

#include "engine/ops/dims.h"
#include "engine/ops/samples.h"
#include "engine/ops/training/optimizer_layout.h"
#include "kernels/block_quantization.h"

namespace gradloom {
namespace {

using kernels::StateRange;
using namespace kernels::portable;  // block_quantization.h
using namespace optimizer_inputs;

// A state of 8 bits and the gradient beside it, such that bytes can be compared: the next scales are exact in f32, and no next number
// lies in the middle of two codes, where a rounding decides. The first number of each block is the largest in both.
SampleInput encoded(std::int64_t numbers, bool positive) {
  const std::int64_t blocks = code_blocks(numbers);
  std::vector<double> contents;
  for (std::int64_t i = 0; i < blocks; ++i) contents.insert(contents.end(), {0, 0, 0, 63});  // 0.5f
  for (std::int64_t i = 0; i < numbers; ++i)
    contents.push_back(static_cast<double>(i % kCodeBlock == 0 ? 255
                                           : positive          ? 40 + i * 37 % 215
                                                               : i * 37 % 255));
  const Type type{DType::u8, {as_dim(contents.size())}};
  return exact(type.dtype, type.shape, std::move(contents));
}
SampleInput beside_encoded(const Shape& shape) {
  std::vector<double> contents;
  for (std::int64_t i = 0; i < element_count(shape); ++i)
    contents.push_back(i % kCodeBlock == 0 ? 1 : static_cast<double>(i * 29 % 127 - 63) / 64.37 + 0.00217);
  return exact(DType::f32, shape, std::move(contents));
}

// `shapes`: of the parameters; second moments are positive. apply: -1 omitted.
Sample sample(const char* name, Attrs attrs, const std::vector<Shape>& shapes, std::int64_t step, bool scaled,
              int apply = -1) {
  attrs.set("n", as_dim(shapes.size()));
  auto l = optimizer_layout(attrs);
  CHECK(l.ok(), "sample of an invalid Optimizer");
  Sample s;
  s.name = name;
  s.inputs = {exact(DType::f64, {}, {0.1}), exact(DType::i64, {}, {static_cast<double>(step)}),
              scaled ? exact(DType::f32, {}, {0.5}) : omitted(),
              apply < 0 ? omitted() : exact(DType::boolean, {}, {static_cast<double>(apply)})};
  for (const Shape& shape : shapes) s.inputs.push_back(floats(shape));
  for (const Shape& shape : shapes) s.inputs.push_back(l->eight_bit ? beside_encoded(shape) : floats(shape));
  for (const OptimizerRowState& state : l->states) {
    const bool positive = state.range == StateRange::positive;
    for (const Shape& shape : shapes) {
      const auto type = optimizer_state_type(*l, {DType::f32, shape}, state.form);
      CHECK(type.ok(), "sample of a parameter that cannot be factored");
      s.inputs.push_back(l->eight_bit ? encoded(element_count(shape), positive)
                         : positive   ? floats(type->shape, 0.1, 1)
                                      : floats(type->shape));
    }
  }
  s.output_count = static_cast<int>(l->outputs());
  s.attrs = std::move(attrs);
  return s;
}

// The same with gradients and copies in 16 bits beside parameters that keep theirs.
Sample in_16_bits(const char* name, Attrs attrs, const std::vector<Shape>& shapes, DType low,
                  const std::vector<std::int64_t>& copies, int apply = -1) {
  Sample s = sample(name, std::move(attrs), shapes, 3, true, apply);
  s.attrs.set("copies", copies);
  const std::size_t n = shapes.size();
  for (std::size_t i = kScale; i < s.inputs.size(); ++i) s.inputs[i].statistic = i != kApply;
  for (std::size_t i = 0; i < n; i += 2) s.inputs[kFirst + n + i].type.dtype = low;
  for (const std::int64_t copy : copies) {
    s.inputs.push_back(floats(shapes[static_cast<std::size_t>(copy)]));
    s.inputs.back().type.dtype = low;
  }
  s.output_count += static_cast<int>(copies.size());
  return s;
}

// Parameters of bf16 with keys.
Sample rounded_at_random(const char* name, Attrs attrs, const std::vector<Shape>& shapes) {
  Sample s = in_16_bits(name, std::move(attrs), shapes, DType::bf16, {});
  s.attrs.erase("copies");
  std::vector<std::int64_t> keys;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    s.inputs[kFirst + i] = exact(DType::bf16, shapes[i],
                                 std::vector<double>(static_cast<std::size_t>(element_count(shapes[i])),
                                                     0.5 + 0.25 * static_cast<double>(i)));
    keys.push_back(static_cast<std::int64_t>(77 + i));
  }
  s.attrs.set("keys", keys);
  return s;
}

// Of two rows, the second with the rate alone.
Sample with_table(Sample s) {
  const double none = std::nan("");
  s.inputs[0] = exact(DType::f64, {2, as_dim(kColumns)},
                      {0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.1, none, none, none, none, none});
  return s;
}

std::vector<Sample> eight_bit_samples() {
  const auto eight = [](const char* name) {
    return Attrs{{"kind", std::string(name)},
                 {"beta1", 0.5},
                 {"beta2", 0.5},
                 {"momentum", 0.5},
                 {"eight_bit_states", std::int64_t{1}}};
  };
  return {
      sample("adamw-eight-bit", eight("adamw"), {{3, 5}, {2, 300}}, 3, true),
      sample("adam-eight-bit", eight("adam"), {{8200}}, 3, false),
      sample("lamb-eight-bit", eight("lamb"), {{3, 5}, {520}}, 3, true),
      sample("lion-eight-bit", eight("lion"), {{257}}, 3, false),
      sample("adagrad-eight-bit", eight("adagrad"), {{256}, {4}}, 5, false),
      sample("adamw-hf-eight-bit", eight("adamw_hf"), {{300}}, 3, false),
      sample("nadam-eight-bit", eight("nadam"), {{300}}, 3, true),
      sample("radam-eight-bit", eight("radam"), {{257}, {4}}, 7, false),
      sample("sgd-eight-bit", eight("sgd"), {{300}, {4}}, 3, false),
      sample("adamw-eight-bit-skipped", eight("adamw"), {{3, 100}}, 3, false, 0),
      in_16_bits("adamw-eight-bit-bf16-copies", eight("adamw"), {{3, 100}, {4}}, DType::bf16, {0}),
  };
}

Attrs kind(const char* name, Attrs more = {}) {
  more.set("kind", std::string(name));
  more.set("weight_decay", 0.01);
  return more;
}

// RMSprop, NAdam, RAdam, Adadelta, and AMSGrad of Adam and AdamW.
std::vector<Sample> variant_samples() {
  const Attrs largest = kind("adamw", {{"amsgrad", std::int64_t{1}}}),
              centered =
                  kind("rmsprop", {{"momentum", 0.9}, {"centered", std::int64_t{1}}, {"epsilon", 0.5}}),
              decoupled = kind("nadam", {{"decoupled", std::int64_t{1}}, {"momentum_decay", 0.3}}),
              young = kind("radam", {{"decoupled", std::int64_t{1}}});
  return {
      sample("adam-amsgrad", kind("adam", {{"amsgrad", std::int64_t{1}}}), {{3, 5}, {4}}, 3, true),
      sample("adamw-amsgrad", largest, {{3, 5}, {}}, 1, false),
      sample("rmsprop", kind("rmsprop"), {{3, 5}, {4}}, 3, true),
      sample("rmsprop-momentum", kind("rmsprop", {{"momentum", 0.9}}), {{3, 5}, {4}}, 3, false),
      sample("rmsprop-centered", centered, {{3, 5}, {4}}, 1, true),
      sample("nadam", kind("nadam"), {{3, 5}, {4}}, 3, true),
      sample("nadam-decoupled", decoupled, {{3, 5}, {4}}, 1, false),
      sample("radam", kind("radam"), {{3, 5}, {4}}, 9, true),
      sample("radam-young", young, {{3, 5}, {4}}, 2, false),
      sample("adadelta", kind("adadelta"), {{3, 5}, {4}}, 3, true),
      sample("adamw-amsgrad-skipped", largest, {{3, 5}, {4}}, 3, false, 0),
      sample("rmsprop-skipped", centered, {{3, 5}, {4}}, 3, true, 0),
      sample("nadam-skipped", kind("nadam"), {{3, 5}, {4}}, 3, false, 0),
      sample("radam-skipped", kind("radam"), {{3, 5}, {4}}, 9, false, 0),
      sample("adadelta-skipped", kind("adadelta"), {{3, 5}, {4}}, 3, true, 0),
      in_16_bits("adamw-amsgrad-bf16-copies", largest, {{3, 5}, {4}}, DType::bf16, {0, 1}),
      in_16_bits("rmsprop-f16-copies", centered, {{3, 5}, {4}}, DType::f16, {1}),
      in_16_bits("nadam-bf16-copies", kind("nadam"), {{3, 5}, {4}}, DType::bf16, {0}),
      in_16_bits("radam-bf16-gradients", kind("radam"), {{3, 5}, {4}}, DType::bf16, {}),
      in_16_bits("adadelta-bf16-copies", kind("adadelta"), {{3, 5}, {4}}, DType::bf16, {0}),
  };
}

}  // namespace

std::vector<Sample> optimizer_samples() {
  const Attrs of_parts = kind("lamb", {{"ratio_in_lr", std::int64_t{1}}}),
              momentum = kind("sgd", {{"momentum", 0.9}, {"dampening", 0.1}}),
              nesterov = kind("sgd", {{"momentum", 0.9}, {"nesterov", std::int64_t{1}}}),
              adagrad = kind("adagrad", {{"lr_decay", 0.1}, {"initial_sum", 0.5}}),
              uncorrected = kind("adamw_hf", {{"correct_bias", std::int64_t{0}}}),
              factored = kind("adafactor", {{"factored", std::int64_t{1}}}),
              averaged =
                  kind("adafactor",
                       {{"factored", std::int64_t{1}}, {"beta1", 0.9}, {"relative_step", std::int64_t{0}}}),
              second = kind("adamw", {{"row", std::int64_t{1}}}),
              clipped = kind("adamw", {{"clip_value", 0.2}, {"lr_factor", 0.5}});
  std::vector<Sample> all = {
      sample("sgd", kind("sgd"), {{3, 5}}, 1, false),
      sample("sgd-momentum", momentum, {{3, 5}, {7}}, 1, false),
      sample("sgd-momentum-later", momentum, {{3, 5}, {7}}, 4, true),
      sample("sgd-nesterov", nesterov, {{9}}, 2, false),
      sample("adam", kind("adam"), {{3, 5}, {}}, 1, false),
      sample("adam-scaled", kind("adam"), {{2, 2}}, 10, true),
      sample("adamw", kind("adamw"), {{3, 5}, {4}, {1}}, 3, false),
      sample("lamb", kind("lamb"), {{3, 5}, {4}}, 3, true),
      sample("lamb-of-parts", of_parts, {{3, 5}, {4}}, 3, true),
      sample("adagrad", adagrad, {{3, 5}, {4}}, 1, false),
      sample("adagrad-later", adagrad, {{3, 5}, {4}}, 5, true),
      sample("lion", kind("lion"), {{3, 5}, {4}}, 3, true),
      sample("adamw-hf", kind("adamw_hf"), {{3, 5}, {4}}, 3, false),
      sample("adamw-hf-uncorrected", uncorrected, {{9}}, 3, true),
      sample("adafactor", factored, {{3, 5}, {2, 3, 4}}, 1, false),
      sample("adafactor-averaged", averaged, {{3, 5}, {1, 7}, {2, 1}}, 4, true),
      sample("adafactor-unfactored", kind("adafactor"), {{5}, {}}, 3, false),
      sample("adamw-clipped", clipped, {{3, 5}, {4}}, 3, true),
      sample("sgd-skipped", momentum, {{3, 5}, {7}}, 4, true, 0),
      sample("adamw-skipped", kind("adamw"), {{3, 5}, {4}}, 3, true, 0),
      sample("adamw-applied", kind("adamw"), {{3, 5}, {4}}, 3, true, 1),
      sample("lamb-skipped", kind("lamb"), {{3, 5}, {4}}, 3, false, 0),
      sample("adagrad-skipped", adagrad, {{3, 5}, {4}}, 1, true, 0),
      sample("lion-skipped", kind("lion"), {{3, 5}, {4}}, 3, false, 0),
      sample("adafactor-skipped", averaged, {{3, 5}, {2, 3, 4}}, 3, true, 0),
      in_16_bits("sgd-bf16-copies", momentum, {{3, 5}, {7}, {9}}, DType::bf16, {0, 2}),
      in_16_bits("adamw-f16-copies", clipped, {{3, 5}, {7}}, DType::f16, {1}),
      in_16_bits("lamb-bf16-copies", kind("lamb"), {{3, 5}, {4}}, DType::bf16, {0}),
      in_16_bits("lion-bf16-gradients", kind("lion"), {{3, 5}, {4}}, DType::bf16, {}),
      in_16_bits("adagrad-bf16-copies", adagrad, {{3, 5}, {4}}, DType::bf16, {0, 1}),
      in_16_bits("adafactor-bf16-copies", averaged, {{3, 5}, {2, 3, 4}}, DType::bf16, {0, 1}),
      in_16_bits("adafactor-unfactored-bf16", kind("adafactor"), {{5}}, DType::bf16, {0}),
      rounded_at_random("adamw-rounded-at-random", kind("adamw"), {{3, 5}, {7}}),
      rounded_at_random("sgd-rounded-at-random", momentum, {{3, 5}, {7}}),
      with_table(sample("adamw-of-a-row", second, {{3, 5}, {4}}, 3, true)),
      sample("adamw-layer", kind("adamw"), {{2048, 512}, {2048}}, 3, false),
  };
  all.back().bench = true;
  for (auto* const more : {variant_samples, eight_bit_samples})
    for (Sample& one : more()) all.push_back(std::move(one));
  return all;
}

}  // namespace gradloom
