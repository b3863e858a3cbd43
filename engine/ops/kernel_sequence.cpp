#include "engine/ops/kernel_sequence.h"

#include <algorithm>

#include "engine/ops/gradient_rules.h"
#include "engine/ops/preparation.h"
#include "kernels/library_kernels.h"

namespace gradloom {
namespace {

// Where a value lies while the sequence runs.
struct Address {
  enum Place { input, output, workspace, constant, nowhere } place = nowhere;
  std::size_t at = 0;  // number of the input, output or value, or byte in the workspace
};

struct Step {
  Kernel kernel;
  std::vector<Address> inputs, outputs;
};

struct Steps {
  std::shared_ptr<const Graph> graph;  // kernels may refer to its constants
  std::vector<Step> steps;
  std::size_t scratch = 0;  // bytes of the values; the workspace of the steps follows
};

void* address(const Address& a, const Graph& graph, const LaunchArgs& launch) {
  switch (a.place) {
    case Address::input: return const_cast<void*>(launch.inputs[a.at]);
    case Address::output: return launch.outputs[a.at];
    case Address::workspace: return static_cast<char*>(launch.workspace) + a.at;
    case Address::constant: return const_cast<void*>(graph.values[a.at].data.data());  // read on the CPU only
    case Address::nowhere: break;
  }
  return nullptr;
}

void run_steps(const Steps& steps, const LaunchArgs& launch) {
  constexpr std::size_t kMost = 8;  // inputs or outputs of one step
  for (const Step& step : steps.steps) {
    const void* in[kMost] = {};
    void* out[kMost] = {};
    for (std::size_t i = 0; i < std::min(kMost, step.inputs.size()); ++i)
      in[i] = address(step.inputs[i], *steps.graph, launch);
    for (std::size_t i = 0; i < std::min(kMost, step.outputs.size()); ++i)
      out[i] = address(step.outputs[i], *steps.graph, launch);
    step.kernel.run(
        {in, out, static_cast<char*>(launch.workspace) + steps.scratch, launch.random, launch.on});
  }
}

}  // namespace

KernelSequence::KernelSequence(const NodeTypes& types)
    : graph_(std::make_shared<Graph>()), types_(types), builder_(*graph_) {
  for (std::size_t i = 0; i < types.inputs.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    if (!types.has(i))
      inputs_.push_back(kNone);
    else
      inputs_.push_back(builder_.input(name, types.inputs[i]));
  }
}

ValueId KernelSequence::cast(ValueId x, DType to) { return cast_to(builder_, x, to); }

ValueId KernelSequence::first_largest(ValueId x, std::int64_t axis) {
  const Shape shape = builder_.shape(x);
  const std::int64_t n = shape[static_cast<std::size_t>(axis)];
  Shape along(shape.size() - static_cast<std::size_t>(axis), 1);
  along[0] = n;
  const auto i32 = [&](std::int64_t v) { return builder_.scalar(DType::i32, static_cast<double>(v)); };
  const ValueId index = op("Reshape", {op("Range", {i32(0), i32(n), i32(1)}), builder_.i64s(along)});
  const ValueId largest = op("Equal", {x, op("ReduceMax", {x, builder_.i64s({axis})})});
  return op("ReduceMin", {op("Where", {largest, index, i32(n)}), builder_.i64s({axis})});
}

Result<Kernel> KernelSequence::prepare(const std::string& name, const std::vector<ValueId>& results) {
  auto steps = std::make_shared<Steps>();
  steps->graph = graph_;
  std::vector<Address> places(graph_->values.size());
  for (std::size_t id = 0; id < places.size(); ++id)
    if (graph_->values[id].data.defined()) places[id] = {Address::constant, id};
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i] != kNone) places[inputs_[i]] = {Address::input, i};
  for (std::size_t o = 0; o < results.size(); ++o)
    if (types_.wants(o)) places[results[o]] = {Address::output, o};
  std::size_t workspace = 0;
  Kernel kernel;
  for (const Node& node : graph_->nodes) {
    if (node.op->has(kView)) {
      places[node.outputs[0]] = places[node.inputs[0]];
      continue;
    }
    Step step;
    step.kernel =
        TRY(node.op->prepare(types_.target) == nullptr
                ? Result<Kernel>(no_kernel(std::string(node.op->name) + " has no kernel"))
                : prepare_kernel(*node.op, node_types(*graph_, node, types_.target, types_.dnn_library)));
    for (const ValueId id : node.outputs) {
      if (places[id].place == Address::nowhere) {
        places[id] = {Address::workspace, steps->scratch};
        steps->scratch += aligned_bytes(byte_size(graph_->type(id)));
      }
      step.outputs.push_back(places[id]);
    }
    for (const ValueId id : node.inputs) step.inputs.push_back(id == kNone ? Address{} : places[id]);
    workspace = std::max(workspace, step.kernel.workspace_bytes);
    kernel.programs.insert(kernel.programs.end(), step.kernel.programs.begin(), step.kernel.programs.end());
    steps->steps.push_back(std::move(step));
  }
  if (workspace > 0) steps->scratch = kernels::library_place(types_.target, steps->scratch);
  kernel.name = name;
  kernel.workspace_bytes = steps->scratch + workspace;
  kernel.run = [steps = std::shared_ptr<const Steps>(steps)](const LaunchArgs& launch) {
    run_steps(*steps, launch);
  };
  return kernel;
}

}  // namespace gradloom
