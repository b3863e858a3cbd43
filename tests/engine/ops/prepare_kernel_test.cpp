// Rows without bf16 kernel on the CPU compute in f32 between conversions. Products and convolutions have one
// on some processors.
#include <gtest/gtest.h>

#include "engine/ops/common.h"
#include "engine/onnx/sample_graph.h"

namespace gradloom {
namespace {

// Inputs in bf16 (but statistics), or the same numbers in f32.
std::vector<Tensor> inputs_of(const Sample& sample, bool low) {
  std::mt19937_64 random(3);
  std::vector<Tensor> inputs;
  for (const SampleInput& input : sample.inputs) {
    Tensor data = input.omitted ? Tensor() : make_sample_input(input, sample, random);
    if (!input.omitted && data.dtype() == DType::f32 && !input.statistic) {
      data = data.cast(DType::bf16);
      if (!low) data = data.cast(DType::f32);
    }
    inputs.push_back(data);
  }
  return inputs;
}

TEST(PrepareKernel, GivesTheRoundedResultsOfTheF32Kernel) {
  for (const char* name :
       {"LRN", "AveragePool", "LayerNormalization", "Softmax", "MaxPool", "Gather", "ReduceMax", "Slice"}) {
    const OpDef& op = op_by_name(name);
    for (const Sample& sample : op.samples()) {
      if (sample.bench || sample.output_count > 1) continue;
      const auto low = evaluate(op, sample.attrs, inputs_of(sample, true));
      const auto full = evaluate(op, sample.attrs, inputs_of(sample, false));
      if (!full.ok()) continue;
      ASSERT_TRUE(low.ok()) << name << "/" << sample.name << ": " << low.error().message;
      const Tensor& a = (*low)[0];
      const Tensor want = is_float((*full)[0].dtype()) ? (*full)[0].cast(a.dtype()) : (*full)[0];
      ASSERT_EQ(a.type(), want.type()) << name << "/" << sample.name;
      EXPECT_TRUE(bit_equal(a, want)) << name << "/" << sample.name;
    }
  }
}

TEST(PrepareKernel, SaysHowItComputes) {
  NodeTypes types;
  const Type matrix{DType::bf16, {4, 4}};
  types.inputs = {matrix};
  types.input_present = {true};
  types.outputs = {matrix};
  types.output_present = {true};
  types.constants = {nullptr};
  const auto kernel = prepare_kernel(op_by_name("Softmax"), types);
  ASSERT_TRUE(kernel.ok());
  EXPECT_NE(kernel->name.find("in f32"), std::string::npos) << kernel->name;
  EXPECT_GE(kernel->workspace_bytes, 2u * 16 * 4);
}

TEST(PrepareKernel, OtherFailuresStay) {
  NodeTypes types;
  types.inputs = {{DType::i16, {4, 4}}, {DType::i16, {4, 4}}};
  types.input_present = {true, true};
  types.outputs = {{DType::i16, {4, 4}}};
  types.output_present = {true};
  types.constants = {nullptr, nullptr};
  EXPECT_FALSE(prepare_kernel(op_by_name("MatMul"), types).ok());
}

}  // namespace
}  // namespace gradloom
