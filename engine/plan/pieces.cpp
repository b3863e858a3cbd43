#include "engine/plan/pieces.h"

#include <algorithm>
#include <limits>
#include <set>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ir/views.h"
#include "engine/ops/copies.h"
#include "engine/ops/indexing/slice_ranges.h"
#include "engine/ops/inference.h"
#include "engine/ops/operand_rows.h"
#include "engine/plan/known_kernels.h"
#include "engine/plan/planned_types.h"

namespace gradloom {
namespace {

constexpr std::int64_t kRowAlignmentBytes = 16;  // of what a thread of a GPU loads and stores at once

// The elements [starts, starts + counts) of a tensor of this shape.
struct CutBox {
  std::vector<std::int64_t> starts;
  Shape counts;
};

// Rows of the whole, or why it is none.
std::string place_of(const Type& whole, const CutBox& box, BufferPart& place) {
  const std::vector<std::int64_t> strides = dense_strides(whole.shape);
  const auto element = static_cast<std::int64_t>(dtype_bytes(whole.dtype));
  std::size_t cut = 0;  // the last axis that is cut
  for (std::size_t d = 0; d < whole.shape.size(); ++d)
    if (box.counts[d] != whole.shape[d]) cut = d;
  bool single = true, all = true;  // of the axes before it
  place = {0, 1, element, element};
  for (std::size_t d = 0; d < whole.shape.size(); ++d) {
    place.offset_bytes += box.starts[d] * strides[d] * element;
    if (d < cut) {
      single = single && box.counts[d] == 1;
      all = all && box.counts[d] == whole.shape[d];
      place.rows *= box.counts[d];
    } else {
      place.row_bytes *= box.counts[d];
      place.pitch_bytes *= whole.shape[d];
    }
  }
  if (!single && !all) return "more than one axis is cut";
  if (place.rows * place.row_bytes == 0) return "a part has no elements";
  return {};
}

CutBox all_of(const Type& type) { return {std::vector<std::int64_t>(type.shape.size(), 0), type.shape}; }

// The parts along attribute axis, one behind the other.
void add_parts_along_axis(const Graph& graph, const Node& node, const std::vector<ValueId>& parts,
                          Moves& moves) {
  const Type& whole = graph.type(moves.whole);
  const auto axis = normalized_axis(node.attrs.integer("axis"), whole.shape.size());
  CHECK(axis.ok(), "a node that inference accepted");
  std::int64_t begin = 0;
  for (const ValueId part : parts) {
    if (part == kNone) {
      moves.why = "a part is made that nothing reads";
      return;
    }
    CutBox box = all_of(whole);
    const auto at = static_cast<std::size_t>(*axis);
    box.starts[at] = begin;
    box.counts[at] = graph.type(part).shape[at];
    begin += box.counts[at];
    moves.parts.push_back(part);
    moves.why = place_of(whole, box, moves.places.emplace_back());
    if (!moves.why.empty()) return;
  }
}

void add_slice(const Graph& graph, const Node& node, Moves& moves) {
  const auto ranges = slice_ranges(node_types(graph, node));
  CHECK(ranges.ok(), "a node that inference accepted");
  if (!*ranges) {
    moves.why = "where it begins is not known before running";
    return;
  }
  CutBox box;
  for (const SliceRange& range : **ranges) {
    if (range.step != 1 && range.count > 1) {
      moves.why = "its step is " + std::to_string(range.step);
      return;
    }
    box.starts.push_back(range.start);
    box.counts.push_back(range.count);
  }
  moves.parts = {node.outputs[0]};
  moves.why = place_of(graph.type(moves.whole), box, moves.places.emplace_back());
}

class PieceChooser {
 public:
  PieceChooser(const Graph& graph, const std::vector<NodeId>& order, const PlanOptions& options,
               KnownKernels& known)
      : graph_(graph),
        order_(order),
        options_(options),
        known_(known),
        in_parts_(options.forward_outputs.has_value()) {
    position_.assign(graph.nodes.size(), -1);
    for (std::size_t i = 0; i < order.size(); ++i) position_[order[i]] = static_cast<std::int32_t>(i);
  }

  std::vector<PieceChoice> run() {
    std::vector<PieceChoice> choices;
    for (const NodeId id : order_)
      if (moves_parts(graph_.nodes[id])) moves_.emplace(id, moves_of(graph_, graph_.nodes[id]));
    if (moves_.empty()) return choices;
    find_roots();
    find_reads();
    find_updates();
    for (const NodeId id : order_)
      if (moves_.count(id) != 0) choices.push_back({id});
    // Dense parts first, which need nothing of other nodes.
    for (const bool rows : {false, true})
      for (PieceChoice& choice : choices) {
        const Moves& moves = moves_.at(choice.node);
        if (in_rows(moves) == rows) choose(choice, moves);
      }
    return choices;
  }

 private:
  static bool in_rows(const Moves& moves) {
    return moves.why.empty() && std::any_of(moves.places.begin(), moves.places.end(),
                                            [](const BufferPart& place) { return !place.dense(); });
  }

  void choose(PieceChoice& choice, const Moves& moves) {
    std::string& why = choice.why;
    why = moves.why.empty() && !in_rows(moves) ? misaligned(moves) : moves.why;
    if (why.empty()) why = moves.joins ? not_joined(moves) : not_read_in_place(moves);
    if (why.empty() && in_rows(moves)) why = not_in_rows(choice.node, moves);
    choice.taken = why.empty();
    if (!choice.taken) return;
    taken_.insert(choice.node);
    std::int64_t bytes = 0;
    for (const BufferPart& place : moves.places) bytes += place.rows * place.row_bytes;
    why = "no copy of " + bytes_text(static_cast<double>(bytes));
    if (moves.joins)
      for (const ValueId part : moves.parts) joined_.insert(behind_views(graph_, part));
  }

  const std::string& name(ValueId v) const { return graph_.values[v].name; }

  // In which value's memory each lies, were all Slice and Split nodes that can be taken taken.
  void find_roots() {
    for (ValueId v = 0; v < graph_.values.size(); ++v) root_.push_back(v);
    for (const NodeId id : order_) {
      const Node& node = graph_.nodes[id];
      const auto it = moves_.find(id);
      const bool parts = it != moves_.end() && !it->second.joins && it->second.why.empty();
      if (!parts && !node.op->has(kView)) continue;
      for (const ValueId out : node.outputs)
        if (out != kNone) root_[out] = root_[node.inputs[0]];
    }
  }

  // Until when each value is read, also through views and parts, and which are outputs.
  void find_reads() {
    last_read_.assign(graph_.values.size(), -1);
    output_.assign(graph_.values.size(), false);
    for (const ValueId out : graph_.outputs) {
      output_[out] = true;
      last_read_[out] = std::numeric_limits<std::int32_t>::max();
    }
    for (std::size_t i = order_.size(); i-- > 0;) {
      const Node& node = graph_.nodes[order_[i]];
      const bool view = node.op->has(kView),
                 parts = moves_.count(order_[i]) != 0 && !moves_.at(order_[i]).joins;
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        const ValueId in = node.inputs[k];
        if (in == kNone) continue;
        last_read_[in] = std::max(last_read_[in], static_cast<std::int32_t>(i));
        if (k > 0 || (!view && !parts)) continue;
        for (const ValueId out : node.outputs) {
          if (out == kNone) continue;
          last_read_[in] = std::max(last_read_[in], last_read_[out]);
          if (view && output_[out]) output_[in] = true;
        }
      }
    }
  }

  // What nodes write over, and the first of them.
  void find_updates() {
    for (const NodeId id : order_) {
      const Node& node = graph_.nodes[id];
      if (node.op->aliases == nullptr) continue;
      for (const auto& [output, input] : node.op->aliases(node)) {
        const ValueId out = node.outputs[static_cast<std::size_t>(output)],
                      in = node.inputs[static_cast<std::size_t>(input)];
        if (out == kNone || in == kNone) continue;
        updates_.insert(out);
        first_update_.emplace(root_[in], position_[id]);
      }
    }
  }

  // What no kernel could take for a tensor.
  static std::string misaligned(const Moves& moves) {
    for (const BufferPart& place : moves.places)
      if (place.offset_bytes % kAlignmentBytes != 0)
        return "a part begins at byte " + std::to_string(place.offset_bytes) + ", which is no multiple of " +
               std::to_string(kAlignmentBytes);
    return {};
  }

  std::string not_read_in_place(const Moves& moves) const {
    const auto update = first_update_.find(root_[moves.whole]);
    for (const ValueId part : moves.parts) {
      if (in_parts_ && output_[part]) return "'" + name(part) + "' is a result of the caller's";
      if (update != first_update_.end() && last_read_[part] >= update->second)
        return "'" + name(root_[moves.whole]) + "' is updated in place before the last reader of '" +
               name(part) + "'";
    }
    return {};
  }

  std::string not_joined(const Moves& moves) const {
    if (in_parts_ && output_[moves.whole]) return "'" + name(moves.whole) + "' is a result of the caller's";
    if (first_update_.count(root_[moves.whole]) != 0)
      return "'" + name(moves.whole) + "' is updated in place";
    if (joined_.count(moves.whole) != 0)  // in the first round, as a dense part
      return "'" + name(moves.whole) + "' is a part of another tensor that is joined";
    std::set<ValueId> seen;
    for (const ValueId part : moves.parts) {
      const ValueId made = behind_views(graph_, part);
      const NodeId producer = graph_.values[made].producer;
      if (producer == kNone) return "'" + name(made) + "' is made by no kernel";
      if (!seen.insert(made).second) return "'" + name(made) + "' is joined twice";
      if (joined_.count(made) != 0) return "'" + name(made) + "' is a part of another tensor that is joined";
      if (taken_.count(producer) != 0) {
        const bool joins = moves_.at(producer).joins;
        return "'" + name(made) +
               (joins ? "' is joined in place itself" : "' is read in place from another tensor");
      }
      if (in_parts_ && output_[made]) return "'" + name(made) + "' is a result of the caller's";
      if (updates_.count(made) != 0 || first_update_.count(root_[made]) != 0)
        return "'" + name(made) + "' is updated in place";
    }
    return {};
  }

  // The part and its views, and which kernels but `mover` read them. Why not: what no kernel could read.
  std::string add_rows(NodeId mover, ValueId part, const BufferPart& place,
                       std::map<ValueId, BufferPart>& rows, std::set<NodeId>& users) const {
    const Type& type = graph_.type(part);
    const auto element = static_cast<std::int64_t>(dtype_bytes(type.dtype));
    if (output_[part]) return "'" + name(part) + "' is an output";
    if (!row_strides(type.shape, place.row_bytes / element, place.pitch_bytes / element))
      return "a dim of '" + name(part) + "' goes on over the end of a row";
    rows[part] = place;
    for (const Use& use : uses_[part]) {
      const Node& user = graph_.nodes[use.node];
      if (use.node == mover) continue;
      if (!user.op->has(kView) || use.input_index > 0) {
        users.insert(use.node);
      } else if (std::string why = add_rows(mover, user.outputs[0], place, rows, users); !why.empty()) {
        return why;
      }
    }
    return {};
  }

  // Whether all kernels that read or write the parts take them in rows, beside those that are in rows already.
  std::string not_in_rows(NodeId mover, const Moves& moves) {
    if (uses_.empty()) uses_ = uses_of(graph_);
    std::map<ValueId, BufferPart> rows = rows_;
    std::set<NodeId> users;
    for (std::size_t i = 0; i < moves.parts.size(); ++i) {
      const BufferPart& place = moves.places[i];
      if (options_.target == kernels::Target::gpu &&
          (place.offset_bytes % kRowAlignmentBytes != 0 || place.pitch_bytes % kRowAlignmentBytes != 0))
        return "rows of '" + name(moves.parts[i]) + "' begin between packs of " +
               std::to_string(kRowAlignmentBytes) + " bytes";
      // What is joined is in rows from the kernel on that makes it.
      const ValueId first = moves.joins ? behind_views(graph_, moves.parts[i]) : moves.parts[i];
      if (std::string why = add_rows(mover, first, place, rows, users); !why.empty()) return why;
      if (moves.joins) users.insert(graph_.values[first].producer);
    }
    for (const NodeId node : users)
      if (std::string why = not_taken_in_rows(node, rows); !why.empty()) return why;
    rows_ = std::move(rows);
    return {};
  }

  std::string not_taken_in_rows(NodeId id, const std::map<ValueId, BufferPart>& rows) const {
    const Node& node = graph_.nodes[id];
    const std::string who = "'" + node.name + "' (" + node.op->name + ") ",
                      reads = who + "reads dense tensors only", writes = who + "writes dense tensors only";
    if (taken_.count(id) != 0) return reads;  // it has no kernel
    const auto in_rows = [&](ValueId v) { return v != kNone && rows.count(v) != 0; };
    bool any_read = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!in_rows(node.inputs[i])) continue;
      if (!reads_rows(node, i, options_.target)) return reads;
      any_read = true;
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (in_rows(node.outputs[i]) && !writes_rows(node, i, options_.target)) return writes;
    // Of the operator's own kernel: prepare_kernel would convert halves for one in f32 as if they were dense.
    NodeTypes types = types_with_parts(graph_, node, options_.target, options_.dnn_library, rows);
    ask_for_bits(types);
    const Status own = known_.own(*node.op, types);
    return own ? "" : (any_read ? reads : writes) + ": " + own.error().message;
  }

  const Graph& graph_;
  const std::vector<NodeId>& order_;
  const PlanOptions& options_;
  KnownKernels& known_;
  const bool in_parts_;
  std::vector<std::vector<Use>> uses_;  // once it is asked for
  std::map<ValueId, BufferPart> rows_;  // parts in rows, and their views, also those before what is joined
  std::map<NodeId, Moves> moves_;
  std::vector<std::int32_t> position_, last_read_;  // in the order
  std::vector<ValueId> root_;
  std::vector<bool> output_;
  std::map<ValueId, std::int32_t> first_update_;  // by root
  std::set<ValueId> updates_;                     // results that lie where what they update does
  std::set<ValueId> joined_;                      // operands of Concat nodes that are taken, behind views
  std::set<NodeId> taken_;
};

}  // namespace

bool moves_parts(const Node& node) {
  return is_op(node, "Slice") || is_op(node, "Split") || is_op(node, "Concat");
}

Moves moves_of(const Graph& graph, const Node& node) {
  Moves moves;
  if (!moves_parts(node)) return moves;
  moves.joins = is_op(node, "Concat");
  moves.whole = moves.joins ? node.outputs[0] : node.inputs[0];
  if (is_op(node, "Slice"))
    add_slice(graph, node, moves);
  else
    add_parts_along_axis(graph, node, moves.joins ? node.inputs : node.outputs, moves);
  return moves;
}

bool has_rows(const Moves& moves) {
  return std::any_of(moves.places.begin(), moves.places.end(),
                     [](const BufferPart& place) { return !place.dense(); });
}

std::vector<PieceChoice> choose_pieces(const Graph& graph, const std::vector<NodeId>& order,
                                       const PlanOptions& options, KnownKernels& known) {
  if (!options.pieces) return {};
  return PieceChooser(graph, order, options, known).run();
}

}  // namespace gradloom
