// The pattern matcher: depth-first over goals (operand, value), backtracking over forms and over the ways in which
// commutative operators take their operands. Patterns have about ten nodes and few choices, so a match costs
// microseconds, a mismatch usually one comparison; an attempt of kMostSteps is given up.
#include "passes/pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "engine/base/text.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

constexpr int kMostSteps = 20000;

// Inputs without omitted trailing ones.
std::size_t present_inputs(const Node& node) {
  std::size_t n = node.inputs.size();
  while (n > 0 && node.inputs[n - 1] == kNone) --n;
  return n;
}

// How far a number may be off, relatively, that was rounded to the type: in 16 bits by that rounding alone, in 32 and 64 also by what it
// was computed from.
double precision_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-12;
    case DType::f16: return 0x1p-11;
    case DType::bf16: return 0x1p-9;
    default: return 1e-6;
  }
}

// 1, 2 or 0.5 is meant as it stands: 1 + 1e-7 clamps what 1 does not. Others are rounded by who wrote them.
bool close_enough(double value, double wanted, DType dtype) {
  if (wanted * 1024 == std::floor(wanted * 1024)) return value == wanted;
  return std::abs(value - wanted) <= precision_of(dtype) * std::max(std::abs(wanted), 1e-30);
}

void note(Mismatch& mismatch, const Match& so_far, const std::string& why) {
  if (!mismatch.why.empty() && so_far.nodes.size() <= mismatch.nodes.size()) return;
  mismatch.nodes = so_far.nodes;
  mismatch.why = why;
}

std::optional<double> number_of(const AttrValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::nullopt;
}

// Integers are also the reals that they are.
bool same_value(const AttrValue& a, const AttrValue& b) {
  if (a.index() == b.index()) return Attrs{{"a", a}} == Attrs{{"a", b}};
  return number_of(a) && number_of(a) == number_of(b);
}

}  // namespace

bool is_commutative(const Node& node) {
  return node.alive() && node.op->has(kCommutative) && present_inputs(node) == 2;
}

bool is_known_op(const std::string& name) {
  const auto all = all_ops();
  return std::any_of(all.begin(), all.end(),
                     [&](const OpDef* op) { return is_of_either_domain(*op) && name == op->name; });
}

std::string unknown_op(const std::string& name) {
  std::vector<std::string> names;
  for (const OpDef* op : all_ops())
    if (is_of_either_domain(*op)) names.emplace_back(op->name);
  return "unknown operator '" + escaped(name) + "'; did you mean " + nearest_name(name, names) + "?";
}

// ---- Text ----

Result<double> parse_signed_number(Scanner& scanner) {
  const bool negative = scanner.take_if("-");
  if (scanner.token().kind != Scanner::Kind::number) return scanner.error("expected a number");
  const double number = scanner.take().number;
  return negative ? -number : number;
}

Result<AttrValue> parse_attr_value(Scanner& scanner) {
  if (scanner.token().kind == Scanner::Kind::string) return AttrValue(scanner.take().text);
  const auto is_integer = [](double x) { return std::abs(x) < 9e15 && x == std::floor(x); };
  if (!scanner.at("[")) {
    const bool real = scanner.token().text.find_first_of(".eE") != std::string::npos;
    const double number = TRY(parse_signed_number(scanner));
    if (is_integer(number) && !real) return AttrValue(static_cast<std::int64_t>(number));
    return AttrValue(number);
  }
  TRY(scanner.expect("["));
  std::vector<double> numbers;
  while (!scanner.at("]")) {
    if (!numbers.empty()) TRY(scanner.expect(","));
    if (numbers.size() == Pattern::kMostStatements) return scanner.error("too many numbers in a list");
    numbers.push_back(TRY(parse_signed_number(scanner)));
  }
  TRY(scanner.expect("]"));
  if (!std::all_of(numbers.begin(), numbers.end(), is_integer)) return AttrValue(numbers);
  std::vector<std::int64_t> integers;
  for (const double number : numbers) integers.push_back(static_cast<std::int64_t>(number));
  return AttrValue(integers);
}

Pattern::Pattern(const char* text) {
  Scanner scanner(text);
  auto parsed = parse(scanner, "");
  CHECK(parsed.ok(), parsed.ok() ? "" : (std::string(text) + ": " + parsed.error().message).c_str());
  *this = std::move(parsed).value();
}

Result<Pattern::Operand> Pattern::parse_operand(Scanner& scanner) {
  Operand operand;
  if (scanner.take_if("#")) {
    if (scanner.token().kind == Scanner::Kind::word) {
      operand.kind = Operand::any_constant;
      operand.name = scanner.take().text;
    } else {
      operand.kind = Operand::constant;
      operand.number = TRY(parse_signed_number(scanner));
      operand.name = number_text(operand.number);
    }
  } else {
    operand.name = TRY(scanner.word("an operand"));
    if (operand.name == "_") operand.kind = Operand::ignored;
  }
  operand.optional = scanner.take_if("?");
  return operand;
}

Result<Pattern::Form> Pattern::parse_form(Scanner& scanner) {
  Form form;
  const Scanner::Token at = scanner.token();
  form.op = TRY(scanner.word("an operator"));
  if (!is_known_op(form.op)) return scanner.error_at(at, unknown_op(form.op));
  TRY(scanner.expect("("));
  while (!scanner.at(")")) {
    if (!form.operands.empty()) TRY(scanner.expect(","));
    if (form.operands.size() == kMostOperands)
      return scanner.error("more than " + std::to_string(kMostOperands) + " operands");
    form.operands.push_back(TRY(parse_operand(scanner)));
  }
  TRY(scanner.expect(")"));
  if (!scanner.take_if("{")) return form;
  while (!scanner.at("}")) {
    if (!form.attrs.empty()) TRY(scanner.expect(","));
    if (form.attrs.size() == kMostOperands) return scanner.error("too many attributes");
    AttrTest test;
    test.name = TRY(scanner.word("the name of an attribute"));
    TRY(scanner.expect("="));
    if (scanner.take_if("$"))
      test.captured = TRY(scanner.word("a name"));
    else
      test.value = TRY(parse_attr_value(scanner));
    form.attrs.push_back(std::move(test));
  }
  TRY(scanner.expect("}"));
  return form;
}

Result<Pattern> Pattern::parse(Scanner& scanner, std::string_view end) {
  Pattern pattern;
  const auto ended = [&] { return end.empty() ? scanner.at_end() : scanner.at(end); };
  do {
    Statement statement;
    statement.at = scanner.token();
    if (pattern.statements_.size() == kMostStatements)
      return scanner.error("more than " + std::to_string(kMostStatements) + " statements");
    statement.result = TRY(scanner.word("the result of a statement"));
    if (!pattern.by_name_.emplace(statement.result, pattern.statements_.size()).second)
      return scanner.error_at(statement.at, "'" + statement.result + "' has a statement already");
    TRY(scanner.expect("="));
    do {
      if (statement.forms.size() == kMostOperands) return scanner.error("too many forms of a statement");
      statement.forms.push_back(TRY(parse_form(scanner)));
    } while (scanner.take_if("|"));
    pattern.statements_.push_back(std::move(statement));
    scanner.take_if(";");
  } while (!ended());
  if (!end.empty()) TRY(scanner.expect(end));
  TRY(pattern.resolve(scanner));
  TRY(pattern.check(scanner));
  return pattern;
}

// Operands that are results of statements.
Status Pattern::resolve(const Scanner&) {
  for (Statement& statement : statements_)
    for (Form& form : statement.forms)
      for (Operand& operand : form.operands)
        if (const auto found = by_name_.find(operand.name);
            operand.kind == Operand::wildcard && found != by_name_.end()) {
          operand.kind = Operand::statement;
          operand.index = found->second;
        }
  return {};
}

Status Pattern::check(const Scanner& scanner) const {
  std::vector<bool> reached(statements_.size(), false);
  std::vector<std::size_t> open = {0};
  while (!open.empty()) {
    const std::size_t at = open.back();
    open.pop_back();
    if (reached[at]) continue;
    reached[at] = true;
    for (const Form& form : statements_[at].forms)
      for (const Operand& operand : form.operands)
        if (operand.kind == Operand::statement) open.push_back(operand.index);
  }
  for (std::size_t i = 0; i < statements_.size(); ++i)
    if (!reached[i])
      return scanner.error_at(statements_[i].at, "'" + statements_[i].result + "' is nothing that '" +
                                                     root_name() + "' is made of");
  return {};
}

const std::string& Pattern::key_op() const {
  const auto all = all_ops();
  for (const Statement& statement : statements_)
    for (const Form& form : statement.forms)
      if (std::none_of(all.begin(), all.end(), [&](const OpDef* op) {
            return form.op == op->name && (op->has(kCommutative) || op->has(kView));
          }))
        return form.op;
  return statements_[0].forms[0].op;
}

bool Pattern::binds(const std::string& name) const {
  if (by_name_.count(name) != 0) return true;
  for (const Statement& statement : statements_)
    for (const Form& form : statement.forms)
      for (const Operand& operand : form.operands)
        if (operand.kind == Operand::wildcard && operand.name == name) return true;
  return false;
}

bool Pattern::binds_constant(const std::string& name) const {
  for (const Statement& statement : statements_)
    for (const Form& form : statement.forms)
      for (const Operand& operand : form.operands)
        if (operand.kind == Operand::any_constant && operand.name == name) return true;
  return false;
}

bool Pattern::binds_attr(const std::string& name) const {
  for (const Statement& statement : statements_)
    for (const Form& form : statement.forms)
      for (const AttrTest& test : form.attrs)
        if (!test.captured.empty() && test.captured == name) return true;
  return false;
}

// ---- Search ----

bool Pattern::match(const Graph& graph, NodeId root, Match& match, Mismatch* mismatch) const {
  const Node& node = graph.nodes[root];
  const auto& forms = statements_[0].forms;
  if (std::none_of(forms.begin(), forms.end(), [&](const Form& form) { return is_op(node, form.op); }))
    return false;
  Match found;
  found.root = root;
  Search search{graph};
  if (!solve_statement(search, 0, root, {}, found)) {
    if (mismatch != nullptr) *mismatch = std::move(search.furthest);
    return false;
  }
  match = std::move(found);
  return true;
}

bool Pattern::fits_attrs(Search& search, const Form& form, const Node& node, Match& match) {
  for (const AttrTest& test : form.attrs) {
    const auto found = node.attrs.all().find(test.name);
    const bool has = found != node.attrs.all().end();
    if (!test.captured.empty()) {
      const auto known = match.attrs.find(test.captured);
      if (known != match.attrs.end() && !(has && same_value(known->second, found->second))) {
        note(search.furthest, match, "node " + node.name + " has another " + test.name);
        return false;
      }
      if (has) match.attrs[test.captured] = found->second;
    } else if (!has || !same_value(test.value, found->second)) {
      note(search.furthest, match,
           "node " + node.name + " has " +
               (has ? test.name + "=" + to_string(found->second) : "no " + test.name));
      return false;
    }
  }
  return true;
}

bool Pattern::solve_statement(Search& search, std::size_t index, NodeId id, const std::vector<Goal>& goals,
                              Match& match) const {
  const Statement& statement = statements_[index];
  const Node& node = search.graph.nodes[id];
  bool named = false;
  for (const Form& form : statement.forms) {
    if (!is_op(node, form.op)) continue;
    named = true;
    Match attempt = match;
    attempt.values[statement.result] = node.outputs[0];
    if (fits_attrs(search, form, node, attempt) && solve_form(search, form, id, goals, attempt)) {
      match = std::move(attempt);
      return true;
    }
  }
  if (!named) note(search.furthest, match, "node " + node.name + " is not " + statement.forms[0].op);
  return false;
}

bool Pattern::solve_form(Search& search, const Form& form, NodeId id, const std::vector<Goal>& goals,
                         Match& match) const {
  const Node& node = search.graph.nodes[id];
  const std::size_t most = form.operands.size(), given = present_inputs(node);
  if (is_commutative(node) && most >= 2)
    return solve_combined(search, form, (1u << most) - 1, id, goals, match);
  std::size_t least = most;
  while (least > 0 && form.operands[least - 1].optional) --least;
  if (given < least || given > most) {
    note(search.furthest, match, "node " + node.name + " has " + std::to_string(given) + " inputs");
    return false;
  }
  match.nodes.push_back(id);
  std::vector<Goal> next = goals;
  for (std::size_t i = 0; i < given; ++i) next.push_back({&form.operands[i], nullptr, 0, node.inputs[i]});
  return solve(search, std::move(next), match);
}

// The operands in the two inputs of the node, in each way; more than one in an input are what a node of the same
// operator combines there.
bool Pattern::solve_combined(Search& search, const Form& form, std::uint32_t operands, NodeId id,
                             const std::vector<Goal>& goals, Match& match) const {
  const Node& node = search.graph.nodes[id];
  Match with_node = match;
  with_node.nodes.push_back(id);
  const auto goal_of = [&](std::uint32_t part, ValueId value) {
    if (std::popcount(part) > 1) return Goal{nullptr, &form, part, value};
    return Goal{&form.operands[static_cast<std::size_t>(std::countr_zero(part))], nullptr, 0, value};
  };
  for (std::uint32_t first = 1; first < operands; ++first) {
    if ((first & operands) != first) continue;
    std::vector<Goal> next = goals;
    next.push_back(goal_of(first, node.inputs[0]));
    next.push_back(goal_of(operands & ~first, node.inputs[1]));
    Match attempt = with_node;
    if (solve(search, std::move(next), attempt)) {
      match = std::move(attempt);
      return true;
    }
    if (search.steps >= kMostSteps) return false;
  }
  return false;
}

// Operands that are no statement.
bool Pattern::solve_operand(Search& search, const Goal& goal, Match& match) const {
  const Operand& operand = *goal.operand;
  const Value& value = search.graph.values[goal.value];
  const auto fail = [&](const std::string& reason) {
    note(search.furthest, match, reason);
    return false;
  };
  if (operand.kind == Operand::wildcard) {
    const auto [at, is_new] = match.values.emplace(operand.name, goal.value);
    if (!is_new && at->second != goal.value)
      return fail("value " + value.name + " is not " + search.graph.values[at->second].name);
  } else if (operand.kind != Operand::ignored) {
    double number = 0;
    if (!scalar_constant(search.graph, goal.value, &number))
      return fail("value " + value.name + " is not a scalar constant");
    if (operand.kind == Operand::constant)
      return close_enough(number, operand.number, value.type.dtype) ||
             fail("constant " + value.name + " is not " + operand.name);
    const auto [at, is_new] = match.constants.emplace(operand.name, number);
    if (!is_new && !close_enough(number, at->second, value.type.dtype))
      return fail("constant " + value.name + " is not #" + operand.name);
  }
  return true;
}

bool Pattern::solve(Search& search, std::vector<Goal> goals, Match& match) const {
  const Graph& graph = search.graph;
  while (!goals.empty()) {
    if (++search.steps >= kMostSteps) {
      note(search.furthest, match, "too many ways to match");
      return false;
    }
    const Goal goal = goals.back();
    goals.pop_back();
    const auto fail = [&](const std::string& reason) {
      note(search.furthest, match, reason);
      return false;
    };
    if (goal.value == kNone) return fail("an input is omitted");
    const Value& value = graph.values[goal.value];
    const bool made = value.producer != kNone && value.output_index == 0;
    if (goal.operand == nullptr) {
      if (!made || !is_op(graph.nodes[value.producer], goal.form->op) ||
          !is_commutative(graph.nodes[value.producer]))
        return fail("value " + value.name + " is not the result of " + goal.form->op);
      return solve_combined(search, *goal.form, goal.operands, value.producer, goals, match);
    }
    if (goal.operand->kind != Operand::statement) {
      if (!solve_operand(search, goal, match)) return false;
      continue;
    }
    const Statement& statement = statements_[goal.operand->index];
    const auto bound = match.values.find(statement.result);
    if (bound == match.values.end()) {
      if (!made) return fail("value " + value.name + " is not the result of " + statement.forms[0].op);
      return solve_statement(search, goal.operand->index, value.producer, goals, match);
    }
    if (bound->second != goal.value)
      return fail("value " + value.name + " is not " + graph.values[bound->second].name);
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

bool leads_to(const Rewriter& rw, NodeId from, NodeId to) {
  std::vector<bool> seen(rw.graph().nodes.size(), false);
  std::vector<NodeId> stack{from};
  while (!stack.empty()) {
    const NodeId id = stack.back();
    stack.pop_back();
    for (const ValueId out : rw.graph().nodes[id].outputs) {
      if (out == kNone) continue;
      for (const Use& use : rw.uses(out)) {
        if (use.node == to) return true;
        if (!seen[use.node]) stack.push_back(use.node);
        seen[use.node] = true;
      }
    }
  }
  return false;
}

bool is_power_of_two(double c) {
  int exponent = 0;
  return std::abs(std::frexp(c, &exponent)) == 0.5;
}

}  // namespace gradloom
