// The plan checker: shares no code with the planner. It runs the steps over a shadow
// of the memory, one cell per 64 bytes, that records which contents each cell holds,
// and sees every read of contents that are no longer there.
#include <algorithm>
#include <vector>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/plan/plan.h"

namespace gradloom {
namespace {

using Contents = std::uint32_t;  // ValueId of the value whose bytes they are; views share their source's
constexpr Contents kUnwritten = 0xffffffffu, kWorkspace = 0xfffffffeu;

class Shadow {
 public:
  Shadow(const Graph& graph, const Plan& plan)
      : graph_(graph), plan_(plan), contents_of_(graph.values.size()) {
    sizes_[static_cast<int>(Place::arena)] = plan.arena_bytes;
    sizes_[static_cast<int>(Place::state)] = plan.state_bytes;
    sizes_[static_cast<int>(Place::input)] = plan.input_bytes;
    sizes_[static_cast<int>(Place::constant)] = plan.constant_bytes;
    sizes_[static_cast<int>(Place::result)] = plan.result_bytes;
    for (int p = 0; p < 6; ++p) cells_[p].assign(static_cast<std::size_t>((sizes_[p] + 63) / 64), kUnwritten);
    for (ValueId v = 0; v < graph.values.size(); ++v) contents_of_[v] = v;
  }

  Status run() {
    const std::vector<NodeId> order = TRY(topological_order(graph_));
    for (NodeId id : order)  // views in producer order, so that chains resolve
      if (graph_.nodes[id].op->has(kView))
        contents_of_[graph_.nodes[id].outputs[0]] = contents_of_[graph_.nodes[id].inputs[0]];
    for (ValueId v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      if (value.producer != kNone || plan_.buffer_of[v] < 0) continue;
      const Place want = value.role == Role::constant                                 ? Place::constant
                         : value.role == Role::parameter || value.role == Role::state ? Place::state
                                                                                      : Place::input;
      if (buffer(v).place != want) return fail("'" + value.name + "' is in the wrong block");
      TRY(check_range(buffer(v).place, buffer(v).offset, buffer(v).bytes, v));
      if (!all(v, kUnwritten)) return fail("'" + value.name + "' overlaps another input, state or constant");
      write(v);
    }
    std::vector<int> scheduled(graph_.nodes.size(), 0);
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      if (static_cast<std::int32_t>(i) == plan_.first_backward_step) TRY(check_border());
      ++scheduled[plan_.steps[i].node];
      if (Status s = check_step(plan_.steps[i]); !s)
        return with_context(s.error(), "step " + std::to_string(i));
    }
    for (NodeId id : order)
      if (!graph_.nodes[id].op->has(kView) && scheduled[id] != 1)
        return fail("node '" + graph_.nodes[id].name + "' is scheduled " + std::to_string(scheduled[id]) +
                    " times");
    if (static_cast<std::size_t>(plan_.first_backward_step) == plan_.steps.size()) TRY(check_border());
    TRY(check_outputs(in_parts() ? plan_.forward_outputs : 0, graph_.outputs.size(), "step"));
    return check_updates();
  }

 private:
  bool in_parts() const { return plan_.first_backward_step >= 0; }
  Status check_outputs(std::size_t begin, std::size_t end, const char* of) {
    for (std::size_t i = begin; i < end; ++i)
      if (const ValueId out = graph_.outputs[i]; !holds(out))
        return fail("output '" + graph_.values[out].name + "' was overwritten before the end of the " + of);
    return {};
  }
  // After the first of two parts. What the caller does with its results is no longer known.
  Status check_border() {
    TRY(check_outputs(0, plan_.forward_outputs, "first part"));
    std::fill(cells(Place::result).begin(), cells(Place::result).end(), kUnwritten);
    return check_updates();
  }
  Status check_updates() {
    for (const Update& u : graph_.updates) {
      if (buffer(u.state).offset != buffer(u.next).offset || buffer(u.next).place != Place::state ||
          !holds(u.next))
        return fail("state '" + graph_.values[u.state].name + "' does not hold its update after the step");
    }
    return {};
  }

  static Error fail(const std::string& message) { return Error{Errc::bug, "invalid plan: " + message}; }
  const Buffer& buffer(ValueId v) const {
    return plan_.buffers[static_cast<std::size_t>(plan_.buffer_of[v])];
  }
  std::size_t first_cell(ValueId v) const { return static_cast<std::size_t>(buffer(v).offset / 64); }
  std::size_t cell_count(ValueId v) const { return (byte_size(graph_.values[v].type) + 63) / 64; }
  std::vector<Contents>& cells(Place p) { return cells_[static_cast<int>(p)]; }

  Status check_range(Place place, std::int64_t offset, std::int64_t bytes, ValueId v) const {
    const std::int64_t size = sizes_[static_cast<int>(place)];
    const std::string name = v == kNone ? "workspace" : "'" + graph_.values[v].name + "'";
    if (place == Place::none || offset < 0 || offset % kAlignmentBytes != 0 || offset + bytes > size)
      return fail(name + " at offset " + std::to_string(offset) + " of " + std::to_string(bytes) +
                  " bytes is outside its block or misaligned");
    if (v != kNone && static_cast<std::size_t>(bytes) < byte_size(graph_.values[v].type))
      return fail(name + " is larger than its buffer");
    return {};
  }
  bool all(ValueId v, Contents want) {
    const auto& block = cells(buffer(v).place);
    for (std::size_t i = 0; i < cell_count(v); ++i)
      if (block[first_cell(v) + i] != want) return false;
    return true;
  }
  bool holds(ValueId v) { return plan_.buffer_of[v] >= 0 && all(v, contents_of_[v]); }
  void write(ValueId v) {
    auto& block = cells(buffer(v).place);
    std::fill_n(block.begin() + static_cast<std::ptrdiff_t>(first_cell(v)), cell_count(v), contents_of_[v]);
  }

  Status check_step(const PlanStep& step) {
    const Node& node = graph_.nodes[step.node];
    const auto where = [&](const std::string& message) {
      return fail("node '" + node.name + "' " + message);
    };
    if (step.workspace_bytes > 0) {
      TRY(check_range(Place::arena, step.workspace_offset, step.workspace_bytes, kNone));
      auto& arena = cells(Place::arena);
      std::fill_n(arena.begin() + step.workspace_offset / 64, step.workspace_bytes / 64, kWorkspace);
    }
    for (ValueId in : node.inputs) {
      if (in == kNone) continue;
      if (plan_.buffer_of[in] < 0)
        return where("reads '" + graph_.values[in].name + "', which has no buffer");
      if (!holds(in)) return where("reads '" + graph_.values[in].name + "' after it was overwritten");
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId out = node.outputs[i];
      if (out == kNone) continue;
      if (plan_.buffer_of[out] < 0) return where("has an output without a buffer");
      TRY(check_range(buffer(out).place, buffer(out).offset, buffer(out).bytes, out));
      TRY(check_output(step, node, i, out));
      write(out);
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNone && !holds(node.outputs[i]))
        return where("writes two outputs to the same memory");
    return {};
  }

  // An output may touch an input's memory only exactly, and only where the operator works element by element
  // or must alias.
  Status check_output(const PlanStep& step, const Node& node, std::size_t index, ValueId out) {
    const Buffer& mine = buffer(out);
    const std::string name = "node '" + node.name + "' writes '" + graph_.values[out].name + "' ";
    if (mine.place == Place::arena && step.workspace_bytes > 0 &&
        mine.offset < step.workspace_offset + step.workspace_bytes &&
        step.workspace_offset < mine.offset + static_cast<std::int64_t>(byte_size(graph_.values[out].type)))
      return fail(name + "over its own workspace");
    bool aliases = false;
    if (node.op->aliases != nullptr)
      for (const auto& [output, input] : node.op->aliases(node)) {
        if (static_cast<std::size_t>(output) != index) continue;
        const Buffer& state = buffer(node.inputs[static_cast<std::size_t>(input)]);
        aliases = state.offset == mine.offset && state.place == mine.place;
        if (node.op->has(kMustAlias) && !aliases) return fail(name + "away from the state it must update");
      }
    if (!aliases && mine.place != Place::arena && mine.place != Place::result)
      return fail(name + "outside the arena");
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId in = node.inputs[i];
      if (in == kNone || buffer(in).place != mine.place) continue;
      const Buffer& other = buffer(in);
      const auto in_bytes = static_cast<std::int64_t>(byte_size(graph_.values[in].type));
      const auto out_bytes = static_cast<std::int64_t>(byte_size(graph_.values[out].type));
      if (mine.offset >= other.offset + in_bytes || other.offset >= mine.offset + out_bytes) continue;
      const bool allowed = node.op->has(kElementwise) || node.op->has(kPointwise) ||
                           (index == 0 && static_cast<int>(i) == node.op->inplace_input) || aliases;
      const bool same =
          mine.offset == other.offset && graph_.values[in].type.shape == graph_.values[out].type.shape &&
          dtype_bytes(graph_.values[in].type.dtype) == dtype_bytes(graph_.values[out].type.dtype);
      if (!allowed || !same) return fail(name + "over its input '" + graph_.values[in].name + "'");
    }
    return {};
  }

  const Graph& graph_;
  const Plan& plan_;
  std::vector<Contents> contents_of_;
  std::int64_t sizes_[6] = {};
  std::vector<Contents> cells_[6];
};

}  // namespace

Status check_plan(const Graph& graph, const Plan& plan) {
  if (plan.buffer_of.size() != graph.values.size())
    return Error{Errc::bug, "invalid plan: made for another graph"};
  return Shadow(graph, plan).run();
}

}  // namespace gradloom
