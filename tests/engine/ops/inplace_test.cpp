// OpDef::inplace_input: writing output 0 over that input gives the same bits as writing elsewhere, for every
// row and sample.
#include <cstring>

#include "tests/engine/ops/nn_support.h"

namespace gradloom {
namespace {

using namespace gradloom::testing;

struct Launch {
  std::vector<Tensor> inputs;
  NodeTypes types;
};

// The row's types and inputs for one sample, or false when output 0 has another type than the input it may
// overwrite.
bool prepare(const OpDef& op, const Sample& sample, Launch& launch) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<ValueId> ids;
  std::uint64_t seed = 1;
  for (const SampleInput& input : sample.inputs) {
    const Type& type = input.type;
    Tensor t;
    if (!input.omitted && !input.values.empty()) t = Tensor::from_f64(type.dtype, type.shape, input.values);
    if (!input.omitted && input.values.empty()) t = numbers(type.dtype, type.shape, ++seed);
    const std::string name = "x" + std::to_string(ids.size());
    ids.push_back(input.omitted ? kNone : input.constant ? b.constant(t, name) : b.input(name, t.type()));
    launch.inputs.push_back(std::move(t));
  }
  auto outputs = b.add(op, ids, sample.attrs, sample.output_count, {}, "node");
  EXPECT_TRUE(outputs.ok()) << (outputs.ok() ? "" : outputs.error().message);
  if (!outputs.ok()) return false;
  launch.types = node_types(graph, graph.nodes.back());
  for (const Tensor*& t : launch.types.constants) t = nullptr;  // their graph ends here
  const auto overwritten = static_cast<std::size_t>(op.inplace_input);
  return launch.types.has(overwritten) && launch.types.inputs[overwritten] == launch.types.outputs[0];
}

// Outputs with output 0 in the memory of input `overwritten` (or of its own, when negative).
std::vector<Tensor> launch_at(const CpuKernel& kernel, const Launch& launch, int overwritten) {
  std::vector<Tensor> inputs = launch.inputs, outputs;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Type& type : launch.types.outputs) outputs.emplace_back(type.dtype, type.shape);
  if (overwritten >= 0) {
    outputs[0] = inputs[static_cast<std::size_t>(overwritten)];
    outputs[0].mutable_data();  // a copy of its own
    inputs[static_cast<std::size_t>(overwritten)] = Tensor();
  }
  for (Tensor& t : outputs) out.push_back(t.mutable_data());
  for (const Tensor& t : inputs) in.push_back(t.defined() ? t.data() : nullptr);
  if (overwritten >= 0) in[static_cast<std::size_t>(overwritten)] = out[0];
  Tensor workspace(DType::u8, {static_cast<std::int64_t>(kernel.workspace_bytes)});
  kernel.run({in.data(), out.data(), workspace.mutable_data(), 11, 1});
  return outputs;
}

TEST(EveryRowThatMayWriteInPlace, GivesTheSameBits) {
  std::size_t checked = 0;
  for (const OpDef* op : all_ops()) {
    if (op->inplace_input < 0 || op->cpu == nullptr || op->samples == nullptr) continue;
    for (const Sample& sample : op->samples()) {
      Launch launch;
      if (sample.bench || !prepare(*op, sample, launch)) continue;
      auto kernel = op->cpu(launch.types);
      ASSERT_TRUE(kernel.ok()) << op->name << "/" << sample.name;
      const auto apart = launch_at(kernel.value(), launch, -1),
                 in_place = launch_at(kernel.value(), launch, op->inplace_input);
      for (std::size_t i = 0; i < apart.size(); ++i)
        EXPECT_TRUE(bit_equal(apart[i], in_place[i])) << op->name << "/" << sample.name << " output " << i;
      ++checked;
    }
  }
  EXPECT_GT(checked, 30u);
}

}  // namespace
}  // namespace gradloom
