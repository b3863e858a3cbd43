// A graph interpreter for tests, independent of planner and executor: nodes in topological order, every value
// in memory of its own with guard bytes around it, nothing reused, nothing in place.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/op.h"
#include "kernels/launcher.h"

namespace gradloom::reference {

using Feeds = std::map<ValueId, Tensor>;

// Memory of one value: 64 guard bytes on both sides, everything filled with `pattern` before the kernel runs.
class GuardedBlock {
 public:
  static constexpr std::size_t kGuard = 64;
  GuardedBlock(std::size_t bytes, unsigned char pattern) : bytes_(bytes), pattern_(pattern) {
    const std::size_t total = (bytes + 2 * kGuard + 63) / 64 * 64;
    memory_.reset(static_cast<unsigned char*>(std::aligned_alloc(64, total)));
    std::memset(memory_.get(), pattern, total);
  }
  void* data() { return memory_.get() + kGuard; }
  bool guards_intact() const {
    for (std::size_t i = 0; i < kGuard; ++i)
      if (memory_[i] != pattern_ || memory_[kGuard + bytes_ + i] != pattern_) return false;
    return true;
  }

 private:
  struct Free {
    void operator()(unsigned char* p) const { std::free(p); }
  };
  std::size_t bytes_;
  unsigned char pattern_;
  std::unique_ptr<unsigned char[], Free> memory_;
};

// Kernels prepared once, run many times with different inputs.
class Runner {
 public:
  static Result<Runner> create(const Graph& graph) {
    Runner runner(graph);
    for (NodeId id : TRY(topological_order(graph))) {
      const Node& node = graph.nodes[id];
      Step step;
      step.node = id;
      if (!node.op->has(kView)) {
        if (node.op->cpu == nullptr)
          return Error{Errc::device, std::string(node.op->name) + " has no CPU kernel"};
        auto kernel = node.op->cpu(node_types(graph, node));
        if (!kernel) return with_context(kernel.error(), node.op->name);
        step.kernel = std::move(*kernel);
      }
      runner.steps_.push_back(std::move(step));
    }
    return runner;
  }

  // A tensor for every value that exists; constants and parameters bring their own unless fed.
  Result<std::vector<Tensor>> run(const Feeds& feeds, std::uint64_t seed = 0, std::uint64_t step = 0,
                                  unsigned char pattern = 0xcd) const {
    std::vector<Tensor> values(graph_->values.size());
    for (ValueId id = 0; id < values.size(); ++id)
      if (graph_->values[id].producer == kNone) values[id] = graph_->values[id].data;
    for (const auto& [id, tensor] : feeds) values[id] = tensor;
    for (const Step& s : steps_) TRY(run_step(s, values, seed, step, pattern));
    return values;
  }

 private:
  struct Step {
    NodeId node;
    Kernel kernel;
  };
  explicit Runner(const Graph& graph) : graph_(&graph) {}

  Status run_step(const Step& s, std::vector<Tensor>& values, std::uint64_t seed, std::uint64_t step,
                  unsigned char pattern) const {
    const Node& node = graph_->nodes[s.node];
    std::vector<const void*> in;
    for (ValueId id : node.inputs) {
      if (id != kNone && !values[id].defined())
        return Error{Errc::usage, "no contents for '" + graph_->values[id].name + "'"};
      in.push_back(id == kNone ? nullptr : values[id].data());
    }
    if (node.op->has(kView)) {
      values[node.outputs[0]] = values[node.inputs[0]].reshaped(graph_->type(node.outputs[0]).shape);
      return {};
    }
    std::vector<std::unique_ptr<GuardedBlock>> blocks;
    std::vector<void*> out;
    for (ValueId id : node.outputs) {
      blocks.push_back(id == kNone ? nullptr
                                   : std::make_unique<GuardedBlock>(byte_size(graph_->type(id)), pattern));
      out.push_back(id == kNone ? nullptr : blocks.back()->data());
    }
    GuardedBlock workspace(s.kernel.workspace_bytes, pattern);
    const kernels::RandomState random{seed, step};
    LaunchArgs args{in.data(), out.data(), workspace.data(), &random, kernels::cpu_launcher()};
    s.kernel.run(args);
    if (!workspace.guards_intact()) return Error{Errc::bug, s.kernel.name + " writes outside its workspace"};
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      if (!blocks[i]->guards_intact())
        return Error{Errc::bug, s.kernel.name + " writes outside output " + std::to_string(i)};
      const Type& type = graph_->type(node.outputs[i]);
      Tensor tensor(type.dtype, type.shape);
      if (tensor.bytes() > 0) std::memcpy(tensor.mutable_data(), blocks[i]->data(), tensor.bytes());
      values[node.outputs[i]] = std::move(tensor);
    }
    return {};
  }

  const Graph* graph_;
  std::vector<Step> steps_;
};

}  // namespace gradloom::reference
