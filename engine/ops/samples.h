// Short forms for the samples of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom {

Sample sample_of(const char* name, Attrs attrs, std::vector<SampleInput> inputs, int output_count = 1);
SampleInput floats(Shape shape, double low = -1, double high = 1);
// Pairwise distinct contents, at least `step` apart (no ties for max).
SampleInput distinct_floats(Shape shape, double step = 0.1);
// Floats that stay f32 where the sample runs in f16 or bf16.
SampleInput statistic(Shape shape, double low, double high);
SampleInput ints(Shape shape, double low, double high, DType dtype = DType::i64);
SampleInput bools(Shape shape);
SampleInput known_ints(const std::vector<std::int64_t>& values);  // 1-d i64, known when planning
SampleInput known_scalar(DType dtype, double value);
SampleInput exact(DType dtype, Shape shape, std::vector<double> values);
// Known when planning.
SampleInput known_exact(DType dtype, Shape shape, std::vector<double> values);
SampleInput known_truths(const std::vector<double>& values);  // 1-d booleans
SampleInput omitted();

}  // namespace gradloom
