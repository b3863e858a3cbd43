// The pattern matcher: depth-first over goals (operand, value), backtracking over the operand orders of
// commutative operators. Patterns have about ten nodes and few commutative choices, so a match costs
// microseconds; a mismatch usually one comparison.
#include "passes/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/ir/op.h"

namespace gradloom {
namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \n") - first + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t end = std::min(text.find(separator, start), text.size());
    parts.push_back(trimmed(text.substr(start, end - start)));
    start = end + 1;
  }
  return parts;
}

// Inputs without omitted trailing ones.
std::size_t present_inputs(const Node& node) {
  std::size_t n = node.inputs.size();
  while (n > 0 && node.inputs[n - 1] == kNone) --n;
  return n;
}

bool close_enough(double value, double wanted, DType dtype) {
  const double tolerance = dtype == DType::f64 ? 1e-12 : 1e-6;
  return std::abs(value - wanted) <= tolerance * std::max(std::abs(wanted), 1e-30);
}

void note(Mismatch& mismatch, const Match& so_far, const std::string& why) {
  if (!mismatch.why.empty() && so_far.nodes.size() <= mismatch.nodes.size()) return;
  mismatch.nodes = so_far.nodes;
  mismatch.why = why;
}

}  // namespace

bool is_op(const Node& node, std::string_view name) {
  if (!node.alive() || name != node.op->name) return false;
  const std::string_view domain = node.op->domain;
  return domain.empty() || domain == "gradloom";
}

bool is_commutative(const Node& node) {
  return node.alive() && node.op->has(kCommutative) && present_inputs(node) == 2;
}

Pattern::Pattern(const char* text) {
  std::vector<std::vector<std::string>> operand_texts;
  for (const std::string& line : split(text, ';')) {
    const std::size_t equals = line.find('='), open = line.find('('), close = line.rfind(')');
    CHECK(
        equals != std::string::npos && open != std::string::npos && close == line.size() - 1 && equals < open,
        text);
    Statement statement;
    statement.result = trimmed(line.substr(0, equals));
    statement.op = trimmed(line.substr(equals + 1, open - equals - 1));
    CHECK(by_name_.emplace(statement.result, statements_.size()).second, text);
    statements_.push_back(std::move(statement));
    operand_texts.push_back(split(line.substr(open + 1, close - open - 1), ','));
  }
  for (std::size_t i = 0; i < statements_.size(); ++i) {
    for (const std::string& operand : operand_texts[i])
      statements_[i].operands.push_back(parse_operand(operand));
  }
}

Pattern::Operand Pattern::parse_operand(const std::string& text) const {
  CHECK(!text.empty(), "empty operand in a pattern");
  Operand operand{Operand::wildcard, text};
  if (text == "_") {
    operand.kind = Operand::ignored;
  } else if (text[0] == '#') {
    operand.name = text.substr(1);
    char* end = nullptr;
    operand.number = std::strtod(operand.name.c_str(), &end);
    const bool is_number = !operand.name.empty() && *end == '\0';
    operand.kind = is_number ? Operand::constant : Operand::any_constant;
  } else if (auto found = by_name_.find(text); found != by_name_.end()) {
    operand.kind = Operand::statement;
    operand.index = found->second;
  }
  return operand;
}

bool Pattern::match(const Graph& graph, NodeId root, Match& match, Mismatch* mismatch) const {
  const Node& node = graph.nodes[root];
  if (!node.alive() || root_op() != node.op->name) return false;
  Match found;
  found.root = root;
  Mismatch furthest;
  if (!solve_statement(graph, 0, root, {}, found, furthest)) {
    if (mismatch != nullptr) *mismatch = std::move(furthest);
    return false;
  }
  match = std::move(found);
  return true;
}

bool Pattern::solve_statement(const Graph& graph, std::size_t index, NodeId id,
                              const std::vector<Goal>& goals, Match& match, Mismatch& mismatch) const {
  const Statement& statement = statements_[index];
  const Node& node = graph.nodes[id];
  if (present_inputs(node) != statement.operands.size()) {
    note(mismatch, match, "node " + node.name + " has " + std::to_string(present_inputs(node)) + " inputs");
    return false;
  }
  Match with_node = match;
  with_node.nodes.push_back(id);
  with_node.values[statement.result] = node.outputs[0];
  const int orders = is_commutative(node) ? 2 : 1;
  for (int order = 0; order < orders; ++order) {
    std::vector<Goal> next = goals;
    const std::size_t n = statement.operands.size();
    for (std::size_t i = 0; i < n; ++i)
      next.push_back({&statement.operands[i], node.inputs[order == 0 ? i : n - 1 - i]});
    Match attempt = with_node;
    if (solve(graph, std::move(next), attempt, mismatch)) {
      match = std::move(attempt);
      return true;
    }
  }
  return false;
}

bool Pattern::solve(const Graph& graph, std::vector<Goal> goals, Match& match, Mismatch& mismatch) const {
  const auto fail = [&](const std::string& reason) {
    note(mismatch, match, reason);
    return false;
  };
  while (!goals.empty()) {
    const Goal goal = goals.back();
    goals.pop_back();
    const Operand& operand = *goal.operand;
    if (goal.value == kNone) return fail("an input is omitted");
    const Value& value = graph.values[goal.value];
    switch (operand.kind) {
      case Operand::ignored: break;
      case Operand::wildcard: {
        auto [at, is_new] = match.values.emplace(operand.name, goal.value);
        if (!is_new && at->second != goal.value) {
          return fail("value " + value.name + " is not " + graph.values[at->second].name);
        }
        break;
      }
      case Operand::constant:
      case Operand::any_constant: {
        double number = 0;
        if (!scalar_constant(graph, goal.value, &number))
          return fail("value " + value.name + " is not a scalar constant");
        if (operand.kind == Operand::any_constant) {
          match.constants[operand.name] = number;
        } else if (!close_enough(number, operand.number, value.type.dtype)) {
          return fail("constant " + value.name + " is not " + operand.name);
        }
        break;
      }
      case Operand::statement: {
        auto bound = match.values.find(operand.name);
        if (bound != match.values.end()) {
          if (bound->second != goal.value)
            return fail("value " + value.name + " is not " + graph.values[bound->second].name);
          break;
        }
        const Statement& statement = statements_[operand.index];
        if (value.producer == kNone || value.output_index != 0) {
          return fail("value " + value.name + " is not the result of " + statement.op);
        }
        const Node& node = graph.nodes[value.producer];
        if (statement.op != node.op->name) return fail("node " + node.name + " is not " + statement.op);
        return solve_statement(graph, operand.index, value.producer, goals, match, mismatch);
      }
    }
  }
  return true;
}

std::string used_elsewhere(const Rewriter& rw, ValueId value, const std::vector<NodeId>& inside) {
  const Graph& graph = rw.graph();
  for (const Use& use : rw.uses(value)) {
    if (std::find(inside.begin(), inside.end(), use.node) == inside.end()) {
      return graph.values[value].name + " is also read by node " + graph.nodes[use.node].name;
    }
  }
  if (rw.is_output(value)) return graph.values[value].name + " is also an output of the graph";
  return "";
}

bool only_used_inside(const Rewriter& rw, const Match& match, std::string* why) {
  for (NodeId id : match.nodes) {
    if (id == match.root) continue;
    for (ValueId output : rw.graph().nodes[id].outputs) {
      if (output == kNone) continue;
      const std::string reason = used_elsewhere(rw, output, match.nodes);
      if (reason.empty()) continue;
      if (why != nullptr) *why = reason;
      return false;
    }
  }
  return true;
}

}  // namespace gradloom
