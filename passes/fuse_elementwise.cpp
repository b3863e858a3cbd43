// fuse-elementwise: connected elementwise nodes over the same shape become one FusedElementwise node: every
// input is read once, every result that something outside reads is written once, everything else stays in
// registers and tiles.
//
// Regions grow greedily in topological order: a node joins the regions of its producers when no path leaves
// the joined region and enters it again (convexity, checked on the graph of regions), it has the same shape,
// and the phase is the same: a region across forward and backward would keep forward values alive for longer.
#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "engine/base/text.h"
#include "engine/ops/elementwise/formulas.h"
#include "engine/ops/elementwise/fused.h"
#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"

namespace gradloom {
namespace {

using kernels::EwOp;

constexpr std::uint32_t kNoRegion = 0xffffffffu;
constexpr std::size_t kMostRejections = 100;

bool backward_or_later(const Node& node) { return node.origin.phase == Phase::backward; }

// The statements of one node over its own inputs (operand index = input index), or nothing when it cannot be
// part of a region.
std::optional<std::vector<FusedStatement>> statements_of(const Graph& graph, const Node& node) {
  const std::string_view name = node.op->name;
  const bool dropout = name == "Dropout" && node.op->domain[0] == '\0';
  if (!dropout && !node.op->has(kElementwise)) return std::nullopt;
  for (const auto& [attr, value] : node.attrs.all()) {
    const bool of_cast =
        node.op->ew == EwOp::Cast && !dropout && (attr == "saturate" || attr == "round_mode");
    if (attr != "to" && attr != "key" && !of_cast && !(dropout && attr == "seed")) return std::nullopt;
  }
  std::vector<DType> types;
  for (ValueId v : node.inputs) {
    if (v == kNone || !is_static(graph.type(v).shape)) return std::nullopt;
    types.push_back(graph.type(v).dtype);
  }
  std::vector<FusedStatement> code;
  if (dropout) {
    if (node.inputs.size() != 3 || !node.attrs.has("key")) return std::nullopt;
    const auto key = static_cast<std::uint64_t>(node.attrs.integer("key"));
    code.push_back({EwOp::Dropout, DType::f32, key, {{true, 0}, {true, 1}, {true, 2}}});
    if (!ew_result_type(EwOp::Dropout, types, DType::f32)) return std::nullopt;
    if (node.outputs.size() > 1 && node.outputs[1] != kNone) {
      code.push_back({EwOp::DropoutMask, DType::f32, key, {{true, 1}, {true, 2}}});
    }
    return code;
  }
  const DType result = graph.type(node.outputs[0]).dtype;
  const auto inferred = ew_result_type(node.op->ew, types, result);
  if (!inferred || *inferred != result) return std::nullopt;
  FusedStatement statement{node.op->ew, result, 0, {}};
  if (statement.op == EwOp::Cast) {
    const auto mode = cast_mode(node.attrs, result);
    if (!mode) return std::nullopt;
    statement.key = *mode;
  }
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    statement.operands.push_back({true, static_cast<int>(i)});
  code.push_back(std::move(statement));
  return code;
}

struct Region {
  std::vector<NodeId> nodes;          // in topological order
  std::uint32_t first = 0, last = 0;  // positions in the order
  std::size_t statements = 0;
};

// Regions over the nodes of a graph; every live node is in one, most of them alone.
class Regions {
 public:
  Regions(const Rewriter& rw, const std::vector<NodeId>& order, std::size_t max_nodes, std::size_t max_inputs)
      : rw_(rw),
        graph_(rw.graph()),
        max_nodes_(max_nodes),
        max_inputs_(max_inputs),
        region_of_(graph_.nodes.size(), kNoRegion),
        visited_(order.size(), 0) {
    for (std::uint32_t at = 0; at < order.size(); ++at) {
      const Node& node = graph_.nodes[order[at]];
      auto code = statements_of(graph_, node);
      // Shapes may depend on what is known before running, and a region's results are not.
      const bool known = node.outputs[0] != kNone && graph_.values[node.outputs[0]].data.defined();
      regions_.push_back({{order[at]}, at, at, code && !known ? code->size() : 0});
      region_of_[order[at]] = at;
    }
    position_.assign(graph_.nodes.size(), 0);
    for (std::uint32_t at = 0; at < order.size(); ++at) position_[order[at]] = at;
  }

  const Region& region_of(NodeId id) const { return regions_[region_of_[id]]; }
  bool is_elementwise(NodeId id) const { return region_of(id).statements > 0; }
  bool together(NodeId a, NodeId b) const { return region_of_[a] == region_of_[b]; }

  // Why the regions of a producer and a consumer cannot be one; empty when they can.
  std::string problem(NodeId producer, NodeId consumer) {
    const Node &p = graph_.nodes[producer], &c = graph_.nodes[consumer];
    const Shape &from = graph_.type(p.outputs[0]).shape, &to = graph_.type(c.outputs[0]).shape;
    if (from != to)
      return "its result " + to_string(from) + " is broadcast to " + to_string(to) + " by node " + c.name;
    const std::uint32_t a = region_of_[producer], b = region_of_[consumer];
    if (regions_[a].statements + regions_[b].statements > max_nodes_)
      return "the region would have more than max_nodes operations";
    const std::size_t inputs = joined_inputs(a, b);
    if (inputs > max_inputs_)
      return "the region would read " + std::to_string(inputs) + " tensors, above max_inputs";
    const NodeId between = path_between(a, b);
    if (between != kNone) return "node " + graph_.nodes[between].name + " lies between it and node " + c.name;
    return "";
  }

  void join(NodeId producer, NodeId consumer) {
    const std::uint32_t a = region_of_[producer], b = region_of_[consumer];
    Region &into = regions_[a], &from = regions_[b];
    into.nodes.insert(into.nodes.end(), from.nodes.begin(), from.nodes.end());
    std::sort(into.nodes.begin(), into.nodes.end(),
              [&](NodeId x, NodeId y) { return position_[x] < position_[y]; });
    into.first = std::min(into.first, from.first);
    into.last = std::max(into.last, from.last);
    into.statements += from.statements;
    for (NodeId id : from.nodes) region_of_[id] = a;
    from = {};
  }

 private:
  // Tensors (not scalar constants) that the joined region reads from outside.
  std::size_t joined_inputs(std::uint32_t a, std::uint32_t b) const {
    std::vector<ValueId> inputs;
    for (std::uint32_t r : {a, b}) {
      for (NodeId id : regions_[r].nodes) {
        for (ValueId v : graph_.nodes[id].inputs) {
          const NodeId producer = graph_.values[v].producer;
          if (producer != kNone && (region_of_[producer] == a || region_of_[producer] == b)) continue;
          if (!scalar_constant(graph_, v, nullptr)) inputs.push_back(v);
        }
      }
    }
    std::sort(inputs.begin(), inputs.end());
    return static_cast<std::size_t>(std::unique(inputs.begin(), inputs.end()) - inputs.begin());
  }

  // A node outside both regions on a path from one to the other, either way; kNone when there is none.
  NodeId path_between(std::uint32_t a, std::uint32_t b) {
    const NodeId there = search(a, b);
    return there != kNone ? there : search(b, a);
  }

  // Depth-first from `from`, not through the direct edge; the first node of the path if `to` is reached.
  NodeId search(std::uint32_t from, std::uint32_t to) {
    ++stamp_;
    visited_[from] = stamp_;
    struct Step {
      std::uint32_t region;
      NodeId first;
    };
    std::vector<Step> stack = {{from, kNone}};
    while (!stack.empty()) {
      const Step step = stack.back();
      stack.pop_back();
      for (NodeId id : regions_[step.region].nodes) {
        for (ValueId v : graph_.nodes[id].outputs) {
          if (v == kNone) continue;
          for (const Use& use : rw_.uses(v)) {
            const std::uint32_t next = region_of_[use.node];
            if (next == to) {
              if (step.region != from) return step.first;
              continue;  // a direct edge
            }
            // Whatever starts after the end of `to` cannot lead there.
            if (visited_[next] == stamp_ || regions_[next].first > regions_[to].last) continue;
            visited_[next] = stamp_;
            stack.push_back({next, step.first == kNone ? use.node : step.first});
          }
        }
      }
    }
    return kNone;
  }

  const Rewriter& rw_;
  const Graph& graph_;
  std::size_t max_nodes_, max_inputs_;
  std::vector<std::uint32_t> region_of_;  // by node
  std::vector<std::uint32_t> position_;   // by node
  std::vector<Region> regions_;
  std::vector<std::uint32_t> visited_;  // by region
  std::uint32_t stamp_ = 0;
};

class FuseElementwise final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("max_nodes", max_nodes_, {.help = "most operations of one region", .min = 2, .max = 150});
    v.field("max_inputs", max_inputs_, {.help = "most tensors one region reads", .min = 2, .max = 64});
  }

  Status run(Rewriter& rw) const override {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    Regions regions(rw, order, static_cast<std::size_t>(max_nodes_), static_cast<std::size_t>(max_inputs_));
    const Graph& graph = rw.graph();
    std::size_t rejections = 0;
    for (NodeId id : order) {
      if (!regions.is_elementwise(id)) continue;
      std::string why;
      NodeId blocked = kNone;
      for (ValueId v : graph.nodes[id].inputs) {
        const NodeId producer = graph.values[v].producer;
        if (producer == kNone || !regions.is_elementwise(producer) || regions.together(producer, id))
          continue;
        if (backward_or_later(graph.nodes[producer]) != backward_or_later(graph.nodes[id])) continue;
        const std::string problem = regions.problem(producer, id);
        if (problem.empty()) {
          regions.join(producer, id);
        } else {
          why = problem;
          blocked = producer;
        }
      }
      if (blocked != kNone && !regions.together(blocked, id) && rejections++ < kMostRejections)
        rw.reject("region", blocked, why);
    }
    for (NodeId id : order) {
      if (!graph.nodes[id].alive() || regions.region_of(id).nodes.size() < 2 ||
          regions.region_of(id).nodes.back() != id)
        continue;
      if (rw.allowed("region", id, regions.region_of(id).nodes)) TRY(build(rw, regions.region_of(id).nodes));
    }
    return {};
  }

 private:
  static Status build(Rewriter& rw, const std::vector<NodeId>& nodes) {
    const Graph& graph = rw.graph();
    std::vector<FusedStatement> code;
    std::vector<ValueId> inputs, old_outputs;
    std::vector<std::int64_t> output_statements;
    std::unordered_map<ValueId, FusedOperand> operand_of;
    const auto operand = [&](ValueId v) {
      const auto [at, is_new] = operand_of.emplace(v, FusedOperand{true, static_cast<int>(inputs.size())});
      if (is_new) inputs.push_back(v);
      return at->second;
    };
    for (NodeId id : nodes) {
      const Node& node = graph.nodes[id];
      const auto own = statements_of(graph, node);
      CHECK(own.has_value(), "a region node without statements");
      for (std::size_t i = 0; i < own->size(); ++i) {
        FusedStatement statement = (*own)[i];
        for (FusedOperand& o : statement.operands)
          o = operand(node.inputs[static_cast<std::size_t>(o.index)]);
        const ValueId result = node.outputs[i];
        operand_of[result] = {false, static_cast<int>(code.size())};
        if (!used_elsewhere(rw, result, nodes).empty()) {
          old_outputs.push_back(result);
          output_statements.push_back(static_cast<std::int64_t>(code.size()));
        }
        code.push_back(std::move(statement));
      }
    }
    if (old_outputs.empty()) return {};  // nothing reads the region: dead code
    if (old_outputs.size() > static_cast<std::size_t>(kernels::kEwMaxOutputs)) {
      rw.reject("region", nodes.back(),
                "the region would write more than " + std::to_string(kernels::kEwMaxOutputs) + " tensors");
      return {};
    }
    const std::size_t count = nodes.size(), outputs = old_outputs.size(), reads = inputs.size();
    GraphBuilder& b = rw.begin("region", nodes.back(), nodes);
    const Attrs attrs{{"code", print_fused(code)}, {"outputs", output_statements}};
    const auto results =
        TRY(b.add(op_by_name("FusedElementwise"), inputs, attrs, static_cast<int>(old_outputs.size())));
    for (std::size_t i = 0; i < results.size(); ++i) rw.replace(old_outputs[i], results[i]);
    rw.commit(std::to_string(count) + " nodes become 1 with " +
              plural_text(static_cast<std::int64_t>(reads), "input") + " and " +
              plural_text(static_cast<std::int64_t>(outputs), "output"));
    return {};
  }

  std::int64_t max_nodes_ = 64, max_inputs_ = 24;
};

Result<PassExample> example() {
  const Type type{DType::f32, {4, 8}}, row{DType::f32, {8}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", type), bias = b.input("bias", row), residual = b.input("residual", type);
  e.before.outputs = {b.op("Add", {b.op("Gelu", {b.op("Add", {x, bias})}), residual})};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", type), abias = a.input("bias", row), aresidual = a.input("residual", type);
  const Attrs attrs{{"code", std::string("t0=Add(i0,i1);t1=Gelu(t0);t2=Add(t1,i2)")},
                    {"outputs", std::vector<std::int64_t>{2}}};
  e.after.outputs = {a.op("FusedElementwise", {ax, abias, aresidual}, attrs)};
  return e;
}

}  // namespace

extern const PassDef fuse_elementwise_pass;
const PassDef fuse_elementwise_pass = {
    .name = "fuse-elementwise",
    .summary = "run connected elementwise operators as one kernel",
    .doc =
        "Any connected region of elementwise operations over one shape, forward or backward, becomes one "
        "kernel: arithmetic, activations and "
        "their gradients, casts, comparisons, Where, dropout, with broadcast inputs of any kind and several "
        "results. A region never "
        "crosses from forward to backward (that would keep activations for longer) and never spans a path "
        "through another operator.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new FuseElementwise); },
    .example = example,
};

}  // namespace gradloom
