// Rows without bf16 kernel on the CPU compute in f32 between conversions. Batch normalization in blocks,
// softmax along rows and cross-entropy have one, products, convolutions and attention on some processors.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/samples.h"
#include "engine/onnx/read/sample_graph.h"
#include "kernels/prepared/bf16.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

// Inputs in bf16 (but statistics), or the same numbers in f32.
std::vector<Tensor> inputs_of(const Sample& sample, bool low, DType half = DType::bf16) {
  std::mt19937_64 random(3);
  std::vector<Tensor> inputs;
  for (const SampleInput& input : sample.inputs) {
    Tensor data = input.omitted ? Tensor() : make_sample_input(input, sample, random);
    if (!input.omitted && data.dtype() == DType::f32 && !input.statistic) {
      data = data.cast(half);
      if (!low) data = data.cast(DType::f32);
    }
    inputs.push_back(data);
  }
  return inputs;
}

NodeTypes types_of(const Sample& sample, const std::vector<Tensor>& inputs,
                   const std::vector<Tensor>& outputs) {
  NodeTypes types;
  types.attrs = sample.attrs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    types.inputs.push_back(inputs[i].type());
    types.input_present.push_back(!sample.inputs[i].omitted);
    types.constants.push_back(sample.inputs[i].constant ? &inputs[i] : nullptr);
  }
  for (const Tensor& t : outputs) {
    types.outputs.push_back(t.type());
    types.output_present.push_back(true);
  }
  return types;
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

// Every row, with what it does itself in bf16 on this processor: its results are those of f32, up to
// roundings of operands, sums and results to 8 bits.
TEST(PrepareKernel, EveryRowComputesInBf16WhatItDoesInF32) {
  int compared = 0;
  for (const OpDef* op : all_ops()) {
    for (const Sample& sample : op->samples()) {
      if (sample.bench) continue;
      const std::string where = std::string(op->name) + "/" + sample.name;
      const auto full = evaluate(*op, sample.attrs, inputs_of(sample, false), sample.output_count);
      if (!full.ok()) continue;
      const auto low = evaluate(*op, sample.attrs, inputs_of(sample, true), sample.output_count);
      if (!low.ok()) {
        EXPECT_NE(low.error().message.find("type"), std::string::npos)
            << where << ": " << low.error().message;
        continue;
      }
      for (std::size_t i = 0; i < full->size(); ++i) {
        const Tensor &want = (*full)[i], &got = (*low)[i];
        if (!want.defined() || !is_float(want.dtype())) continue;
        double largest = 0, difference = 0;
        for (std::int64_t k = 0; k < want.count(); ++k) {
          if (!std::isfinite(want.at(k))) continue;
          largest = std::max(largest, std::abs(want.at(k)));
          difference = std::max(difference, std::abs(want.at(k) - got.at(k)));
        }
        EXPECT_LE(difference, largest / 32) << where << " output " << i;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 500);
}

// Channels in blocks have a kernel: the same arithmetic, read from bf16 and rounded once.
TEST(PrepareKernel, BatchNormalizationInBlocksRoundsTheResultsOfF32) {
  for (const std::int64_t block : {16, 8, 4, 3}) {
    const Shape x{3, 2, 7, 5, block}, c{2 * block};
    const std::vector<SampleInput> channels{statistic(c, 0.5, 1.5), statistic(c, -1, 1), statistic(c, 0.1, 1),
                                            statistic(c, 0.5, 2)};
    Sample forward{.attrs = {{"block", block}, {"training_mode", std::int64_t{1}}},
                   .inputs = {floats(x, -2, 3)},
                   .output_count = 5};
    forward.inputs.insert(forward.inputs.end(), channels.begin(), channels.end());
    Sample inference = forward;
    inference.attrs.set("training_mode", std::int64_t{0});
    inference.output_count = 1;
    const Sample gradient{.attrs = {{"block", block}},
                          .inputs = {floats(x), floats(x, -2, 3), channels[0], channels[1], channels[2]},
                          .output_count = 3};
    const std::pair<const char*, Sample> cases[] = {
        {"BatchNormalization", forward}, {"BatchNormalization", inference}, {"BatchNormGrad", gradient}};
    for (const auto& [name, sample] : cases) {
      const OpDef& op = op_by_name(name);
      const std::vector<Tensor> given = inputs_of(sample, true);
      const auto low = evaluate(op, sample.attrs, given, sample.output_count);
      const auto full = evaluate(op, sample.attrs, inputs_of(sample, false), sample.output_count);
      ASSERT_TRUE(low.ok() && full.ok()) << name;
      for (std::size_t i = 0; i < low->size(); ++i) {
        const Tensor& got = (*low)[i];
        ASSERT_EQ(got.dtype(), i == 0 ? DType::bf16 : DType::f32) << name << " output " << i;
        EXPECT_TRUE(bit_equal(got, (*full)[i].cast(got.dtype())))
            << name << " output " << i << " block " << block;
      }
      EXPECT_TRUE(op.cpu(types_of(sample, given, *low)).ok()) << name << ": its own kernel";
    }
  }
}

// The loss of bf16 logits is that of the same numbers in f32, the gradient is rounded once.
TEST(PrepareKernel, CrossEntropyReadsBf16) {
  for (const char* name : {"SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyGrad"}) {
    const OpDef& op = op_by_name(name);
    int seen = 0;
    for (const Sample& sample : op.samples()) {
      if (sample.name != "wide") continue;
      const std::vector<Tensor> given = inputs_of(sample, true);
      const auto low = evaluate(op, sample.attrs, given),
                 full = evaluate(op, sample.attrs, inputs_of(sample, false));
      ASSERT_TRUE(low.ok() && full.ok()) << name;
      EXPECT_TRUE(bit_equal((*low)[0], (*full)[0].cast((*low)[0].dtype()))) << name;
      EXPECT_TRUE(op.cpu(types_of(sample, given, *low)).ok()) << name << ": its own kernel";
      ++seen;
    }
    EXPECT_EQ(seen, 1) << name;
  }
}

// What the row makes of a sample in a half type, against f32, which is given y as f32 makes it.
void expect_close_to_f32(const OpDef& op, const Sample& sample, DType half, double most) {
  const std::vector<Tensor> given = inputs_of(sample, true, half);
  std::vector<Tensor> exact = inputs_of(sample, false, half);
  if (std::string(op.name) == "FusedAttentionGrad") {
    const auto forward =
        evaluate(op_by_name("FusedAttention"), sample.attrs, {exact.begin() + 3, exact.end()});
    ASSERT_TRUE(forward.ok());
    exact[1] = (*forward)[0];
  }
  const auto low = evaluate(op, sample.attrs, given, sample.output_count),
             full = evaluate(op, sample.attrs, exact, sample.output_count);
  ASSERT_TRUE(low.ok() && full.ok()) << op.name << "/" << sample.name;
  for (std::size_t i = 0; i < low->size(); ++i) {
    const Tensor &got = (*low)[i], &want = (*full)[i];
    const bool number_of_row = want.shape().size() < (*full)[0].shape().size();  // log-sum-exp
    ASSERT_EQ(got.dtype(), number_of_row ? DType::f32 : half);
    double largest = 0, apart = 0;
    for (std::int64_t k = 0; k < want.count(); ++k) {
      if (std::isinf(want.at(k)) && got.at(k) == want.at(k)) continue;  // of a row that sees nothing
      largest = std::max(largest, std::abs(want.at(k)));
      apart = std::max(apart, std::abs(got.at(k) - want.at(k)));
    }
    EXPECT_LE(apart, most * largest) << op.name << "/" << sample.name << " output " << i;
  }
  if (half == DType::bf16) {
    EXPECT_EQ(op.cpu(types_of(sample, given, *low)).ok(), kernels::has_bf16_products()) << op.name;
  }
}

// In bf16 products read probabilities and their gradients rounded; sums over blocks are not rounded between. In f16 results alone are.
TEST(PrepareKernel, AttentionInHalvesIsCloseToF32) {
  for (const char* name : {"FusedAttention", "FusedAttentionGrad"})
    for (const Sample& sample : op_by_name(name).samples()) {
      if (sample.bench) continue;
      expect_close_to_f32(op_by_name(name), sample, DType::bf16, 0x1p-7);
      expect_close_to_f32(op_by_name(name), sample, DType::f16, 0x1p-10);
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
  const OpDef& softmax = op_by_name("Softmax");
  const auto along_rows = prepare_kernel(softmax, types);
  ASSERT_TRUE(along_rows.ok());
  EXPECT_EQ(along_rows->name, "softmax") << "has a kernel";
  types.attrs = {{"axis", std::int64_t{0}}};
  const auto kernel = prepare_kernel(softmax, types);
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
