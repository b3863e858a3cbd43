#include "passes/regions.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/elementwise/formulas.h"
#include "passes/pattern.h"

namespace gradloom {
namespace {

using kernels::EwOp;

constexpr std::uint32_t kNoRegion = 0xffffffffu;
constexpr std::size_t kMostRejections = 100;

bool backward_or_later(const Node& node) { return node.origin.phase == Phase::backward; }

Shape one_of_each_row(Shape shape, std::size_t row_dims) {
  std::fill(shape.end() - static_cast<std::ptrdiff_t>(row_dims), shape.end(), 1);
  return shape;
}

// Whether `other` computes one number for each of the rows.
bool of_each_row(const Region& rows, const Region& other) {
  return rows.row_dims > 0 && other.row_dims == 0 && !other.draws &&
         other.space == one_of_each_row(rows.space, rows.row_dims);
}

// The region whose shape and rows are those of both; null: there is none.
const Region* wider(const Region& a, const Region& b) {
  if (a.space == b.space && (a.row_dims == 0 || b.row_dims == 0 || a.row_dims == b.row_dims))
    return a.row_dims > 0 ? &a : &b;
  return of_each_row(a, b) ? &a : (of_each_row(b, a) ? &b : nullptr);
}

// Inputs and code of a region's node, as they come together.
struct Joining {
  std::vector<FusedStatement> code;
  std::vector<ValueId> inputs;                      // kNone: a constant
  std::vector<std::pair<DType, double>> constants;  // by input
  std::unordered_map<ValueId, FusedOperand> operand_of;

  FusedOperand input(ValueId v, std::pair<DType, double> constant) {
    inputs.push_back(v);
    constants.push_back(constant);
    return {true, static_cast<int>(inputs.size()) - 1};
  }
  FusedOperand operand(ValueId v) {
    const auto known = operand_of.find(v);
    return known != operand_of.end() ? known->second : operand_of[v] = input(v, {});
  }

  // The number of the first statement of the node.
  std::size_t add(const Node& node, const RegionCode& own) {
    const std::size_t first = code.size();
    std::vector<FusedOperand> constant(own.constants.size());
    for (std::size_t c = 0; c < constant.size(); ++c) constant[c] = input(kNone, own.constants[c]);
    for (FusedStatement statement : own.statements) {
      for (FusedOperand& o : statement.operands) {
        const auto index = static_cast<std::size_t>(o.index);
        if (!o.is_input)
          o.index += static_cast<int>(first);
        else
          o = index < node.inputs.size() ? operand(node.inputs[index]) : constant[index - node.inputs.size()];
      }
      code.push_back(std::move(statement));
    }
    return first;
  }
};

}  // namespace

std::optional<RegionCode> elementwise_code(const Graph& graph, const Node& node) {
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
  RegionCode made;
  std::vector<FusedStatement>& code = made.statements;
  made.space = graph.type(node.outputs[0]).shape;
  made.results = {0};
  if (dropout) {
    if (node.inputs.size() != 3 || !node.attrs.has("key")) return std::nullopt;
    const auto key = static_cast<std::uint64_t>(node.attrs.integer("key"));
    code.push_back({EwOp::Dropout, DType::f32, key, {{true, 0}, {true, 1}, {true, 2}}});
    if (!ew_result_type(EwOp::Dropout, types, DType::f32)) return std::nullopt;
    if (node.outputs.size() > 1 && node.outputs[1] != kNone) {
      code.push_back({EwOp::DropoutMask, DType::f32, key, {{true, 1}, {true, 2}}});
      made.results.push_back(1);
    }
    return made;
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
  return made;
}

Regions::Regions(const Rewriter& rw, std::vector<NodeId> order, RegionLimits limits, RegionCodeFn code)
    : rw_(rw),
      graph_(rw.graph()),
      order_(std::move(order)),
      limits_(limits),
      code_(std::move(code)),
      region_of_(graph_.nodes.size(), kNoRegion),
      position_(graph_.nodes.size(), 0),
      visited_(order_.size(), 0) {
  for (std::uint32_t at = 0; at < order_.size(); ++at) {
    const Node& node = graph_.nodes[order_[at]];
    // Shapes may depend on what is known before running, and a region's results are not.
    const bool known = node.outputs[0] != kNone && graph_.values[node.outputs[0]].data.defined();
    const auto own = node.outputs[0] == kNone || known ? std::nullopt : code_(graph_, node);
    Region region{{order_[at]}, at, at};
    if (own) {
      region.statements = own->statements.size();
      region.space = own->space;
      region.row_dims = own->row_dims;
      region.draws = std::any_of(own->statements.begin(), own->statements.end(),
                                 [](const FusedStatement& s) { return kernels::ew_draws(s.op); });
    }
    regions_.push_back(std::move(region));
    region_of_[order_[at]] = position_[order_[at]] = at;
  }
}

void Regions::grow(Rewriter& rw) {
  std::size_t rejections = 0;
  for (const NodeId id : order_) {
    if (!is_code(id)) continue;
    std::string why;
    NodeId blocked = kNone;
    for (ValueId v : graph_.nodes[id].inputs) {
      const NodeId producer = v == kNone ? kNone : graph_.values[v].producer;
      if (producer == kNone || !is_code(producer) || together(producer, id)) continue;
      if (backward_or_later(graph_.nodes[producer]) != backward_or_later(graph_.nodes[id])) continue;
      const std::string problem_text = problem(producer, id);
      if (problem_text.empty()) {
        join(producer, id);
      } else if (limits_.reasons == RegionReasons::all || region_of(producer).row_dims > 0 ||
                 region_of(id).row_dims > 0) {
        why = problem_text;
        blocked = producer;
      }
    }
    if (blocked != kNone && !together(blocked, id) && limits_.reasons != RegionReasons::none &&
        rejections++ < kMostRejections)
      rw.reject("region", blocked, why);
  }
}

std::vector<Region> Regions::joined() const {
  std::vector<Region> found;
  for (const NodeId id : order_)
    if (region_of(id).nodes.size() > 1 && region_of(id).nodes.back() == id) found.push_back(region_of(id));
  return found;
}

std::string Regions::problem(NodeId producer, NodeId consumer) {
  const Node &p = graph_.nodes[producer], &c = graph_.nodes[consumer];
  const std::uint32_t a = region_of_[producer], b = region_of_[consumer];
  if (wider(regions_[a], regions_[b]) == nullptr) {
    if (regions_[a].row_dims > 0 || regions_[b].row_dims > 0)
      return "its rows are not those of node " + c.name;
    return "its result " + to_string(graph_.type(p.outputs[0]).shape) + " is broadcast to " +
           to_string(graph_.type(c.outputs[0]).shape) + " by node " + c.name;
  }
  if (regions_[a].statements + regions_[b].statements > limits_.nodes)
    return "the region would have more than max_nodes operations";
  const std::size_t inputs = joined_inputs(a, b);
  if (inputs > limits_.inputs)
    return "the region would read " + std::to_string(inputs) + " tensors, above max_inputs";
  const NodeId between = path_between(a, b);
  if (between != kNone) return "node " + graph_.nodes[between].name + " lies between it and node " + c.name;
  return "";
}

void Regions::join(NodeId producer, NodeId consumer) {
  const std::uint32_t a = region_of_[producer], b = region_of_[consumer];
  Region &into = regions_[a], &from = regions_[b];
  const Region& wide = *wider(into, from);
  const Shape space = wide.space;
  into.row_dims = wide.row_dims;
  into.space = space;
  into.draws = into.draws || from.draws;
  into.nodes.insert(into.nodes.end(), from.nodes.begin(), from.nodes.end());
  std::sort(into.nodes.begin(), into.nodes.end(),
            [&](NodeId x, NodeId y) { return position_[x] < position_[y]; });
  into.first = std::min(into.first, from.first);
  into.last = std::max(into.last, from.last);
  into.statements += from.statements;
  for (NodeId id : from.nodes) region_of_[id] = a;
  from = {};
}

// Tensors (not scalar constants) that the joined region reads from outside.
std::size_t Regions::joined_inputs(std::uint32_t a, std::uint32_t b) const {
  std::vector<ValueId> inputs;
  for (std::uint32_t r : {a, b}) {
    for (NodeId id : regions_[r].nodes) {
      for (ValueId v : graph_.nodes[id].inputs) {
        if (v == kNone) continue;
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
NodeId Regions::path_between(std::uint32_t a, std::uint32_t b) {
  const NodeId there = search(a, b);
  return there != kNone ? there : search(b, a);
}

// Depth-first from `from`, not through the direct edge; the first node of the path if `to` is reached.
NodeId Regions::search(std::uint32_t from, std::uint32_t to) {
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

Status Regions::build(Rewriter& rw, const Region& region, const char* op) const {
  const Graph& graph = rw.graph();
  if (!graph.nodes[region.nodes.back()].alive()) return {};
  Joining joining;
  std::vector<ValueId> old_outputs;
  std::vector<std::int64_t> output_statements;
  for (const NodeId id : region.nodes) {
    const Node& node = graph.nodes[id];
    const auto own = code_(graph, node);
    CHECK(own.has_value(), "a region node without statements");
    const std::size_t first = joining.add(node, *own);
    for (std::size_t i = 0; i < own->results.size(); ++i) {
      const ValueId result = i < node.outputs.size() ? node.outputs[i] : kNone;
      if (result == kNone) continue;
      const auto statement = static_cast<std::int64_t>(first) + own->results[i];
      joining.operand_of[result] = {false, static_cast<int>(statement)};
      if (used_elsewhere(rw, result, region.nodes).empty()) continue;
      old_outputs.push_back(result);
      output_statements.push_back(statement);
    }
  }
  if (old_outputs.empty()) return {};  // nothing reads the region: dead code
  if (old_outputs.size() > static_cast<std::size_t>(kernels::kEwMaxOutputs)) {
    rw.reject("region", region.nodes.back(),
              "the region would write more than " + std::to_string(kernels::kEwMaxOutputs) + " tensors");
    return {};
  }
  const std::size_t count = region.nodes.size(), outputs = old_outputs.size(), reads = joining.inputs.size();
  GraphBuilder& b = rw.begin("region", region.nodes.back(), region.nodes);
  for (std::size_t i = 0; i < reads; ++i)
    if (joining.inputs[i] == kNone)
      joining.inputs[i] = b.scalar(joining.constants[i].first, joining.constants[i].second);
  Attrs attrs{{"code", print_fused(joining.code)}, {"outputs", output_statements}};
  if (region.row_dims > 0) attrs.set("row_dims", static_cast<std::int64_t>(region.row_dims));
  const auto results = TRY(b.add(op_by_name(op), joining.inputs, attrs, static_cast<int>(outputs)));
  for (std::size_t i = 0; i < results.size(); ++i) rw.replace(old_outputs[i], results[i]);
  rw.commit(std::to_string(count) + " nodes become 1 with " +
            plural_text(static_cast<std::int64_t>(reads), "input") + " and " +
            plural_text(static_cast<std::int64_t>(outputs), "output"));
  return {};
}

}  // namespace gradloom
