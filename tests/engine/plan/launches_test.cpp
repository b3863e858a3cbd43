#include "engine/plan/launches.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/ir/op.h"
#include "engine/plan/known_kernels.h"
#include "tests/engine/every_op.h"

namespace gradloom {
namespace {

NodeTypes on_gpu(std::vector<Type> inputs, std::vector<bool> present, std::vector<Type> outputs,
                 Attrs attrs) {
  NodeTypes types;
  types.constants.assign(inputs.size(), nullptr);
  types.input_present = std::move(present);
  types.inputs = std::move(inputs);
  types.output_present.assign(outputs.size(), true);
  types.outputs = std::move(outputs);
  types.attrs = std::move(attrs);
  types.target = kernels::Target::gpu;
  types.dnn_library = true;
  return types;
}

std::int64_t launches_of_kernel(const std::vector<LaunchKind>& launches, const std::string& kernel) {
  std::int64_t count = 0;
  for (const LaunchKind& kind : launches)
    if (kind.kernel == kernel) count += kind.count;
  return count;
}

// Codes are multiplied by the library as they lie, along the sums; those that lie otherwise are copied first, byte by byte.
TEST(Launches, ProductsOfCodesAreOneLibraryCallOfBytes) {
  constexpr double m = 4096, n = 3072, k = 768;
  const Type x{DType::f8e4m3fn, {4096, 768}}, along{DType::f8e4m3fn, {3072, 768}},
      across{DType::f8e4m3fn, {768, 3072}}, one{DType::f32, {1}}, y{DType::bf16, {4096, 3072}};
  const std::int64_t bf16 = 16;  // TensorProto::BFLOAT16
  for (const bool turned : {true, false}) {
    Attrs attrs{{"to", bf16}};
    if (turned) attrs.set("perm_b", std::vector<std::int64_t>{1, 0});
    const NodeTypes types =
        on_gpu({x, turned ? along : across, one, one}, {true, true, true, true}, {y}, attrs);
    const auto facts = kernel_facts(op_by_name("Fp8MatMul"), types);
    ASSERT_OK(facts);
    EXPECT_EQ(launches_of_kernel(facts->launches, "fp8_product"), 1);
    EXPECT_EQ(launches_of_kernel(facts->launches, "gemm"), 0);
    EXPECT_EQ(launches_of_kernel(facts->launches, "strided_copy"), turned ? 0 : 1);
    for (const LaunchKind& kind : facts->launches) {
      if (kind.kernel != "fp8_product") continue;
      EXPECT_EQ(kind.arithmetic, Arithmetic::products);
      EXPECT_EQ(kind.dtype, DType::f8e4m3fn);
      EXPECT_EQ(kind.flops, 2 * m * n * k);
      EXPECT_NEAR(kind.bytes_read, (m + n) * k, 8);  // and two scales
      EXPECT_EQ(kind.bytes_written, 2 * m * n);
    }
  }
}

// GPT-2's head at batch 4: its weight's gradient is read and written in f32 by every chunk but the first, which writes it.
TEST(Launches, AVocabularyHeadCostsWhatItsChunksDo) {
  constexpr double n = 4096, k = 768, classes = 50257, chunks = 2, half = 2, wide = 4;
  const Type x{DType::bf16, {4096, 768}}, w{DType::bf16, {50257, 768}}, loss{DType::f32, {}};
  const NodeTypes types = on_gpu(
      {loss, x, w, x, {DType::i64, {4096}}}, {true, true, true, false, true},
      {loss, x, {DType::f32, {50257, 768}}},
      {{"chunk_rows", std::int64_t{2048}}, {"axis", std::int64_t{0}}, {"wide_gradients", std::int64_t{1}}});
  const OpDef& op = op_by_name("LinearCrossEntropyGrad");
  const auto facts = kernel_facts(op, types);
  ASSERT_OK(facts);
  EXPECT_EQ(launches_of_kernel(facts->launches, "gemm"), 3 * 2);
  EXPECT_EQ(launches_of_kernel(facts->launches, "softmax_cross_entropy"), 2);
  EXPECT_EQ(launches_of_kernel(facts->launches, "softmax_cross_entropy_grad"), 0);
  double gemm_flops = 0, gemm_read = 0, gemm_written = 0, loss_bytes = 0;
  for (const LaunchKind& kind : facts->launches) {
    const auto count = static_cast<double>(kind.count);
    if (kind.kernel == "gemm") {
      EXPECT_EQ(kind.arithmetic, Arithmetic::products);
      EXPECT_EQ(kind.dtype, DType::bf16);
      gemm_flops += count * kind.flops;
      gemm_read += count * kind.bytes_read;
      gemm_written += count * kind.bytes_written;
    }
    if (kind.kernel == "softmax_cross_entropy") loss_bytes += count * (kind.bytes_read + kind.bytes_written);
  }
  const double logits = n * classes * half;
  EXPECT_DOUBLE_EQ(gemm_flops, 3 * 2 * n * k * classes);
  // Logits from x and w, dx from their gradient and w, dw from it and x.
  EXPECT_DOUBLE_EQ(gemm_read, 2 * n * k * half + 2 * chunks * classes * k * half + 2 * logits +
                                  (chunks - 1) * classes * k * wide);
  EXPECT_DOUBLE_EQ(gemm_written, logits + n * k * half + chunks * classes * k * wide);
  EXPECT_DOUBLE_EQ(loss_bytes, 2 * logits);  // a row is read once
  EXPECT_GT(facts->cost.bytes_read + facts->cost.bytes_written, gemm_read + gemm_written + loss_bytes);
  EXPECT_GE(device_kernels(facts->launches), 4 * 2 + 2);
}

// A step of a layer is a product and a kernel of its elements.
TEST(Launches, ARecurrentNetworkIsLaunchedStepByStep) {
  const OpDef& op = op_by_name("LSTM");
  constexpr std::int64_t steps = 7, batch = 3, width = 5, hidden = 4;
  NodeTypes types =
      on_gpu({{DType::f32, {steps, batch, width}},
              {DType::f32, {1, 4 * hidden, width}},
              {DType::f32, {1, 4 * hidden, hidden}}},
             {true, true, true}, {{DType::f32, {steps, 1, batch, hidden}}}, {{"hidden_size", hidden}});
  const auto facts = kernel_facts(op, types);
  ASSERT_OK(facts);
  EXPECT_EQ(launches_of_kernel(facts->launches, "recurrent_step"), steps);
  EXPECT_GE(launches_of_kernel(facts->launches, "gemm"), steps);
}

// Whatever an operator launches writes its results at least once, and one launch costs what the operator says.
TEST(Launches, EveryOperatorsSamplesAreWrittenDown) {
  std::size_t sequences = 0;
  for (const OpDef* op : all_ops()) {
    if (op->gpu == nullptr || op->samples == nullptr) continue;
    for (const Sample& sample : op->samples()) {
      const auto built = every_op::build(*op, sample, DType::f32);
      ASSERT_OK(built);
      const NodeTypes types = node_types(built->graph, built->graph.nodes.back(), kernels::Target::gpu);
      const auto facts = kernel_facts(*op, types);
      if (!facts) continue;
      const std::vector<LaunchKind>& launches = facts->launches;
      if (launches.empty()) continue;
      const Cost own = op->cost(types), sum = cost_of_launches(launches);
      double written = 0;
      for (std::size_t i = 0; i < types.outputs.size(); ++i)
        if (types.wants(i)) written += static_cast<double>(byte_size(types.outputs[i]));
      if (launches.size() == 1 && launches[0].count == 1) {
        EXPECT_DOUBLE_EQ(sum.flops, own.flops) << op->name << " " << sample.name;
        EXPECT_DOUBLE_EQ(sum.bytes_written, own.bytes_written) << op->name << " " << sample.name;
      } else {
        ++sequences;
        EXPECT_GE(sum.bytes_written, written * (1 - 1e-12)) << op->name << " " << sample.name;
      }
      EXPECT_GE(device_kernels(launches), 1) << op->name << " " << sample.name;
    }
  }
  EXPECT_GT(sequences, 50u);
}

}  // namespace
}  // namespace gradloom
