// Writing an output over an input that the row allows (OpDef::inplace_input; any of equal shape and width for
// elementwise and pointwise rows) gives the same bits as writing elsewhere, for every row and sample.
#include <cstring>

#include "engine/ops/samples.h"
#include "tests/engine/ops/numeric_support.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

struct Launch {
  std::vector<Tensor> inputs;
  NodeTypes types;
};

// The row's types and inputs for one sample.
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
  for (std::size_t i = 0; i < launch.types.constants.size(); ++i)  // their graph ends here
    if (launch.types.constants[i] != nullptr) launch.types.constants[i] = &launch.inputs[i];
  return true;
}

struct Pair {
  std::size_t output, input;
};

// As the plan chooses them (engine/plan/plan.cpp).
std::vector<Pair> allowed_pairs(const OpDef& op, const NodeTypes& types) {
  std::vector<Pair> pairs;
  const bool any = op.has(kElementwise) || op.has(kPointwise);
  for (std::size_t o = 0; o < types.outputs.size(); ++o)
    for (std::size_t i = 0; i < types.inputs.size(); ++i) {
      if (!any && (o != 0 || static_cast<int>(i) != op.inplace_input)) continue;
      if (types.has(i) && types.inputs[i].shape == types.outputs[o].shape &&
          dtype_bytes(types.inputs[i].dtype) == dtype_bytes(types.outputs[o].dtype))
        pairs.push_back({o, i});
    }
  return pairs;
}

// Outputs, one of them in the memory of an input if `pair` is given.
std::vector<Tensor> launch_at(const Kernel& kernel, const Launch& launch, const Pair* pair) {
  std::vector<Tensor> outputs;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Type& type : launch.types.outputs) outputs.emplace_back(type.dtype, type.shape);
  for (Tensor& t : outputs) out.push_back(t.mutable_data());
  for (const Tensor& t : launch.inputs) in.push_back(t.defined() ? t.data() : nullptr);
  if (pair != nullptr) {
    const Tensor& overwritten = launch.inputs[pair->input];
    if (overwritten.bytes() > 0) std::memcpy(out[pair->output], overwritten.data(), overwritten.bytes());
    in[pair->input] = out[pair->output];
  }
  Tensor workspace(DType::u8, {static_cast<std::int64_t>(kernel.workspace_bytes)});
  const kernels::RandomState random{11, 1};
  kernel.run({in.data(), out.data(), workspace.mutable_data(), &random, kernels::cpu_launcher()});
  return outputs;
}

TEST(EveryRowThatMayWriteInPlace, GivesTheSameBits) {
  std::size_t checked = 0;
  for (const OpDef* op : all_ops()) {
    if (op->cpu == nullptr || op->samples == nullptr) continue;
    for (const Sample& sample : op->samples()) {
      Launch launch;
      if (sample.bench || !prepare(*op, sample, launch)) continue;
      const auto pairs = allowed_pairs(*op, launch.types);
      if (pairs.empty()) continue;
      auto kernel = op->cpu(launch.types);
      ASSERT_TRUE(kernel.ok()) << op->name << "/" << sample.name;
      const auto apart = launch_at(kernel.value(), launch, nullptr);
      for (const Pair& pair : pairs) {
        const auto in_place = launch_at(kernel.value(), launch, &pair);
        for (std::size_t i = 0; i < apart.size(); ++i)
          EXPECT_TRUE(bit_equal(apart[i], in_place[i]))
              << op->name << "/" << sample.name << " output " << i << " with output " << pair.output
              << " over input " << pair.input;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 250u);
}

// A fused region that still reads an input after the statement whose result may overwrite it.
TEST(FusedRegionInPlace, KeepsInputsUntilTheirLastUse) {
  const OpDef& op = op_by_name("FusedElementwise");
  const Sample sample{.name = "late reads",
                      .attrs = {{"code", std::string("t0=Add(i0,i1);t1=Mul(t0,i0);t2=Sub(i1,t1)")},
                                {"outputs", Ints{0, 1, 2}}},
                      .inputs = {floats({5, 700}), floats({5, 700})},
                      .output_count = 3};
  Launch launch;
  ASSERT_TRUE(prepare(op, sample, launch));
  auto kernel = op.cpu(launch.types);
  ASSERT_TRUE(kernel.ok());
  const auto apart = launch_at(kernel.value(), launch, nullptr);
  const auto pairs = allowed_pairs(op, launch.types);
  EXPECT_EQ(pairs.size(), 6u);
  for (const Pair& pair : pairs) {
    const auto in_place = launch_at(kernel.value(), launch, &pair);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(bit_equal(apart[i], in_place[i])) << pair.output << " over " << pair.input;
  }
}

}  // namespace
}  // namespace gradloom
