#include "engine/plan/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ir/views.h"
#include "engine/ops/transfers.h"
#include "engine/plan/known_kernels.h"
#include "engine/plan/micro_steps.h"
#include "engine/plan/pieces.h"
#include "engine/plan/planned_types.h"
#include "engine/plan/streams.h"
#include "kernels/library_kernels.h"

namespace gradloom {
namespace {

// Kernels and the errors of those that do not exist: all of them in one message.
Result<std::vector<PlanStep>> describe_steps(const Graph& graph, const std::vector<NodeId>& order,
                                             const std::vector<bool>& once, KnownKernels& known,
                                             const Plan& plan) {
  const char* const device = plan.target == kernels::Target::cpu ? "the CPU" : "GPUs";
  std::map<std::string, std::vector<std::string>> missing;
  std::vector<PlanStep> steps;
  for (NodeId id : order) {
    const Node& node = graph.nodes[id];
    if (node.op->has(kView)) continue;
    if (node.op->prepare(plan.target) == nullptr) {
      missing[node.op->name].push_back(escaped(node.name));
      continue;
    }
    const NodeTypes types = node_types(graph, node, plan.target, plan.dnn_library);
    const auto facts = known.of(*node.op, types);
    if (!facts)
      return with_context(facts.error(), "node '" + escaped(node.name) + "' (" + node.op->name + ")");
    PlanStep step{.node = id};
    step.kernel = facts->kernel;
    step.workspace_bytes = facts->workspace_bytes;
    step.micro = !once[id];
    step.flops = facts->cost.flops;
    step.bytes_read = facts->cost.bytes_read;
    step.bytes_written = facts->cost.bytes_written;
    step.launches = facts->launches;
    steps.push_back(std::move(step));
  }
  if (missing.empty()) return steps;
  std::string text = std::to_string(missing.size()) + " operator(s) have no kernel on " + device + ":";
  for (const auto& [op, nodes] : missing) {
    text += " " + op + " (";
    for (std::size_t i = 0; i < nodes.size(); ++i) text += (i ? ", " : "") + nodes[i];
    text += ")";
  }
  return Error{Errc::device, text};
}

// What the first part of a plan in two parts runs, and nothing else: what its outputs and the updates are made of.
std::vector<bool> in_first_part(const Graph& graph, const std::vector<NodeId>& order,
                                std::size_t forward_outputs) {
  std::vector<bool> needed(graph.values.size(), false), first(graph.nodes.size(), false);
  for (std::size_t i = 0; i < forward_outputs; ++i) needed[graph.outputs[i]] = true;
  for (const Update& u : graph.updates) needed[u.next] = true;
  for (std::size_t i = order.size(); i-- > 0;) {
    const Node& node = graph.nodes[order[i]];
    for (const ValueId out : node.outputs) first[order[i]] = first[order[i]] || (out != kNone && needed[out]);
    if (!first[order[i]]) continue;
    for (const ValueId in : node.inputs)
      if (in != kNone) needed[in] = true;
  }
  return first;
}

// Groups values that share storage, then gives each group a buffer.
class BufferAssigner {
 public:
  BufferAssigner(const Graph& graph, Plan& plan, const std::vector<NodeId>& order, const PlanOptions& options)
      : graph_(graph),
        plan_(plan),
        order_(order),
        options_(options),
        step_of_(graph.nodes.size(), -1),
        busy_until_(last_busy_steps(plan)) {
    for (const PieceChoice& choice : plan.choices)
      if (choice.taken) moves_.emplace(choice.node, moves_of(graph, graph.nodes[choice.node]));
    for (std::size_t i = 0; i < plan.steps.size(); ++i)
      step_of_[plan.steps[i].node] = static_cast<std::int32_t>(i);
    plan_.buffer_of.assign(graph.values.size(), -1);
    needed_until_.assign(graph.values.size(), -1);
    const auto last = static_cast<std::int32_t>(plan.steps.size()) - 1;
    for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
      std::int32_t& until = needed_until_[graph.outputs[i]];
      until = std::max(until, of_first_part(i) ? plan.first_backward_step - 1 : last);
    }
    if (graph.loss != kNone) needed_until_[graph.loss] = last;
    find_replaced();
  }

  Status run() {
    place_sources();
    const auto uses = uses_of(graph_);
    last_read_.assign(graph_.values.size(), -1);
    aside_until_.assign(graph_.values.size(), -1);
    for (ValueId v = 0; v < graph_.values.size(); ++v)
      for (const Use& use : uses[v])
        if (const std::int32_t step = step_of_[use.node]; step >= 0) note_read(v, step);
    // A view is read when its own readers run, and so are parts and what they are joined to: pass last reads up, from
    // later views to earlier ones.
    for (std::size_t i = order_.size(); i-- > 0;) {
      const Node& node = graph_.nodes[order_[i]];
      const auto moves = moves_.find(order_[i]);
      if (!node.op->has(kView) && moves == moves_.end()) continue;
      for (const ValueId in : node.inputs) {
        if (in == kNone) continue;
        for (const ValueId out : node.outputs) {
          last_read_[in] = std::max(last_read_[in], last_read_[out]);
          aside_until_[in] = std::max(aside_until_[in], aside_until_[out]);
          needed_until_[in] = std::max(needed_until_[in], needed_until_[out]);
        }
        if (moves == moves_.end() || !moves->second.joins) break;  // the others only say how
      }
      if (moves != moves_.end() && moves->second.joins) find_places(moves->second);
    }
    if (options_.forward_outputs) choose_results();
    for (NodeId id : order_) {
      if (const auto moves = moves_.find(id); moves != moves_.end())
        place_moves(moves->second);
      else if (Status s = place_outputs(graph_.nodes[id], step_of_[id]); !s)
        return s;
    }
    return check_updates();
  }

 private:
  // The steps by which nodes bring a state to what it holds next: one as a rule, more where several update it. A fused
  // optimizer has thousands of pairs, which are asked for once.
  void find_replaced() {
    std::vector<ValueId> from(graph_.values.size(), kNone);
    for (const Node& node : graph_.nodes) {
      if (!node.alive() || node.op->aliases == nullptr) continue;
      for (const auto& [output, input] : node.op->aliases(node))
        if (const ValueId out = node.outputs[static_cast<std::size_t>(output)]; out != kNone)
          from[out] = node.inputs[static_cast<std::size_t>(input)];
    }
    for (const Update& update : graph_.updates)
      for (ValueId next = update.next; next != update.state && from[next] != kNone; next = from[next])
        replaces_[next] = from[next];
  }

  // `v` is read by a step as long as that may run.
  void note_read(ValueId v, std::int32_t step) {
    const auto i = static_cast<std::size_t>(step);
    last_read_[v] = std::max(last_read_[v], busy_until_[i]);
    if (plan_.steps[i].stream != kComputeStream) aside_until_[v] = std::max(aside_until_[v], busy_until_[i]);
  }

  std::int32_t new_buffer(Place place, std::int64_t bytes, std::int32_t step) {
    plan_.buffers.push_back({place, 0, aligned_bytes(bytes), step, step});
    return static_cast<std::int32_t>(plan_.buffers.size() - 1);
  }

  void place_sources() {
    std::vector<bool> used(graph_.values.size(), false);
    for (NodeId id : order_)
      for (ValueId in : graph_.nodes[id].inputs)
        if (in != kNone) used[in] = true;
    for (const Update& u : graph_.updates) used[u.state] = true;
    for (ValueId out : graph_.outputs) used[out] = true;
    for (ValueId v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      if (value.producer != kNone || !used[v]) continue;
      Place place = Place::input;
      if (value.role == Role::constant) place = Place::constant;
      if (value.role == Role::parameter || value.role == Role::state) place = Place::state;
      plan_.buffer_of[v] = new_buffer(place, static_cast<std::int64_t>(byte_size(value.type)), 0);
    }
  }

  bool of_first_part(std::size_t output) const {
    return options_.forward_outputs && output < plan_.forward_outputs;
  }

  // What the first part makes and the second needs, too, stays in the arena.
  void choose_results() {
    result_.assign(graph_.values.size(), false);
    std::vector<ValueId> outputs;
    for (const ValueId out : graph_.outputs) outputs.push_back(behind_views(graph_, out));
    for (const ValueId v : outputs) result_[v] = graph_.values[v].producer != kNone;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const ValueId v = outputs[i];
      const bool made_first = result_[v] && step_of_[graph_.values[v].producer] < plan_.first_backward_step;
      if (made_first && (!of_first_part(i) || last_read_[v] >= plan_.first_backward_step)) result_[v] = false;
    }
  }

  // Where the kernels behind views write what is joined.
  void find_places(const Moves& moves) {
    for (std::size_t i = 0; i < moves.parts.size(); ++i)
      joined_[behind_views(graph_, moves.parts[i])] = {moves.whole, moves.places[i]};
  }

  // The buffer of a tensor that is joined of parts, of which `part` is one.
  std::int32_t place_part(ValueId part, ValueId whole, const BufferPart& place, std::int32_t step) {
    std::int32_t& buffer = plan_.buffer_of[whole];
    if (buffer < 0) {
      const auto bytes = static_cast<std::int64_t>(byte_size(graph_.values[whole].type));
      buffer = new_buffer(Place::arena, bytes, step);
    }
    plan_.pieces[part] = place;
    return buffer;
  }

  // `out` is a view of `in`, or of the part of it that begins there.
  void place_view(ValueId in, ValueId out, std::optional<BufferPart> part = {}) {
    plan_.buffer_of[out] = plan_.buffer_of[in];
    const auto at = plan_.pieces.find(in);
    if (at == plan_.pieces.end() && !part) return;
    BufferPart place = part ? *part : at->second;
    if (part && at != plan_.pieces.end()) place.offset_bytes += at->second.offset_bytes;
    plan_.pieces[out] = place;
  }

  // Parts that need no kernel. What is joined lives since the first of its parts was made.
  void place_moves(const Moves& moves) {
    if (moves.joins)
      return keep_until_read(moves.whole,
                             plan_.buffers[static_cast<std::size_t>(plan_.buffer_of[moves.whole])].last_step);
    for (std::size_t i = 0; i < moves.parts.size(); ++i)
      place_view(moves.whole, moves.parts[i], moves.places[i]);
  }

  // Extends the lifetime of the buffer of `v` to the last read of `v`.
  void keep_until_read(ValueId v, std::int32_t produced) {
    const std::int32_t busy = busy_until_[static_cast<std::size_t>(produced)];
    const std::int32_t end = std::max({busy, last_read_[v], needed_until_[v]});
    Buffer& buffer = plan_.buffers[static_cast<std::size_t>(plan_.buffer_of[v])];
    buffer.last_step = std::max(buffer.last_step, end);
    if (aside_until_[v] >= 0) read_aside_[plan_.buffer_of[v]] = aside_until_[v];
    if (needed_until_[v] == end) kept_.insert(plan_.buffer_of[v]);
  }

  Status place_outputs(const Node& node, std::int32_t step) {
    if (node.op->has(kView)) {
      place_view(node.inputs[0], node.outputs[0]);
      return {};
    }
    std::map<std::size_t, ValueId> alias;
    if (node.op->aliases != nullptr)
      for (const auto& [output, input] : node.op->aliases(node)) {
        const ValueId from = node.inputs[static_cast<std::size_t>(input)],
                      to = node.outputs[static_cast<std::size_t>(output)];
        const auto replaced = replaces_.find(to);
        if (node.op->has(kMustAlias) || (replaced != replaces_.end() && replaced->second == from))
          alias[static_cast<std::size_t>(output)] = from;
      }
    std::set<std::int32_t> taken;  // buffers already overwritten by an output of this node
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId out = node.outputs[i];
      if (out == kNone) continue;
      std::int32_t buffer = -1;
      if (const auto it = alias.find(i); it != alias.end()) {
        if (last_read_[it->second] > busy_until_[static_cast<std::size_t>(step)])  // it reads it itself
          return Error{Errc::bug,
                       "'" + graph_.values[it->second].name + "' is updated in place before its last reader"};
        buffer = plan_.buffer_of[it->second];
      } else if (const auto part = joined_.find(out); part != joined_.end()) {
        buffer = place_part(out, part->second.first, part->second.second, step);
      } else if (!result_.empty() && result_[out]) {
        buffer =
            new_buffer(Place::result, static_cast<std::int64_t>(byte_size(graph_.values[out].type)), step);
      } else if (plan_.steps[static_cast<std::size_t>(step)].stream == kDownloadStream) {
        buffer = new_buffer(Place::host, static_cast<std::int64_t>(byte_size(graph_.values[out].type)), step);
      } else if (options_.in_place) {
        buffer = reusable_input(node, i, step, taken);
      }
      if (buffer < 0)
        buffer =
            new_buffer(Place::arena, static_cast<std::int64_t>(byte_size(graph_.values[out].type)), step);
      taken.insert(buffer);
      plan_.buffer_of[out] = buffer;
      keep_until_read(out, step);
    }
    return {};
  }

  // A buffer of an input that dies here and that the operator may overwrite element by element.
  std::int32_t reusable_input(const Node& node, std::size_t output, std::int32_t step,
                              const std::set<std::int32_t>& taken) const {
    const bool elementwise = node.op->has(kElementwise) || node.op->has(kPointwise);
    if (!elementwise && !(output == 0 && node.op->inplace_input >= 0)) return -1;
    const Type& type = graph_.values[node.outputs[output]].type;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!elementwise && static_cast<int>(i) != node.op->inplace_input) continue;
      const ValueId in = node.inputs[i];
      if (in == kNone || graph_.values[in].type.shape != type.shape) continue;
      if (dtype_bytes(graph_.values[in].type.dtype) != dtype_bytes(type.dtype)) continue;
      const std::int32_t b = plan_.buffer_of[in];
      const Buffer& buffer = plan_.buffers[static_cast<std::size_t>(b)];
      if (buffer.place != Place::arena || buffer.last_step != step || taken.count(b) || kept_.count(b) ||
          reads_part_of(node, b))
        continue;
      const auto aside = read_aside_.find(b);
      if (aside != read_aside_.end() && aside->second >= step) continue;
      if (!elementwise && read_elsewhere(node, i, b)) continue;
      return b;
    }
    return -1;
  }

  // Parts are never written over, nor wholes while another operand is a part of them: it may be read again for
  // other elements.
  bool reads_part_of(const Node& node, std::int32_t b) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId in) {
      return in != kNone && plan_.buffer_of[in] == b && plan_.pieces.count(in) != 0;
    });
  }

  // Whether another input of the node lies in the buffer.
  bool read_elsewhere(const Node& node, std::size_t input, std::int32_t b) const {
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (i != input && node.inputs[i] != kNone && plan_.buffer_of[node.inputs[i]] == b) return true;
    return false;
  }

  Status check_updates() const {
    for (const Update& u : graph_.updates)
      if (plan_.buffer_of[u.state] != plan_.buffer_of[u.next])
        return Error{Errc::bug, "update of '" + graph_.values[u.state].name + "' is not made in place"};
    return {};
  }

  const Graph& graph_;
  Plan& plan_;
  const std::vector<NodeId>& order_;
  const PlanOptions& options_;
  std::vector<std::int32_t> step_of_, last_read_;
  const std::vector<std::int32_t> busy_until_;       // by step: last_busy_steps
  std::vector<std::int32_t> aside_until_;            // by value: while other streams read it; -1: none does
  std::map<std::int32_t, std::int32_t> read_aside_;  // the same of the newest contents of a buffer
  std::vector<std::int32_t> needed_until_;           // the end of this step; -1: until it was read
  std::vector<bool> result_;                         // values whose memory is the caller's; empty: none
  std::set<std::int32_t> kept_;          // buffers of outputs: never overwritten, not even by the last step
  std::map<ValueId, ValueId> replaces_;  // next contents of a state -> those before, in the same place
  std::map<NodeId, Moves> moves_;        // of nodes without a kernel
  // Results of kernels -> what they are joined to, and where
  std::map<ValueId, std::pair<ValueId, BufferPart>> joined_;
};

void place_offsets(Plan& plan, PlannerFn planner) {
  std::vector<Request> requests, host_requests;
  std::vector<std::int64_t*> targets, host_targets;
  for (Buffer& b : plan.buffers) {
    if (b.place == Place::arena || b.place == Place::host) {
      const bool host = b.place == Place::host;
      (host ? host_requests : requests).push_back({b.bytes, b.first_step, b.last_step});
      (host ? host_targets : targets).push_back(&b.offset);
      continue;
    }
    std::int64_t& end = b.place == Place::state    ? plan.state_bytes
                        : b.place == Place::input  ? plan.input_bytes
                        : b.place == Place::result ? plan.result_bytes
                                                   : plan.constant_bytes;
    b.offset = end;
    end += b.bytes;
  }
  const std::vector<std::int32_t> busy_until = last_busy_steps(plan);
  // Of a workspace that begins at the next boundary.
  const std::int64_t spare = kernels::shares_host_memory(plan.target)
                                 ? 0
                                 : std::int64_t{kernels::kLibraryBoundaryBytes} - kAlignmentBytes;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    PlanStep& step = plan.steps[i];
    if (step.workspace_bytes == 0) continue;
    step.workspace_bytes = aligned_bytes(step.workspace_bytes);
    requests.push_back({step.workspace_bytes + spare, static_cast<std::int32_t>(i), busy_until[i]});
    targets.push_back(&step.workspace_offset);
  }
  std::vector<std::int64_t> offsets(requests.size(), 0);
  plan.arena_bytes = planner(requests, offsets);
  for (std::size_t i = 0; i < targets.size(); ++i) *targets[i] = offsets[i];
  if (spare > 0)
    for (PlanStep& step : plan.steps)
      if (step.workspace_bytes > 0)
        step.workspace_offset = static_cast<std::int64_t>(
            kernels::at_library_boundary(static_cast<std::size_t>(step.workspace_offset)));
  offsets.assign(host_requests.size(), 0);
  if (!host_requests.empty()) plan.host_bytes = planner(host_requests, offsets);
  for (std::size_t i = 0; i < host_targets.size(); ++i) *host_targets[i] = offsets[i];
  plan.lower_bound_bytes = lower_bound_bytes(requests, &plan.peak_step);
}

std::string plan_hash(const Graph& graph, const Plan& plan) {
  std::string text = graph_hash(graph) + plan.planner + (plan.target == kernels::Target::gpu ? " gpu " : "");
  const auto add = [&](std::int64_t n) { text += std::to_string(n) + " "; };
  for (const PlanStep& s : plan.steps) {
    text += s.kernel;
    for (std::int64_t n : {std::int64_t{s.node}, s.workspace_offset, s.workspace_bytes,
                           std::int64_t{s.stream}, std::int64_t{s.micro}})
      add(n);
    for (const std::int32_t other : s.waits) add(other);
  }
  if (plan.first_backward_step >= 0) add(plan.first_backward_step);
  for (const Buffer& b : plan.buffers)
    for (std::int64_t n :
         {std::int64_t(b.place), b.offset, b.bytes, std::int64_t{b.first_step}, std::int64_t{b.last_step}})
      add(n);
  for (const auto& [value, piece] : plan.pieces)
    for (std::int64_t n :
         {std::int64_t{value}, piece.offset_bytes, piece.rows, piece.row_bytes, piece.pitch_bytes})
      add(n);
  return hash_hex(text);
}

}  // namespace

std::int64_t lower_bound_bytes(const std::vector<Request>& requests, std::int32_t* peak_step) {
  std::map<std::int32_t, std::int64_t> change;
  for (const Request& r : requests) {
    change[r.first_step] += r.bytes;
    change[r.last_step + 1] -= r.bytes;
  }
  std::int64_t live = 0, best = 0;
  for (const auto& [step, delta] : change) {
    live += delta;
    if (live > best) {
      best = live;
      if (peak_step) *peak_step = step;
    }
  }
  return best;
}

std::vector<NodeId> nodes_sized_by_data(const Graph& graph) {
  const auto known = [&](ValueId id) { return id == kNone || shape_known(graph, id); };
  const auto sized_by_data = [&](const Node& node) {
    return node.alive() && std::all_of(node.inputs.begin(), node.inputs.end(), known) &&
           std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId id) { return id != kNone && graph.values[id].has_type && !known(id); });
  };
  std::vector<NodeId> nodes;
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (sized_by_data(graph.nodes[id])) nodes.push_back(id);
  return nodes;
}

namespace {

Status require_bound(const Graph& graph, const std::vector<NodeId>& order) {
  std::set<std::string> unbound;
  for (NodeId id : order)
    for (const auto* list : {&graph.nodes[id].inputs, &graph.nodes[id].outputs})
      for (ValueId v : *list) {
        if (v == kNone || is_static(graph.values[v].type.shape)) continue;
        for (std::int64_t d : graph.values[v].type.shape)
          if (d < 0)
            unbound.insert(static_cast<std::size_t>(-d - 1) < graph.symbols.size()
                               ? escaped(graph.symbols[static_cast<std::size_t>(-d - 1)])
                               : "of '" + escaped(graph.values[v].name) + "'");
      }
  if (unbound.empty()) return {};
  std::string names;
  for (const std::string& n : unbound) names += (names.empty() ? "" : ", ") + n;
  return Error{Errc::usage, "dims are not bound: " + names + " (bind with --dim NAME=N)"};
}

// What every plan of a graph is made from.
struct PlannedKernels {
  std::vector<NodeId> order;
  std::vector<bool> first;  // by node: of the first of two parts; empty: there is one
  std::vector<PlanStep> steps;
  KnownKernels& known;
};

// The kernels of steps with operands or results in rows.
Status describe_rows(const Graph& graph, KnownKernels& known, Plan& plan) {
  const auto in_rows = [&](ValueId v) {
    const auto part = plan.pieces.find(v);  // kNone is none
    return part != plan.pieces.end() && !part->second.dense();
  };
  const auto any = [&](const auto& values) { return std::any_of(values.begin(), values.end(), in_rows); };
  for (PlanStep& step : plan.steps) {
    const Node& node = graph.nodes[step.node];
    if (!any(node.inputs) && !any(node.outputs)) continue;
    const auto facts = TRY(known.of(*node.op, planned_types(graph, plan, node)));
    step.kernel = facts.kernel;
    step.workspace_bytes = facts.workspace_bytes;
  }
  return {};
}

// The plan in which the choices that are taken need no kernel. `plan`: without steps and buffers.
Result<Plan> with_choices(const Graph& graph, const PlanOptions& options, const PlannedKernels& kernels,
                          Plan plan, std::vector<PieceChoice> choices) {
  std::set<NodeId> without;
  for (const PieceChoice& choice : choices)
    if (choice.taken) without.insert(choice.node);
  plan.choices = std::move(choices);
  for (const PlanStep& step : kernels.steps)
    if (without.count(step.node) == 0) plan.steps.push_back(step);
  std::vector<NodeId> order = kernels.order;
  if (options.target == kernels::Target::gpu && !options.forward_outputs)
    place_streams(graph, options.speeds, order, plan);
  if (options.forward_outputs) {
    plan.forward_outputs = *options.forward_outputs;
    plan.first_backward_step = static_cast<std::int32_t>(
        std::count_if(plan.steps.begin(), plan.steps.end(),
                      [&](const PlanStep& step) { return kernels.first[step.node]; }));
  }
  TRY(BufferAssigner(graph, plan, order, options).run());
  TRY(describe_rows(graph, kernels.known, plan));
  place_offsets(plan, options.planner);
  return plan;
}

// Bytes times steps that the arena holds more where a choice is taken: a whole lives as long as any of its parts, without
// the choice each part for itself.
std::int64_t held_longer(const Graph& graph, const Plan& taken, const Plan& copied, NodeId node) {
  const Moves moves = moves_of(graph, graph.nodes[node]);
  const auto held = [&](const Plan& plan) {
    std::set<std::int32_t> buffers;
    for (const ValueId part : moves.parts) buffers.insert(plan.buffer_of[part]);
    buffers.insert(plan.buffer_of[moves.whole]);
    std::int64_t sum = 0;
    for (const std::int32_t b : buffers) {
      const Buffer& buffer = plan.buffers[static_cast<std::size_t>(b)];
      if (buffer.place == Place::arena) sum += buffer.bytes * (buffer.last_step - buffer.first_step + 1);
    }
    return sum;
  };
  return held(taken) - held(copied);
}

// The plan with choices that leave the arena no larger than copies do: all, those that hold nothing longer, of these the dense, none.
Result<Plan> with_best_choices(const Graph& graph, const PlanOptions& options, const PlannedKernels& kernels,
                               const Plan& empty) {
  // Who waits for a copy to the host or back is told by the values that kernels read, not by what they are parts of.
  const bool copies = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.alive() && (copies_to_host(*node.op) || copies_from_host(*node.op));
  });
  std::vector<PieceChoice> choices;
  if (!copies) choices = choose_pieces(graph, kernels.order, options, kernels.known);
  if (std::none_of(choices.begin(), choices.end(), [](const PieceChoice& c) { return c.taken; }))
    return with_choices(graph, options, kernels, empty, std::move(choices));
  const Plan copied = TRY(with_choices(graph, options, kernels, empty, {}));
  Plan plan = TRY(with_choices(graph, options, kernels, empty, choices));
  enum class Drop : std::uint8_t { held_longer, rows, all };
  for (const auto drop : {Drop::held_longer, Drop::rows, Drop::all}) {
    if (plan.arena_bytes <= copied.arena_bytes) break;
    const std::string why = "the arena would take " + bytes_text(static_cast<double>(plan.arena_bytes)) +
                            ", not " + bytes_text(static_cast<double>(copied.arena_bytes));
    for (PieceChoice& choice : choices)
      if (choice.taken &&
          (drop == Drop::all || (drop == Drop::rows && has_rows(moves_of(graph, graph.nodes[choice.node]))) ||
           (drop == Drop::held_longer && held_longer(graph, plan, copied, choice.node) > 0)))
        choice = {choice.node, false, why};
    // Of operands in rows a kernel may want all so or none: then there is nothing between all and none.
    auto fewer = with_choices(graph, options, kernels, empty, choices);
    if (!fewer && drop == Drop::all) return fewer.error();
    if (fewer) plan = std::move(fewer).value();
  }
  return plan;
}

}  // namespace

Result<Plan> make_plan(const Graph& graph, const PlanOptions& options) {
  const std::int64_t start_ns = monotonic_ns();
  Plan empty;
  empty.planner = options.planner_name;
  empty.target = options.target;
  empty.dnn_library = options.dnn_library;
  KnownKernels own;
  PlannedKernels kernels{{}, {}, {}, options.known_kernels ? *options.known_kernels : own};
  std::vector<NodeId>& order = kernels.order;
  order = TRY(topological_order(graph));
  TRY(require_bound(graph, order));
  const std::vector<bool> once = once_per_step(graph, order);
  std::stable_partition(order.begin(), order.end(), [&](NodeId id) { return !once[id]; });
  if (options.forward_outputs) {
    kernels.first = in_first_part(graph, order, *options.forward_outputs);
    std::stable_partition(order.begin(), order.end(), [&](NodeId id) { return kernels.first[id]; });
  }
  kernels.steps = TRY(describe_steps(graph, order, once, kernels.known, empty));
  Plan plan = TRY(with_best_choices(graph, options, kernels, empty));
  plan.hash = plan_hash(graph, plan);
  plan.plan_ms = static_cast<double>(monotonic_ns() - start_ns) / 1e6;
  return plan;
}

std::vector<std::int64_t> live_bytes(const Plan& plan) {
  std::vector<std::int64_t> change(plan.steps.size() + 1, 0);
  for (const Buffer& b : plan.buffers) {
    if (b.place != Place::arena) continue;
    change[static_cast<std::size_t>(b.first_step)] += b.bytes;
    change[static_cast<std::size_t>(b.last_step) + 1] -= b.bytes;
  }
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    change[i] += plan.steps[i].workspace_bytes;
    change[i + 1] -= plan.steps[i].workspace_bytes;
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  change.pop_back();
  return change;
}

}  // namespace gradloom
