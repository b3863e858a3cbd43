// Nodes and inputs made from an operator's samples (engine/ir/op.h): what tests,
// benchmarks and `check --samples` run.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"

namespace gradloom {

// Contents of one input. Floats are drawn as f32 numbers, so that a run in f64 has the same inputs.
Tensor make_sample_input(const SampleInput& input, const Sample& sample, std::mt19937_64& random);

// One node built from a sample, its inputs' contents, and the values it makes.
struct SampleNode {
  std::vector<ValueId> inputs, outputs;  // kNone: omitted
  std::map<ValueId, Tensor> feeds;       // of the inputs that are not constants
};
// f32 inputs (and for f64 attributes that name f32) become `float_type`, after rounding to `rounded`: a run
// in f64 can have the inputs of one in bf16. `prefix`: in front of the names of the inputs.
Result<SampleNode> add_sample(GraphBuilder& b, const OpDef& op, const Sample& sample, DType float_type,
                              const std::string& prefix = "", DType rounded = DType::f32);

}  // namespace gradloom
