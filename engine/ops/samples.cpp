#include "engine/ops/samples.h"

#include <numeric>
#include <utility>

namespace gradloom {

Sample sample_of(const char* name, Attrs attrs, std::vector<SampleInput> inputs, int output_count) {
  return {.name = name, .attrs = std::move(attrs), .inputs = std::move(inputs), .output_count = output_count};
}

SampleInput floats(Shape shape, double low, double high) {
  SampleInput s;
  s.type = {DType::f32, std::move(shape)};
  s.low = low;
  s.high = high;
  return s;
}

SampleInput distinct_floats(Shape shape, double step) {
  const std::int64_t count = element_count(shape);
  std::int64_t stride = count * 5 / 8 + 1;
  while (count > 1 && std::gcd(stride, count) != 1) ++stride;
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(step * (static_cast<double>(i * stride % count) - static_cast<double>(count) / 2 + 0.3));
  return exact(DType::f32, std::move(shape), std::move(values));
}

SampleInput statistic(Shape shape, double low, double high) {
  SampleInput s = floats(std::move(shape), low, high);
  s.statistic = true;
  return s;
}

SampleInput ints(Shape shape, double low, double high, DType dtype) {
  SampleInput s = floats(std::move(shape), low, high);
  s.type.dtype = dtype;
  return s;
}

SampleInput bools(Shape shape) { return ints(std::move(shape), 0, 1, DType::boolean); }

SampleInput known_ints(const std::vector<std::int64_t>& values) {
  SampleInput s;
  s.type = {DType::i64, {static_cast<std::int64_t>(values.size())}};
  s.values.assign(values.begin(), values.end());
  s.constant = true;
  return s;
}

SampleInput known_scalar(DType dtype, double value) {
  SampleInput s;
  s.type = {dtype, {}};
  s.values = {value};
  s.constant = true;
  return s;
}

SampleInput exact(DType dtype, Shape shape, std::vector<double> values) {
  SampleInput s;
  s.type = {dtype, std::move(shape)};
  s.values = std::move(values);
  return s;
}

SampleInput known_exact(DType dtype, Shape shape, std::vector<double> values) {
  SampleInput input = exact(dtype, std::move(shape), std::move(values));
  input.constant = true;
  return input;
}

SampleInput known_truths(const std::vector<double>& values) {
  return known_exact(DType::boolean, {static_cast<std::int64_t>(values.size())}, values);
}

SampleInput omitted() {
  SampleInput s;
  s.omitted = true;
  return s;
}

}  // namespace gradloom
