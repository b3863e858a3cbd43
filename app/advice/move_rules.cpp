// Kernels that only convert, copy or turn tensors, with what forces them.
#include <algorithm>

#include "app/advice/subject.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"

namespace gradloom::advice {
namespace {

constexpr const char* kMoves[] = {"Transpose", "Identity", "Concat", "Split", "Slice"};
constexpr const char* kPieces[] = {"Concat", "Split", "Slice"};

bool is_any(const Node& node, std::span<const char* const> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return is_op(node, name); });
}

bool is_wide_cast(const Graph& graph, const Node& node) {
  return graph.type(node.inputs[0]).dtype == DType::f64 || graph.type(node.outputs[0]).dtype == DType::f64;
}

bool only_moves(const Node& node) { return is_cast(node) || node.op->has(kPermutes) || is_any(node, kMoves); }

// Where the node's operand comes from, and who reads its result.
struct Ends {
  std::string from, to;
  bool back = false;  // it undoes what the node before it did
};

Ends ends_of(const Graph& graph, const Node& node, const std::vector<std::vector<Use>>& uses) {
  Ends ends;
  const ValueId in = node.inputs[0], out = node.outputs[0];
  const NodeId maker = graph.value(in).producer;
  ends.from = maker == kNone ? escaped(graph.value(in).name)
                             : escaped(graph.nodes[maker].name) + " (" + graph.nodes[maker].op->name + ")";
  const bool undone = maker != kNone && graph.nodes[maker].op == node.op &&
                      graph.type(graph.nodes[maker].inputs[0]) == graph.type(out);
  ends.back = only_moves(node) && (undone || (is_cast(node) && graph.type(in) == graph.type(out)));
  for (const Use& use : uses[out]) {
    const Node& reader = graph.nodes[use.node];
    if (!reader.alive()) continue;
    ends.to += (ends.to.empty() ? "" : ", ") + escaped(reader.name) + " (" + reader.op->name + ")";
    if (ends.to.size() > 120) break;
  }
  if (ends.to.empty()) ends.to = "an output of the step";
  return ends;
}

std::string types_text(const Graph& graph, const Node& node) {
  const Type &from = graph.type(node.inputs[0]), &to = graph.type(node.outputs[0]);
  if (from.dtype == to.dtype && is_cast(node))
    return std::string("of ") + dtype_name(to.dtype) + " to itself";
  if (from.dtype != to.dtype) return std::string(dtype_name(from.dtype)) + " to " + dtype_name(to.dtype);
  return to_string(from) + " to " + to_string(to.shape);
}

// Alike moves of all layers.
struct MoveGroup {
  std::vector<const NodeTime*> nodes;
  double ns = 0;
};

// Why a Slice, Split or Concat needs a kernel; empty: the plan does not say.
std::string why_copied(const Subject& subject, const Node& node) {
  for (const PieceChoice& choice : subject.prepared().compiled.plan.choices)
    if (&subject.graph().nodes[choice.node] == &node && !choice.taken) return choice.why;
  return "";
}

// Why the passes that take such nodes away left this one.
std::string why_kept(const Subject& subject, const Node& node) {
  for (const PassReport& report : subject.job().reports)
    for (const RewriteRecord& record : report.log)
      if (!record.matched && record.site == node.name && !record.why.empty())
        return report.name + ": " + record.why;
  return "";
}

// Equal for alike moves of all layers. Turns of tensors of the same dims are alike, there and back, forward and backward.
std::string kind_of_move(const Graph& graph, const Node& node) {
  if (!node.op->has(kPermutes))
    return std::string(node.op->name) + " " + types_text(graph, node) + " " + role_of(node.name);
  Type type = graph.type(node.inputs[0]);
  std::sort(type.shape.begin(), type.shape.end());
  return std::string(node.op->name) + " " + to_string(type);
}

}  // namespace

Status find_moves(Subject& subject, Findings& found) {
  const Graph& graph = subject.graph();
  const auto uses = uses_of(graph);
  const std::vector<NodeTime> times = subject.node_times();
  std::map<std::string, MoveGroup> groups;
  for (const NodeTime& time : times) {
    if (!only_moves(*time.node) || time.node->inputs.empty() || time.node->inputs[0] == kNone) continue;
    // Rule pieces weighs those that its setting makes.
    if (!subject.recipe().pieces && is_any(*time.node, kPieces)) continue;
    // Those of mixed precision come with it: rule precision weighs them.
    if (is_cast(*time.node) && time.kernel->passes.find("mixed-precision") != std::string::npos) continue;
    // Those of f64 in a job of other numbers come with what works in it: rule wide.
    if (is_cast(*time.node) && subject.recipe().precision != "f64" && is_wide_cast(graph, *time.node))
      continue;
    MoveGroup& group = groups[kind_of_move(graph, *time.node)];
    group.nodes.push_back(&time);
    group.ns += time.ns;
  }
  for (const auto& [_, group] : groups) {
    if (!subject.matters(group.ns)) continue;
    const Node& node = *group.nodes.front()->node;
    const Ends ends = ends_of(graph, node, uses);
    const auto count = static_cast<std::int64_t>(group.nodes.size());
    const double launches = subject.predictor().launch_ns() * static_cast<double>(count);
    // Others may have to take what they give: a kernel of another type or order.
    const Gain gain{0.9 * group.ns + launches, 0.5 * group.ns, group.ns + launches, 1};
    Finding finding =
        subject.of_model(gain,
                         (count > 1 ? std::to_string(count) + " x " : std::string()) +
                             (is_cast(node) ? "Cast" : node.op->name) + " " + types_text(graph, node) + " (" +
                             escaped(node.name) + (count > 1 ? ", .." : "") + ")" +
                             (ends.back ? ", which leads back to what it began with" : ""),
                         ends.back ? "take the way there and back out of the model"
                                   : "let " + ends.from + " give what " + ends.to + " takes");
    finding.node = node.name;
    if (node.op->has(kPermutes))
      for (const NodeTime* const moved : group.nodes) finding.nodes.insert(moved->node->name);
    finding.numbers.push_back("takes " + subject.of_a_step(group.ns));
    finding.numbers.push_back("between " + ends.from + " and " + ends.to);
    for (const std::string& why : {why_copied(subject, node), why_kept(subject, node)})
      if (!why.empty()) finding.numbers.push_back(escaped(why));
    found.push_back(std::move(finding));
  }
  return {};
}

Status find_pieces(Subject& subject, Findings& found) {
  if (subject.recipe().pieces) return {};
  const ChangedJob* const changed = TRY(subject.changed("pieces=on"));
  if (changed == nullptr) return {};
  std::int64_t copies = 0;
  double ns = 0;
  for (const NodeTime& time : subject.node_times())
    if (is_any(*time.node, kPieces)) {
      ++copies;
      ns += time.ns;
    }
  Finding finding =
      subject.of_change(*changed, "pieces is off: " + plural_text(copies, "kernel") +
                                      " of Slice, Split and Concat copy what could be read where it lies");
  finding.numbers.push_back("they take " + subject.of_a_step(ns));
  found.push_back(std::move(finding));
  return {};
}

}  // namespace gradloom::advice
