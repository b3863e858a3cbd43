#include "engine/ops/attention/samples.h"

#include <cmath>
#include <iterator>
#include <utility>

#include "engine/ops/products/matrix_product.h"
#include "engine/ops/samples.h"

namespace gradloom::attention {
namespace {

using Ints = std::vector<std::int64_t>;

Attrs dropped(Attrs attrs, double ratio) {
  attrs.set("dropout", ratio);
  attrs.set("key", std::int64_t{81985529216486895});
  return attrs;
}

Attrs safe(Attrs attrs) {
  attrs.set("safe", std::int64_t{1});
  return attrs;
}

Attrs with_mask(const char* mode, double fill) {
  return {{"scale", 0.5}, {"mask", std::string(mode)}, {"fill", fill}};
}

SampleInput known_mask(Shape shape, std::vector<double> values) {
  SampleInput input;
  input.type = {DType::boolean, std::move(shape)};
  input.values = std::move(values);
  input.constant = true;
  return input;
}

// true above the diagonal.
SampleInput future(std::int64_t rows) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows * rows; ++i) values.push_back(i % rows > i / rows ? 1 : 0);
  return known_mask({rows, rows}, std::move(values));
}

// A slope, and keys that are hidden.
SampleInput known_bias() {
  SampleInput input =
      exact(DType::f32, {3, 5}, {0, -1, -2, -1e30, -1e30, -1, 0, -1, -2, -1e30, -2, -1, 0, -1, -1e30});
  input.constant = true;
  return input;
}

SampleInput flags(Shape shape, std::vector<double> values) {
  SampleInput input = known_mask(std::move(shape), std::move(values));
  input.constant = false;
  return input;
}

struct Form {
  const char* name;
  Attrs attrs;
  std::vector<SampleInput> operands;  // q, k, v, mask
  Shape y;
  bool bench = false;
};

Attrs in_heads() {
  const Ints heads{0, 2, 1, 3};
  return {{"scale", 0.5}, {"perm_q", heads}, {"perm_k", heads}, {"perm_v", heads}, {"perm_y", heads}};
}

std::vector<Form> plain_forms() {
  return {
      {"plain", {}, {floats({3, 5}), floats({4, 5}), floats({4, 2})}, {3, 2}},
      {"batch",
       {{"scale", 0.25}},
       {floats({2, 3, 4, 5}), floats({2, 3, 6, 5}), floats({2, 3, 6, 3})},
       {2, 3, 4, 3}},
      {"heads inside",
       in_heads(),
       {floats({2, 4, 3, 5}), floats({2, 6, 3, 5}), floats({2, 6, 3, 5})},
       {2, 4, 3, 5}},
      {"keys transposed",
       {{"perm_k", Ints{0, 2, 1}}},
       {floats({2, 3, 4}), floats({2, 4, 5}), floats({2, 5, 3})},
       {2, 3, 3}},
  };
}

// Scores that a mask adds to or hides.
std::vector<Form> masked_forms() {
  return {
      {"added mask",
       with_mask("add", 0),
       {floats({2, 3, 4}), floats({2, 5, 4}), floats({2, 5, 3}), floats({1, 3, 5}, -3, 3)},
       {2, 3, 3}},
      {"known added mask",
       with_mask("add", 0),
       {floats({3, 4}), floats({5, 4}), floats({5, 3}), known_bias()},
       {3, 3}},
      {"kept",
       with_mask("keep", -1e30),
       {floats({2, 3, 4}), floats({2, 5, 4}), floats({2, 5, 3}),
        flags({2, 1, 5}, {1, 1, 0, 1, 0, 0, 1, 1, 1, 0})},
       {2, 3, 3}},
      {"a row that sees nothing",
       with_mask("keep", -0x1.fffffep127),  // the least of f32
       {floats({2, 4}), floats({3, 4}), floats({3, 2}), flags({2, 3}, {0, 0, 0, 1, 0, 1})},
       {2, 2}},
      {"a row that sees nothing, safe",
       safe(with_mask("keep", -INFINITY)),
       {floats({3, 4}), floats({3, 4}), floats({3, 2}), flags({3, 3}, {0, 0, 0, 1, 0, 1, 0, 0, 0})},
       {3, 2}},
      {"known blind rows, safe",
       safe(with_mask("block", -INFINITY)),
       {floats({3, 4}), floats({3, 4}), floats({3, 2}), known_mask({3, 3}, {1, 1, 1, 0, 1, 0, 1, 1, 1})},
       {3, 2}},
      {"known, not hidden",
       with_mask("block", -2),
       {floats({3, 4}), floats({5, 4}), floats({5, 2}),
        known_mask({3, 5}, {0, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1})},
       {3, 2}},
      {"known holes",
       with_mask("block", -INFINITY),
       {floats({3, 4}), floats({5, 4}), floats({5, 2}),
        known_mask({3, 5}, {0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1})},
       {3, 2}},
  };
}

std::vector<Form> dropped_and_causal_forms() {
  Attrs causal = in_heads();
  causal.set("mask", std::string("block"));
  return {
      {"dropped",
       dropped({{"scale", 0.5}}, 0.25),
       {floats({2, 3, 4}), floats({2, 7, 4}), floats({2, 7, 3})},
       {2, 3, 3}},
      {"causal, dropped",
       dropped(with_mask("block", -INFINITY), 0.1),
       {floats({2, 150, 4}), floats({2, 150, 4}), floats({2, 150, 3}), future(150)},
       {2, 150, 3}},
      {"causal",
       with_mask("block", -INFINITY),
       {floats({2, 150, 4}), floats({2, 150, 4}), floats({2, 150, 3}), future(150)},
       {2, 150, 3}},
      {"gpt",
       causal,
       {floats({1, 1024, 12, 64}), floats({1, 1024, 12, 64}), floats({1, 1024, 12, 64}), future(1024)},
       {1, 1024, 12, 64},
       true},
  };
}

std::vector<Form> forms() {
  std::vector<Form> list = plain_forms();
  for (const auto& more : {masked_forms(), dropped_and_causal_forms()})
    list.insert(list.end(), more.begin(), more.end());
  return list;
}

// Log-sum-exp, [batch.., rows] of q, of rows of about a thousand keys.
SampleInput log_sums_of(const Form& form) {
  Shape rows = permuted(form.operands[0].type.shape, form.attrs.integers("perm_q"));
  rows.pop_back();
  return statistic(std::move(rows), 6, 7);
}

// Numbers between those of the input, of few bits: the same in every floating type.
std::vector<double> short_numbers(const SampleInput& input, std::int64_t seed) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < element_count(input.type.shape); ++i)
    numbers.push_back(static_cast<double>((i * 37 + seed * 59) * 73 % 61 - 30) / 32 * input.high);
  return numbers;
}

// y and log-sum-exp as FusedAttention makes them of the operands, whose contents are set.
std::vector<SampleInput> results_of(Form& form) {
  std::vector<Tensor> given;
  for (SampleInput& operand : form.operands) {
    const bool number = is_float(operand.type.dtype);
    if (operand.values.empty()) operand.values = short_numbers(operand, std::ssize(given));
    given.push_back(
        Tensor::from_f64(number ? DType::f64 : operand.type.dtype, operand.type.shape, operand.values));
  }
  const auto results = evaluate(op_by_name("FusedAttention"), form.attrs, given, 2);
  CHECK(results.ok(), "a sample of attention that does not run");
  std::vector<SampleInput> inputs = {floats(form.y), log_sums_of(form)};
  for (std::size_t i = 0; i < 2; ++i) inputs[i].values = (*results)[i].to_f64();
  return inputs;
}

}  // namespace

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (Form& f : forms())
    list.push_back({.name = f.name,
                    .attrs = f.attrs,
                    .inputs = f.operands,
                    .output_count = list.empty() ? 1 : 2,
                    .bench = f.bench});
  return list;
}

std::vector<Sample> samples_grad() {
  std::vector<Sample> list;
  for (Form& f : forms()) {
    std::vector<SampleInput> inputs = f.bench ? std::vector{floats(f.y), log_sums_of(f)} : results_of(f);
    inputs.insert(inputs.begin(), floats(f.y));
    f.operands.insert(f.operands.begin(), inputs.begin(), inputs.end());
    list.push_back(
        {.name = f.name, .attrs = f.attrs, .inputs = f.operands, .output_count = 3, .bench = f.bench});
  }
  return list;
}

}  // namespace gradloom::attention
