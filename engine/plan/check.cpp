// The plan checker: shares no code with the planner. It runs the steps over a shadow of the memory that records, byte by
// byte, which kernel's result (or input, state, constant) lies there and which byte of it, and sees every read of
// contents that are not there. What a view, and a Slice, Split or Concat that no step runs, gives is told in the same
// terms, from shapes and arguments alone: bytes of what its operands are made of.
#include <algorithm>
#include <map>
#include <vector>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/operand_rows.h"
#include "engine/plan/check_streams.h"
#include "engine/plan/plan.h"

namespace gradloom {
namespace {

using Contents = std::uint32_t;  // ValueId of the value whose bytes they are
constexpr Contents kWorkspace = 0xfffffffeu;

// `count` bytes: those of `source` from `from` on.
struct ByteRun {
  Contents source = kWorkspace;
  std::int64_t from = 0, count = 0;
};
// Bytes [at, at + count) of something.
struct ByteSpan {
  std::int64_t at = 0, count = 0;
};

// What lies in a block of memory.
class Shadow {
 public:
  void clear() { runs_.clear(); }
  void write(std::int64_t at, const ByteRun& run) {
    if (run.count == 0) return;
    erase(at, run.count);
    runs_[at] = run;
  }
  bool holds(std::int64_t at, ByteRun run) const {
    while (run.count > 0) {
      const auto next = runs_.upper_bound(at);
      if (next == runs_.begin()) return false;
      const auto& [begin, there] = *std::prev(next);
      const std::int64_t skipped = at - begin, count = std::min(there.count - skipped, run.count);
      if (count <= 0 || there.source != run.source || there.from + skipped != run.from) return false;
      at += count;
      run = {run.source, run.from + count, run.count - count};
    }
    return true;
  }
  bool is_empty(std::int64_t at, std::int64_t count) const {
    const auto next = runs_.lower_bound(at);
    if (next != runs_.end() && next->first < at + count) return false;
    return next == runs_.begin() || std::prev(next)->first + std::prev(next)->second.count <= at;
  }

 private:
  void erase(std::int64_t at, std::int64_t count) {
    auto it = runs_.lower_bound(at);
    if (it != runs_.begin()) {
      auto& [begin, before] = *std::prev(it);
      const std::int64_t end = begin + before.count;
      if (end > at) {
        if (end > at + count) runs_[at + count] = rest(before, at + count - begin);
        before.count = at - begin;
      }
    }
    while (it != runs_.end() && it->first < at + count) {
      if (it->first + it->second.count > at + count)
        runs_[at + count] = rest(it->second, at + count - it->first);
      it = runs_.erase(it);
    }
  }
  static ByteRun rest(const ByteRun& run, std::int64_t skipped) {
    return {run.source, run.from + skipped, run.count - skipped};
  }

  std::map<std::int64_t, ByteRun> runs_;  // by where they begin; they do not overlap
};

// Where the bytes of elements [starts, starts + counts) lie in a dense tensor, in their own order.
std::vector<ByteSpan> spans_of(const Type& whole, const std::vector<std::int64_t>& starts,
                               const Shape& counts) {
  const std::size_t rank = whole.shape.size();
  std::size_t dense = rank;  // the first axis of those that lie in one piece
  auto bytes = static_cast<std::int64_t>(dtype_bytes(whole.dtype));
  std::vector<std::int64_t> stride(rank + 1, bytes);
  for (std::size_t d = rank; d-- > 0;) stride[d] = stride[d + 1] * whole.shape[d];
  while (dense > 0 && (dense == rank || counts[dense] == whole.shape[dense])) bytes *= counts[--dense];
  std::vector<ByteSpan> spans;
  std::vector<std::int64_t> at(dense, 0);
  for (std::int64_t number = 0, rows = 1; number < rows; ++number) {
    std::int64_t offset = 0, rest = number;
    rows = 1;
    for (std::size_t d = 0; d < dense; ++d) rows *= counts[d];
    if (rows * bytes == 0) return {};
    for (std::size_t d = dense; d-- > 0; rest /= counts[d])
      offset += (starts[d] + rest % counts[d]) * stride[d + 1];
    for (std::size_t d = dense; d < rank; ++d) offset += starts[d] * stride[d + 1];
    if (!spans.empty() && spans.back().at + spans.back().count == offset)
      spans.back().count += bytes;
    else
      spans.push_back({offset, bytes});
  }
  return spans;
}

bool overlap(const std::vector<ByteSpan>& a, const std::vector<ByteSpan>& b) {
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    if (a[i].at + a[i].count <= b[k].at)
      ++i;
    else if (b[k].at + b[k].count <= a[i].at)
      ++k;
    else
      return true;
  }
  return false;
}

class Checker {
 public:
  Checker(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan), made_of_(graph.values.size()) {
    sizes_[static_cast<int>(Place::arena)] = plan.arena_bytes;
    sizes_[static_cast<int>(Place::state)] = plan.state_bytes;
    sizes_[static_cast<int>(Place::input)] = plan.input_bytes;
    sizes_[static_cast<int>(Place::constant)] = plan.constant_bytes;
    sizes_[static_cast<int>(Place::result)] = plan.result_bytes;
    sizes_[static_cast<int>(Place::host)] = plan.host_bytes;
  }

  Status run() {
    const std::vector<NodeId> order = TRY(topological_order(graph_));
    std::vector<int> scheduled(graph_.nodes.size(), 0);
    for (const PlanStep& step : plan_.steps) ++scheduled[step.node];
    for (NodeId id : order)  // in this order chains resolve
      TRY(tell_contents(id, scheduled[id]));
    for (ValueId v = 0; v < graph_.values.size(); ++v)
      if (graph_.values[v].producer == kNone) made_of_[v] = {{v, 0, bytes_of(v)}};
    TRY(check_pieces());
    TRY(check_sources());
    for (step_ = 0; step_ < static_cast<std::int32_t>(plan_.steps.size()); ++step_) {
      if (step_ == plan_.first_backward_step) TRY(check_border());
      if (Status s = check_step(plan_.steps[static_cast<std::size_t>(step_)]); !s)
        return with_context(s.error(), "step " + std::to_string(step_));
    }
    if (static_cast<std::size_t>(plan_.first_backward_step) == plan_.steps.size()) TRY(check_border());
    TRY(check_outputs(in_parts() ? plan_.forward_outputs : 0, graph_.outputs.size(), "step"));
    return check_updates();
  }

 private:
  bool in_parts() const { return plan_.first_backward_step >= 0; }
  std::int64_t bytes_of(ValueId v) const {
    return static_cast<std::int64_t>(byte_size(graph_.values[v].type));
  }

  // What the results of a node are made of: themselves, or bytes of its operands.
  Status tell_contents(NodeId id, int scheduled) {
    const Node& node = graph_.nodes[id];
    const bool moves = is_op(node, "Slice") || is_op(node, "Split") || is_op(node, "Concat");
    if (node.op->has(kView)) {
      made_of_[node.outputs[0]] = contents(node.inputs[0]);
    } else if (moves && scheduled == 0) {
      return is_op(node, "Concat") ? tell_joined(node) : tell_parts(node);
    } else {
      for (const ValueId out : node.outputs)
        if (out != kNone) made_of_[out] = {{out, 0, bytes_of(out)}};
      if (scheduled != 1)
        return fail("node '" + node.name + "' is scheduled " + std::to_string(scheduled) + " times");
    }
    return {};
  }
  std::vector<ByteRun> contents(ValueId v) const {
    if (graph_.values[v].producer == kNone) return {{v, 0, bytes_of(v)}};
    return made_of_[v];
  }

  static std::int64_t counted(std::int64_t axis, std::size_t rank) {
    return axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis;
  }
  // A list that is an attribute or the known contents of an input; no value: it is neither.
  std::optional<std::vector<std::int64_t>> list(const Node& node, const char* name, std::size_t input) const {
    if (node.attrs.has(name)) return node.attrs.integers(name);
    if (input >= node.inputs.size() || node.inputs[input] == kNone) return std::nullopt;
    const Value& value = graph_.values[node.inputs[input]];
    if (!value.data.defined()) return std::nullopt;
    return value.data.to_i64();
  }

  Status tell_parts(const Node& node) {
    const Type& whole = graph_.type(node.inputs[0]);
    const std::size_t rank = whole.shape.size();
    std::vector<std::int64_t> starts(rank, 0);
    if (is_op(node, "Slice")) {
      const auto begin = list(node, "starts", 1), axes = list(node, "axes", 3),
                 steps = list(node, "steps", 4);
      if (!begin) return fail("node '" + node.name + "' has no kernel, and it is not known where it begins");
      for (std::size_t i = 0; i < begin->size(); ++i) {
        const auto axis =
            static_cast<std::size_t>(counted(axes ? (*axes)[i] : static_cast<std::int64_t>(i), rank));
        const std::int64_t size = whole.shape[axis], count = graph_.type(node.outputs[0]).shape[axis];
        if (steps && (*steps)[i] != 1 && count > 1)
          return fail("node '" + node.name + "' has no kernel, and takes elements that are no neighbours");
        const std::int64_t first = (*begin)[i] < 0 ? (*begin)[i] + size : (*begin)[i];
        starts[axis] = std::max<std::int64_t>(0, std::min(first, size - count));
      }
    }
    const auto along = static_cast<std::size_t>(counted(node.attrs.integer("axis"), rank));
    for (const ValueId out : node.outputs) {
      if (out == kNone)
        return fail("node '" + node.name + "' has no kernel, and a result that nothing reads");
      made_of_[out] = parts(contents(node.inputs[0]), spans_of(whole, starts, graph_.type(out).shape));
      if (is_op(node, "Split")) starts[along] += graph_.type(out).shape[along];
    }
    return {};
  }

  Status tell_joined(const Node& node) {
    const Type& whole = graph_.type(node.outputs[0]);
    const auto along = static_cast<std::size_t>(counted(node.attrs.integer("axis"), whole.shape.size()));
    std::vector<std::int64_t> starts(whole.shape.size(), 0);
    std::map<std::int64_t, ByteRun> joined;
    for (const ValueId in : node.inputs) {
      std::int64_t done = 0;
      for (const ByteSpan& span : spans_of(whole, starts, graph_.type(in).shape)) {
        std::int64_t at = span.at;
        for (const ByteRun& run : parts(contents(in), {{done, span.count}})) {
          joined[at] = run;
          at += run.count;
        }
        done += span.count;
      }
      starts[along] += graph_.type(in).shape[along];
    }
    for (const auto& [at, run] : joined) made_of_[node.outputs[0]].push_back(run);
    return {};
  }

  // The spans of what consists of `runs`, one behind the other.
  static std::vector<ByteRun> parts(const std::vector<ByteRun>& runs, const std::vector<ByteSpan>& spans) {
    std::vector<ByteRun> result;
    std::vector<std::int64_t> begins{0};
    for (const ByteRun& run : runs) begins.push_back(begins.back() + run.count);
    for (ByteSpan span : spans) {
      auto i =
          static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), span.at) - begins.begin()) -
          1;
      for (; span.count > 0 && i < runs.size(); ++i) {
        const std::int64_t skipped = span.at - begins[i],
                           count = std::min(runs[i].count - skipped, span.count);
        result.push_back({runs[i].source, runs[i].from + skipped, count});
        span = {span.at + count, span.count - count};
      }
    }
    return result;
  }

  // Parts lie inside their buffers, the dense ones as aligned as all tensors.
  Status check_pieces() const {
    for (const auto& [v, piece] : plan_.pieces) {
      if (v >= graph_.values.size() || plan_.buffer_of[v] < 0) return fail("a part of nothing");
      const std::string name = "'" + graph_.values[v].name + "'";
      const auto alignment =
          piece.dense() ? kAlignmentBytes : static_cast<std::int64_t>(dtype_bytes(graph_.type(v).dtype));
      if (piece.offset_bytes < 0 || piece.rows < 1 || piece.offset_bytes % alignment != 0 ||
          (!piece.dense() && piece.pitch_bytes % alignment != 0))
        return fail(name + " begins at byte " + std::to_string(piece.offset_bytes) +
                    " of its buffer, misaligned");
      if (piece.rows * piece.row_bytes != bytes_of(v) ||
          (!piece.dense() && piece.pitch_bytes < piece.row_bytes))
        return fail(name + " has other rows than its part of the buffer");
      if (piece.offset_bytes + (piece.rows - 1) * piece.pitch_bytes + piece.row_bytes > buffer(v).bytes)
        return fail(name + " reaches beyond its buffer");
    }
    return {};
  }

  Status check_sources() {
    for (ValueId v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      if (value.producer != kNone || plan_.buffer_of[v] < 0) continue;
      const Place want = value.role == Role::constant                                 ? Place::constant
                         : value.role == Role::parameter || value.role == Role::state ? Place::state
                                                                                      : Place::input;
      if (buffer(v).place != want) return fail("'" + value.name + "' is in the wrong block");
      if (plan_.pieces.count(v) != 0) return fail("'" + value.name + "' is a part of another tensor");
      TRY(check_range(buffer(v).place, buffer(v).offset, buffer(v).bytes, v));
      for (const ByteSpan& span : spans(v))
        if (!shadow(want).is_empty(span.at, span.count))
          return fail("'" + value.name + "' overlaps another input, state or constant");
      write(v);
    }
    return {};
  }

  Status check_outputs(std::size_t begin, std::size_t end, const char* of) {
    for (std::size_t i = begin; i < end; ++i)
      if (const ValueId out = graph_.outputs[i]; !holds(out))
        return fail("output '" + graph_.values[out].name + "' was overwritten before the end of the " + of);
    return {};
  }
  // After the first of two parts. What the caller does with its results is no longer known.
  Status check_border() {
    TRY(check_outputs(0, plan_.forward_outputs, "first part"));
    shadow(Place::result).clear();
    return check_updates();
  }
  Status check_updates() {
    for (const Update& u : graph_.updates) {
      if (address(u.state) != address(u.next) || buffer(u.next).place != Place::state || !holds(u.next))
        return fail("state '" + graph_.values[u.state].name + "' does not hold its update after the step");
    }
    return {};
  }

  static Error fail(const std::string& message) { return Error{Errc::bug, "invalid plan: " + message}; }
  const Buffer& buffer(ValueId v) const {
    return plan_.buffers[static_cast<std::size_t>(plan_.buffer_of[v])];
  }
  std::int64_t address(ValueId v) const { return buffer(v).offset + plan_.offset_in_buffer(v); }
  // Where the bytes of the value lie in its block, in their order.
  std::vector<ByteSpan> spans(ValueId v) const {
    const auto at = plan_.pieces.find(v);
    if (at == plan_.pieces.end() || at->second.dense()) return {{address(v), bytes_of(v)}};
    std::vector<ByteSpan> rows;
    for (std::int64_t r = 0; r < at->second.rows; ++r)
      rows.push_back({address(v) + r * at->second.pitch_bytes, at->second.row_bytes});
    return rows;
  }
  Shadow& shadow(Place p) { return shadows_[static_cast<int>(p)]; }

  Status check_range(Place place, std::int64_t offset, std::int64_t bytes, ValueId v) const {
    const std::int64_t size = sizes_[static_cast<int>(place)];
    const std::string name = v == kNone ? "workspace" : "'" + graph_.values[v].name + "'";
    if (place == Place::none || offset < 0 || offset % kAlignmentBytes != 0 || offset + bytes > size)
      return fail(name + " at offset " + std::to_string(offset) + " of " + std::to_string(bytes) +
                  " bytes is outside its block or misaligned");
    if (v != kNone && bytes < bytes_of(v)) return fail(name + " is larger than its buffer");
    return {};
  }

  // Calls visit(address, run) for the bytes of the value and what they are, false to stop.
  template <class Visit>
  bool all_of(ValueId v, Visit visit) {
    const std::vector<ByteSpan> where = spans(v);
    const std::vector<ByteRun>& what = made_of_[v];
    std::size_t s = 0, r = 0;
    std::int64_t in_span = 0, in_run = 0;
    while (s < where.size() && r < what.size()) {
      const std::int64_t count = std::min(where[s].count - in_span, what[r].count - in_run);
      if (!visit(where[s].at + in_span, ByteRun{what[r].source, what[r].from + in_run, count})) return false;
      in_span += count;
      in_run += count;
      if (in_span == where[s].count) ++s, in_span = 0;
      if (r < what.size() && in_run == what[r].count) ++r, in_run = 0;
    }
    return true;
  }
  bool holds(ValueId v) {
    if (plan_.buffer_of[v] < 0) return false;
    std::int64_t seen = 0;
    const bool there = all_of(v, [&](std::int64_t at, const ByteRun& run) {
      seen += run.count;
      return shadow(buffer(v).place).holds(at, run);
    });
    return there && seen == bytes_of(v);
  }
  void write(ValueId v) {
    all_of(v, [&](std::int64_t at, const ByteRun& run) {
      shadow(buffer(v).place).write(at, run);
      return true;
    });
  }

  // The arena lends a buffer for a time.
  bool lives(ValueId v) const {
    const Buffer& b = buffer(v);
    return b.place != Place::arena || (b.first_step <= step_ && step_ <= b.last_step);
  }

  Status check_step(const PlanStep& step) {
    const Node& node = graph_.nodes[step.node];
    const auto where = [&](const std::string& message) {
      return fail("node '" + node.name + "' " + message);
    };
    if (step.workspace_bytes > 0) {
      TRY(check_range(Place::arena, step.workspace_offset, step.workspace_bytes, kNone));
      shadow(Place::arena).write(step.workspace_offset, {kWorkspace, 0, step.workspace_bytes});
    }
    for (ValueId in : node.inputs) {
      if (in == kNone) continue;
      const std::string name = "'" + graph_.values[in].name + "'";
      if (plan_.buffer_of[in] < 0) return where("reads " + name + ", which has no buffer");
      if (!lives(in)) return where("reads " + name + " when its buffer is free");
      if (!holds(in)) return where("reads " + name + " after it was overwritten, or where it is not");
    }
    TRY(check_rows(node));
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId out = node.outputs[i];
      if (out == kNone) continue;
      if (plan_.buffer_of[out] < 0) return where("has an output without a buffer");
      if (!lives(out)) return where("writes '" + graph_.values[out].name + "' when its buffer is free");
      TRY(check_range(buffer(out).place, buffer(out).offset, buffer(out).bytes,
                      plan_.pieces.count(out) != 0 ? kNone : out));
      TRY(check_output(step, node, i, out));
      write(out);
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNone && !holds(node.outputs[i]))
        return where("writes two outputs to the same memory");
    return {};
  }

  // Kernels take tensors with gaps between their rows where their operators say so.
  Status check_rows(const Node& node) const {
    const auto apart = [&](ValueId v) {
      const auto at = v == kNone ? plan_.pieces.end() : plan_.pieces.find(v);
      return at != plan_.pieces.end() && at->second.rows > 1 && at->second.pitch_bytes > at->second.row_bytes;
    };
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (apart(node.inputs[i]) && !reads_rows(node, i, plan_.target))
        return fail("node '" + node.name + "' reads '" + graph_.values[node.inputs[i]].name +
                    "' in rows, as its operator does not");
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (apart(node.outputs[i]) && !writes_rows(node, i, plan_.target))
        return fail("node '" + node.name + "' writes '" + graph_.values[node.outputs[i]].name +
                    "' in rows, as its operator does not");
    return {};
  }

  // An output may touch an input's memory only exactly, and only where the operator works element by element
  // or must alias.
  Status check_output(const PlanStep& step, const Node& node, std::size_t index, ValueId out) {
    const Buffer& mine = buffer(out);
    const std::vector<ByteSpan> written = spans(out);
    const std::string name = "node '" + node.name + "' writes '" + graph_.values[out].name + "' ";
    if (mine.place == Place::arena && step.workspace_bytes > 0 &&
        overlap(written, {{step.workspace_offset, step.workspace_bytes}}))
      return fail(name + "over its own workspace");
    bool aliases = false;
    if (node.op->aliases != nullptr)
      for (const auto& [output, input] : node.op->aliases(node)) {
        if (static_cast<std::size_t>(output) != index) continue;
        const ValueId state = node.inputs[static_cast<std::size_t>(input)];
        aliases = address(state) == address(out) && buffer(state).place == mine.place;
        if (node.op->has(kMustAlias) && !aliases) return fail(name + "away from the state it must update");
      }
    if (!aliases && mine.place != Place::arena && mine.place != Place::result && mine.place != Place::host)
      return fail(name + "outside the arena");
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId in = node.inputs[i];
      if (in == kNone || buffer(in).place != mine.place || !overlap(written, spans(in))) continue;
      const bool allowed = node.op->has(kElementwise) || node.op->has(kPointwise) ||
                           (index == 0 && static_cast<int>(i) == node.op->inplace_input) || aliases;
      const bool same =
          address(in) == address(out) && plan_.pieces.count(in) == plan_.pieces.count(out) &&
          graph_.values[in].type.shape == graph_.values[out].type.shape &&
          dtype_bytes(graph_.values[in].type.dtype) == dtype_bytes(graph_.values[out].type.dtype);
      if (!allowed || !same) return fail(name + "over its input '" + graph_.values[in].name + "'");
    }
    return {};
  }

  const Graph& graph_;
  const Plan& plan_;
  // By value; of values without a producer and results of kernels: themselves
  std::vector<std::vector<ByteRun>> made_of_;
  std::int64_t sizes_[kPlaces] = {};
  Shadow shadows_[kPlaces];
  std::int32_t step_ = 0;
};

}  // namespace

Status check_plan(const Graph& graph, const Plan& plan) {
  if (plan.buffer_of.size() != graph.values.size())
    return Error{Errc::bug, "invalid plan: made for another graph"};
  TRY(check_streams(graph, plan));
  return Checker(graph, plan).run();
}

}  // namespace gradloom
