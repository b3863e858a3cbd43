#include "viz/model/memory_model.h"

#include <algorithm>
#include <map>

#include "engine/ir/op.h"

namespace gradloom {
namespace {

// Live bytes, peak and order, once the blocks are known.
void finish(MemoryModel& model, int32_t steps) {
  std::stable_sort(model.blocks.begin(), model.blocks.end(),
                   [](const MemoryBlock& a, const MemoryBlock& b) { return a.offset < b.offset; });
  std::vector<int64_t> change(steps + 1, 0);
  for (const MemoryBlock& block : model.blocks) {
    change[std::clamp(block.first_step, 0, steps)] += block.bytes;
    change[std::clamp(block.last_step + 1, 0, steps)] -= block.bytes;
  }
  model.live.assign(steps, 0);
  int64_t live = 0;
  for (int32_t s = 0; s < steps; ++s) {
    live += change[s];
    model.live[s] = live;
    if (live > model.live[model.peak_step]) model.peak_step = s;
  }
  model.live_at_peak = model.live_at(model.peak_step);
}

std::string part_text(const std::string& name, const BufferPart& part) {
  const int64_t last = part.offset_bytes + (part.rows - 1) * part.pitch_bytes + part.row_bytes - 1;
  std::string text = name + ": bytes " + std::to_string(part.offset_bytes) + " to " + std::to_string(last);
  if (!part.dense())
    text += ", " + std::to_string(part.row_bytes) + " of each " + std::to_string(part.pitch_bytes);
  return text;
}

// A node without a kernel: its parts are made by theirs.
bool joins_parts(const Plan& plan, const Node& node) {
  return is_op(node, "Concat") && !node.outputs.empty() &&
         std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId in) {
           return plan.pieces.count(in) != 0 && plan.buffer_of[in] == plan.buffer_of[node.outputs[0]];
         });
}

}  // namespace

std::vector<int32_t> MemoryModel::live_at(int32_t step) const {
  std::vector<int32_t> out;
  for (int32_t b = 0; b < static_cast<int32_t>(blocks.size()); ++b) {
    if (blocks[b].first_step <= step && step <= blocks[b].last_step) out.push_back(b);
  }
  std::stable_sort(out.begin(), out.end(),
                   [&](int32_t a, int32_t b) { return blocks[a].bytes > blocks[b].bytes; });
  return out;
}

std::map<std::string, int64_t> held_at_peak(const MemoryModel& memory) {
  std::map<std::string, int64_t> held;
  for (const int32_t b : memory.live_at_peak) {
    const MemoryBlock& block = memory.blocks[static_cast<size_t>(b)];
    if (!block.node.empty()) held[block.node] += block.bytes;
  }
  return held;
}

int32_t MemoryModel::find(const std::string& value) const {
  for (int32_t b = 0; b < static_cast<int32_t>(blocks.size()); ++b) {
    if (std::find(blocks[b].values.begin(), blocks[b].values.end(), value) != blocks[b].values.end())
      return b;
  }
  return -1;
}

MemoryModel build_memory_model(const Graph& graph, const Plan& plan, const std::vector<double>& step_ns) {
  MemoryModel model;
  model.arena_bytes = plan.arena_bytes;
  model.state_bytes = plan.state_bytes;
  model.input_bytes = plan.input_bytes;
  model.constant_bytes = plan.constant_bytes;
  model.host_bytes = plan.host_bytes;
  model.lower_bound_bytes = plan.lower_bound_bytes;
  model.planner = plan.planner;
  std::vector<int32_t> block_of(plan.buffers.size(), -1);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& buffer = plan.buffers[i];
    if (buffer.place != Place::arena || buffer.bytes == 0) continue;
    block_of[i] = static_cast<int32_t>(model.blocks.size());
    MemoryBlock block;
    block.offset = buffer.offset;
    block.bytes = buffer.bytes;
    block.first_step = buffer.first_step;
    block.last_step = buffer.last_step;
    model.blocks.push_back(std::move(block));
  }
  for (ValueId id = 0; id < graph.values.size() && id < plan.buffer_of.size(); ++id) {
    const int32_t buffer = plan.buffer_of[id];
    if (buffer < 0 || block_of[buffer] < 0) continue;
    MemoryBlock& block = model.blocks[block_of[buffer]];
    block.values.push_back(graph.values[id].name);
    const auto part = plan.pieces.find(id);
    if (part != plan.pieces.end())
      block.parts.push_back(part_text(graph.values[id].name, part->second));
    else if (block.name.empty())
      block.name = graph.values[id].name;
    const NodeId producer = graph.values[id].producer;
    if (!block.node.empty() || producer == kNone || joins_parts(plan, graph.nodes[producer])) continue;
    block.node = graph.nodes[producer].name;
    block.phase = graph.nodes[producer].origin.phase;
  }
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const PlanStep& step = plan.steps[s];
    const Node& node = graph.nodes[step.node];
    model.step_names.push_back(node.name);
    if (step.workspace_bytes <= 0 || step.workspace_offset < 0) continue;
    MemoryBlock block;
    block.name = "workspace of " + node.name;
    block.node = node.name;
    block.offset = step.workspace_offset;
    block.bytes = step.workspace_bytes;
    block.first_step = block.last_step = static_cast<int32_t>(s);
    block.phase = node.origin.phase;
    block.workspace = true;
    model.blocks.push_back(std::move(block));
  }
  finish(model, static_cast<int32_t>(plan.steps.size()));
  model.findings = find_memory(graph, plan, step_ns);
  return model;
}

MemoryModel build_memory_model(const RunRecord& run) {
  MemoryModel model;
  model.lower_bound_bytes = run.summary.lower_bound_bytes;
  model.arena_bytes = run.summary.arena_bytes;
  model.measured_peak_bytes = run.summary.measured_peak_bytes;
  model.planner = run.summary.planner;
  auto phase_of = [](const std::string& name) {
    for (Phase phase : {Phase::forward, Phase::loss, Phase::backward, Phase::optimizer}) {
      if (name == phase_name(phase)) return phase;
    }
    return Phase::forward;
  };
  std::vector<Phase> step_phase;
  for (const KernelRow& kernel : run.kernels) {
    model.step_names.push_back(kernel.info.node);
    step_phase.push_back(phase_of(kernel.info.phase));
  }
  auto steps = static_cast<int32_t>(run.kernels.size());
  std::map<std::string, int64_t> sizes;
  for (const BufferRow& row : run.buffers) {
    if (row.place != "arena") {
      sizes[row.place] = std::max(sizes[row.place], row.offset + row.bytes);
      continue;
    }
    MemoryBlock block;
    block.values = row.values;
    if (!row.values.empty()) block.name = row.values.front();
    block.offset = row.offset;
    block.bytes = row.bytes;
    block.first_step = static_cast<int32_t>(row.first_step);
    block.last_step = static_cast<int32_t>(row.last_step);
    steps = std::max(steps, block.last_step + 1);
    if (block.first_step >= 0 && block.first_step < static_cast<int32_t>(step_phase.size())) {
      block.phase = step_phase[block.first_step];
      block.node = model.step_names[block.first_step];
    }
    model.blocks.push_back(std::move(block));
  }
  model.state_bytes = sizes["state"];
  model.input_bytes = sizes["input"];
  model.constant_bytes = sizes["constant"];
  model.host_bytes = sizes["host"];
  finish(model, std::max(steps, 1));
  return model;
}

}  // namespace gradloom
