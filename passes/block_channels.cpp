// block-channels: convolutional networks with their channels in blocks, [n, c / 16, h, w, 16], the layout
// that oneDNN's AVX-512 convolutions compute in (nChw16c). On plain tensors every convolution reorders what
// it reads and writes, forward and backward; here the tensors between convolutions lie in blocks, and
// normalization, pooling and elementwise operators between them work on blocks too: 16 channels of a position
// are one register.
//
// Values that must agree because an operator lies between them form an island; convolutions divide
// islands, because each of their sides has a layout of its own. What an island saves is known before:
// elements that convolutions need not reorder, less those that are transposed where another operator reads
// or makes one of its values.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>

#include "engine/ops/inference.h"
#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

constexpr const char *kRule = "blocks", *kReductionRule = "reduced-blocks";

bool contains(const std::vector<std::size_t>& all, std::size_t i) {
  return std::find(all.begin(), all.end(), i) != all.end();
}

bool one_position(const Shape& shape) {
  return std::all_of(shape.begin() + 2, shape.end(), [](std::int64_t d) { return d == 1; });
}

// A node as far as layouts go: inputs and outputs that can lie in blocks, for a convolution each by itself,
// else all together.
struct Part {
  bool convolution = false;
  std::vector<std::size_t> inputs{}, outputs{};
  std::vector<ValueId> values{};  // of both
};

// Values as nodes of a forest: which of them must have one layout.
class Forest {
 public:
  explicit Forest(std::size_t values) : parent_(values) { std::iota(parent_.begin(), parent_.end(), 0u); }
  ValueId root(ValueId v) {
    while (parent_[v] != v) v = parent_[v] = parent_[parent_[v]];
    return v;
  }
  void join(ValueId a, ValueId b) { parent_[root(a)] = root(b); }

 private:
  std::vector<ValueId> parent_;
};

struct Island {
  std::vector<ValueId> values;  // sorted
  std::vector<NodeId> nodes;    // with a role, in topological order
  bool holds(ValueId v) const { return std::binary_search(values.begin(), values.end(), v); }
};

// Elements that convolutions reorder in a step (forward, and for both gradients), and those that transposes
// at the border would move (forward and backward).
struct Balance {
  std::int64_t saved = 0, moved = 0;
  NodeId border = kNone;  // an operator that makes or reads a value plain
};

class Blocker {
 public:
  Blocker(Rewriter& rw, std::int64_t block) : rw_(rw), block_(block) {
    for (const Value& value : rw.graph().values) plain_.push_back(value.type.shape);
  }

  Status run() {
    const std::vector<NodeId> order = TRY(topological_order(graph()));
    for (NodeId id : order) classify(id);
    for (const Island& island : islands(order)) rewrite(island);
    for (NodeId id : reduced_) reduce(id);  // last: islands know values by what they were
    return {};
  }

 private:
  const Graph& graph() const { return rw_.graph(); }

  // ---- what a node is ------------------------------------------------------------------------------------

  // [n, c, one to three spatial dims] of known sizes.
  bool is_image(ValueId v) const {
    if (v == kNone || graph().values[v].data.defined()) return false;
    const Shape& s = plain_[v];
    return s.size() >= 3 && s.size() <= 5 &&
           std::all_of(s.begin(), s.end(), [](std::int64_t d) { return d > 0; });
  }
  bool can_block(ValueId v) const { return is_image(v) && plain_[v][1] % block_ == 0; }

  void classify(NodeId id) {
    const Node& node = graph().nodes[id];
    if (node.op->channel_blocks == ChannelBlocks::sides) return classify_convolution(id);
    if (const char* reduction = reduction_of(node)) reductions_[id] = reduction;
    std::optional<Part> role = carrier(node);
    if (!role) return;
    for (std::size_t i : role->inputs) role->values.push_back(node.inputs[i]);
    for (std::size_t i : role->outputs) role->values.push_back(node.outputs[i]);
    roles_[id] = *role;
  }

  void classify_convolution(NodeId id) {
    const Node& node = graph().nodes[id];
    if (node.attrs.has("x_block") || node.attrs.has("y_block")) return;
    const std::string why = convolution_problem(node);
    if (!why.empty()) return rw_.reject(kRule, id, why);
    Part role{.convolution = true};
    if (can_block(node.inputs[0])) {
      role.inputs = {0};
      role.values.push_back(node.inputs[0]);
    }
    if (can_block(node.outputs[0])) {
      role.outputs = {0};
      role.values.push_back(node.outputs[0]);
    }
    roles_[id] = role;
  }

  // Why a convolution gains nothing from blocks; empty: it does, on one side or both.
  std::string convolution_problem(const Node& node) const {
    const ValueId x = node.inputs[0], y = node.outputs[0];
    if (!is_image(x) || !is_image(y)) return "its dims are not all known";
    const std::int64_t group = node.attrs.integer("group", 1), c = plain_[x][1], k = plain_[y][1];
    const auto uneven = [&](std::int64_t channels) {
      return std::to_string(channels) + " channels are no multiple of " + std::to_string(block_);
    };
    if (!can_block(x) && !can_block(y)) return uneven(c) + (c == k ? "" : ", " + uneven(k));
    if (group == 1 || (group == c && group == k)) return "";
    if (c / group % block_ != 0) return "groups of " + uneven(c / group);
    return k / group % block_ != 0 ? "groups of " + uneven(k / group) : "";
  }

  // An operator that computes on blocks as it does on plain tensors.
  std::optional<Part> carrier(const Node& node) const {
    if (node.outputs.size() == 0 || !can_block(node.outputs[0]) || node.attrs.has("block"))
      return std::nullopt;
    if (node.op->channel_blocks == ChannelBlocks::attribute) {
      const bool others =
          std::any_of(node.outputs.begin() + 1, node.outputs.end(), [&](ValueId v) { return is_image(v); });
      return can_block(node.inputs[0]) && !others ? std::optional(Part{false, {0}, {0}}) : std::nullopt;
    }
    if (node.op->channel_blocks == ChannelBlocks::axis) return joined(node);
    const bool elementwise =
        node.op->has(kElementwise) || (node.op->has(kPointwise) && !node.op->has(kRandom));
    return elementwise && node.outputs.size() == 1 ? pointwise(node) : std::nullopt;
  }

  std::optional<Part> joined(const Node& node) const {
    const auto rank = static_cast<std::int64_t>(plain_[node.outputs[0]].size());
    const std::int64_t axis = node.attrs.integer("axis", 1);
    if (axis != 1 && axis != 1 - rank) return std::nullopt;
    Part role{false, {}, {0}};
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!can_block(node.inputs[i])) return std::nullopt;
      role.inputs.push_back(i);
    }
    return role;
  }

  // Inputs of the result's shape have its layout; the others are scalars,
  // one number per channel, or masks of positions.
  std::optional<Part> pointwise(const Node& node) const {
    const Shape& result = plain_[node.outputs[0]];
    Part role{false, {}, {0}};
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (v == kNone) continue;
      if (plain_[v] == result && can_block(v))
        role.inputs.push_back(i);
      else if (!operand_shape(plain_[v], result))
        return std::nullopt;
    }
    return role.inputs.empty() ? std::nullopt : std::optional(role);
  }

  // The shape with which an operand is broadcast to blocks, the same bytes; empty: as it is; nothing when
  // they would have to move.
  std::optional<Shape> operand_shape(Shape s, const Shape& result) const {
    if (std::all_of(s.begin(), s.end(), [](std::int64_t d) { return d == 1; })) return Shape{};
    if (s.size() > result.size()) return std::nullopt;
    s.insert(s.begin(), result.size() - s.size(), 1);
    const bool channels = s[1] == result[1];
    if (channels ? !one_position(s) : s[1] != 1) return std::nullopt;
    if (channels) s[1] /= block_;
    s.push_back(channels ? block_ : 1);
    return s;
  }

  // Reductions over all spatial dims and no other: they read blocks and give a small plain tensor. The
  // operator that does it, or null.
  const char* reduction_of(const Node& node) const {
    if (node.inputs.empty() || !can_block(node.inputs[0])) return nullptr;
    const char* const reduction = node.op->spatial_reduction;
    if (*reduction == '\0') return nullptr;
    if (node.op->max_inputs == 1) return reduction;  // takes no axes: a global pooling
    std::vector<std::int64_t> axes = node.attrs.integers("axes");
    if (node.inputs.size() > 1 && node.inputs[1] != kNone) {
      const Tensor& known = graph().values[node.inputs[1]].data;
      for (std::int64_t i = 0; known.defined() && i < known.count(); ++i)
        axes.push_back(static_cast<std::int64_t>(known.at(i)));
    }
    const std::size_t rank = plain_[node.inputs[0]].size();
    const auto all = normalized_axes(axes, rank);
    std::vector<std::int64_t> spatial(rank - 2);
    std::iota(spatial.begin(), spatial.end(), 2);
    return all.ok() && *all == spatial ? reduction : nullptr;
  }

  // ---- islands -------------------------------------------------------------------------------------------

  // Those that a convolution borders on.
  std::vector<Island> islands(const std::vector<NodeId>& order) const {
    Forest forest(plain_.size());
    for (const auto& [id, role] : roles_)
      for (std::size_t i = 1; i < role.values.size() && !role.convolution; ++i)
        forest.join(role.values[0], role.values[i]);
    std::map<ValueId, std::size_t> place;  // of an island among the results: by its first node
    std::vector<Island> found;
    for (NodeId id : order) {
      const auto role = roles_.find(id);
      if (role == roles_.end()) continue;
      for (ValueId v : role->second.values) {
        const auto [at, fresh] = place.try_emplace(forest.root(v), found.size());
        if (fresh) found.emplace_back();
        Island& island = found[at->second];
        if (island.nodes.empty() || island.nodes.back() != id) island.nodes.push_back(id);
        island.values.push_back(v);
      }
    }
    for (Island& island : found) {
      std::sort(island.values.begin(), island.values.end());
      island.values.erase(std::unique(island.values.begin(), island.values.end()), island.values.end());
    }
    std::erase_if(found, [&](const Island& island) {
      return std::none_of(island.nodes.begin(), island.nodes.end(),
                          [&](NodeId id) { return roles_.at(id).convolution; });
    });
    return found;
  }

  // A node that knows blocks makes the value.
  bool is_made(ValueId v) const {
    const auto role = roles_.find(graph().values[v].producer);
    return role != roles_.end() && contains(role->second.outputs, graph().values[v].output_index);
  }
  // The use can be of blocks.
  bool reads_blocks(const Use& use) const {
    const auto role = roles_.find(use.node);
    return role != roles_.end() && contains(role->second.inputs, use.input_index);
  }
  bool is_reduced(const Use& use) const { return use.input_index == 0 && reductions_.count(use.node) > 0; }

  Balance balance(const Island& island) const {
    Balance b;
    for (ValueId v : island.values) {
      const std::int64_t size = element_count(plain_[v]);
      const NodeId producer = graph().values[v].producer;
      bool border = rw_.is_output(v);
      if (!is_made(v)) {
        border = true;
        b.border = producer;
      } else if (roles_.at(producer).convolution) {
        b.saved += 3 * size;
      }
      for (const Use& use : rw_.uses(v)) {
        if (reads_blocks(use)) {
          if (roles_.at(use.node).convolution) b.saved += 3 * size;
        } else if (is_made(v) && !is_reduced(use)) {
          border = true;
          b.border = use.node;
        }
      }
      if (border && !one_position(plain_[v])) b.moved += 2 * size;
    }
    return b;
  }

  void rewrite(const Island& island) {
    const NodeId anchor = island.nodes[0];
    const Balance b = balance(island);
    if (b.saved <= b.moved) {
      const std::string border =
          b.border == kNone ? "" : " (" + graph().nodes[b.border].name + " takes plain tensors)";
      rw_.reject(kRule, anchor,
                 "transposes at its borders would move " + std::to_string(b.moved) +
                     " elements, convolutions reorder " + std::to_string(b.saved) + border);
      return;
    }
    if (!rw_.allowed(kRule, anchor, island.nodes)) return;
    GraphBuilder& builder = rw_.begin(kRule, anchor, {anchor});
    std::map<ValueId, ValueId> copies;  // in blocks, of values that come plain
    for (ValueId v : island.values)
      if (!is_made(v)) copies[v] = to_blocks(builder, v);
    for (NodeId id : island.nodes) retype(builder, island, id, copies);
    for (ValueId v : island.values)
      if (is_made(v)) serve_other_readers(builder, v);
    rw_.commit("convolutions need not reorder " + std::to_string(b.saved) + " elements" +
               (b.moved > 0 ? "; transposes at the border move " + std::to_string(b.moved) : ""));
  }

  // The node reads and writes blocks where the island has them.
  void retype(GraphBuilder& builder, const Island& island, NodeId id,
              const std::map<ValueId, ValueId>& copies) {
    const Part& role = roles_.at(id);
    std::vector<ValueId> inputs = graph().nodes[id].inputs;
    Attrs attrs = graph().nodes[id].attrs;
    const auto is_here = [&](ValueId v) { return island.holds(v); };
    if (role.convolution) {
      if (!role.inputs.empty() && is_here(role.values.front())) attrs.set("x_block", block_);
      if (!role.outputs.empty() && is_here(role.values.back())) attrs.set("y_block", block_);
    } else if (graph().nodes[id].op->channel_blocks == ChannelBlocks::axis) {
      attrs.set("axis", std::int64_t{1});
    } else if (graph().nodes[id].op->has(kElementwise) || graph().nodes[id].op->has(kPointwise)) {
      const Shape& result = plain_[graph().nodes[id].outputs[0]];
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] == kNone || contains(role.inputs, i)) continue;
        const auto there = operand_shape(graph().type(inputs[i]).shape, result);
        CHECK(there.has_value(), "an operand that cannot be broadcast to blocks");
        if (!there->empty()) inputs[i] = builder.reshape(inputs[i], *there);
      }
    } else {
      attrs.set("block", block_);
    }
    for (std::size_t i : role.inputs)
      if (copies.count(inputs[i])) inputs[i] = copies.at(inputs[i]);
    rw_.retype(id, std::move(inputs), std::move(attrs));
  }

  // Who reads a value without knowing blocks gets it plain, but for reductions, whose turn comes later.
  void serve_other_readers(GraphBuilder& builder, ValueId v) {
    std::vector<Use> others;
    for (const Use& use : rw_.uses(v)) {
      if (is_reduced(use))
        reduced_.push_back(use.node);
      else if (!reads_blocks(use))
        others.push_back(use);
    }
    if (others.empty() && !rw_.is_output(v)) return;
    const ValueId plain = to_plain(builder, v);
    for (const Use& use : others) {
      std::vector<ValueId> inputs = graph().nodes[use.node].inputs;
      inputs[use.input_index] = plain;
      rw_.retype(use.node, std::move(inputs), graph().nodes[use.node].attrs);
    }
    if (rw_.is_output(v)) rw_.replace_outputs(v, plain);
  }

  // A reduction over all dims of blocks but images and channels, as a plain tensor.
  void reduce(NodeId id) {
    const ValueId x = graph().nodes[id].inputs[0], y = graph().nodes[id].outputs[0];
    const Shape result = graph().type(y).shape;
    std::vector<std::int64_t> axes(plain_[x].size() - 2);
    std::iota(axes.begin(), axes.end(), 2);
    GraphBuilder& b = rw_.begin(kReductionRule, id, {id});
    const ValueId reduced = b.op(reductions_.at(id), {x, b.i64s(axes)}, {{"keepdims", std::int64_t{0}}});
    rw_.replace(y, b.reshape(reduced, result));
    rw_.commit();
  }

  // ---- from one layout to the other ----------------------------------------------------------------------

  ValueId to_blocks(GraphBuilder& b, ValueId v) const {
    Shape split = plain_[v];
    split[1] /= block_;
    split.insert(split.begin() + 2, block_);
    if (one_position(plain_[v])) std::rotate(split.begin() + 2, split.begin() + 3, split.end());
    const ValueId blocks = b.reshape(v, split);
    if (one_position(plain_[v])) return blocks;
    std::vector<std::int64_t> perm(split.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::rotate(perm.begin() + 2, perm.begin() + 3, perm.end());
    return b.op("Transpose", {blocks}, {{"perm", perm}});
  }

  ValueId to_plain(GraphBuilder& b, ValueId v) const {
    const ValueId result = v;
    if (!one_position(plain_[v])) {
      std::vector<std::int64_t> perm(plain_[v].size() + 1);
      std::iota(perm.begin(), perm.end(), 0);
      std::rotate(perm.begin() + 2, perm.end() - 1, perm.end());
      v = b.op("Transpose", {v}, {{"perm", perm}});
    }
    return b.reshape(v, plain_[result]);
  }

  Rewriter& rw_;
  std::int64_t block_;
  std::vector<Shape> plain_;  // of the values before the pass
  std::map<NodeId, Part> roles_;
  std::map<NodeId, const char*> reductions_;
  std::vector<NodeId> reduced_;  // those of values in blocks
};

class BlockChannels final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("block", block_,
            {.help = "channels of a block: 16 for AVX-512, 8 for AVX2", .min = 2, .max = 64});
  }
  Status run(Rewriter& rw) const override { return Blocker(rw, block_).run(); }

  Status run_for(kernels::Target target, Rewriter& rw) const override {
    if (target == kernels::Target::cpu) return run(rw);
    for (NodeId id : TRY(topological_order(rw.graph())))
      if (rw.graph().nodes[id].op->channel_blocks == ChannelBlocks::sides)
        rw.reject(kRule, id, "for the CPU: its kernels have this layout");
    return {};
  }

 private:
  std::int64_t block_ = 16;
};

using Ints = std::vector<std::int64_t>;

Result<PassExample> example() {
  const Type x_type{DType::f32, {2, 3, 6, 6}}, w_type{DType::f32, {16, 3, 3, 3}};
  const Attrs pooled{{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", x_type), w = b.input("w", w_type, Role::parameter);
  e.before.outputs = {b.op("MaxPool", {b.op("Relu", {b.op("Conv", {x, w})})}, pooled)};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", x_type), aw = a.input("w", w_type, Role::parameter);
  Attrs pooled_blocks = pooled;
  pooled_blocks.set("block", std::int64_t{16});
  const ValueId blocks = a.op(
      "MaxPool", {a.op("Relu", {a.op("Conv", {ax, aw}, {{"y_block", std::int64_t{16}}})})}, pooled_blocks);
  const ValueId split = a.op("Transpose", {blocks}, {{"perm", Ints{0, 1, 4, 2, 3}}});
  e.after.outputs = {a.op("Reshape", {split, a.i64s({2, 16, 2, 2})})};
  return e;
}

}  // namespace

extern const PassDef block_channels_pass;
const PassDef block_channels_pass = {
    .name = "block-channels",
    .summary = "CPU: keep tensors between convolutions in the layout in which convolutions compute",
    .doc =
        "Channels lie in blocks of 16, [n, c / 16, h, w, 16], between convolutions and in the "
        "normalizations, poolings, concatenations "
        "and elementwise operators around them, forward and backward: convolutions need not reorder what "
        "they read and write, and the "
        "others work on whole registers. Weights stay as they are. An island of such operators changes its "
        "layout where convolutions "
        "reorder more elements than transposes would move at its borders, where an operator that does not "
        "know blocks reads or makes "
        "one of its tensors. Channels must be a multiple of the block. Only for the CPU.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .target = kernels::Target::cpu,
    .make = [] { return std::unique_ptr<Pass>(new BlockChannels); },
    .example = example,
};

}  // namespace gradloom
