#include "passes/rule_template.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/onnx/read/attribute_ranges.h"

namespace gradloom {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16,    DType::bf16,
                            DType::i32, DType::i64, DType::boolean};

struct Function {
  const char* name;
  std::size_t values;   // of the match
  std::size_t numbers;  // after them
};
constexpr Function kFunctions[] = {{"rank", 1, 0},  {"dim", 1, 1},  {"size", 1, 0}, {"uses", 1, 0},
                                   {"dtype", 1, 0}, {"same", 2, 0}, {"pow2", 0, 1}};

std::optional<double> dtype_number(const std::string& name) {
  for (const DType type : kTypes)
    if (name == dtype_name(type)) return static_cast<double>(type);
  return std::nullopt;
}

// The newest row of ONNX's own domain or ours.
const OpDef* row_of(const std::string& name) {
  const OpDef* newest = nullptr;
  for (const OpDef* op : all_ops()) {
    const std::string_view domain = op->domain;
    if (name == op->name && (domain.empty() || domain == "gradloom") &&
        (newest == nullptr || op->since > newest->since))
      newest = op;
  }
  return newest;
}

// Rows rely on the types and ranges of attributes that import checks. Their samples tell which an operator has; empty:
// this may be one.
std::string attribute_problem(const OpDef& op, const std::string& name, const AttrValue& value) {
  std::set<std::string> known;
  bool right_type = false;
  for (const Sample& sample : op.samples == nullptr ? std::vector<Sample>() : op.samples())
    for (const auto& [attribute, example] : sample.attrs.all()) {
      known.insert(attribute);
      const bool real =
          std::holds_alternative<double>(example) && std::holds_alternative<std::int64_t>(value);
      right_type = right_type || (attribute == name && (real || example.index() == value.index()));
    }
  if (known.count(name) == 0) {
    std::string names;
    for (const std::string& attribute : known) names += (names.empty() ? "" : ", ") + attribute;
    return std::string(op.name) + " takes no attribute '" + escaped(name) + "' here (" +
           (names.empty() ? "none" : names) + ")";
  }
  if (!right_type) return "attribute '" + name + "' of " + op.name + " is of another type";
  return attribute_out_of_range(op.name, name, value);
}

// Every node of the operator has attributes: it means nothing without.
bool needs_attributes(const OpDef& op) {
  const std::vector<Sample> samples = op.samples == nullptr ? std::vector<Sample>() : op.samples();
  return std::string_view(op.domain) == "gradloom" &&
         std::all_of(samples.begin(), samples.end(), [](const Sample& s) { return !s.attrs.all().empty(); });
}

}  // namespace

// ---- Expressions ----

Result<RuleExpression> RuleExpression::parse(Scanner& scanner, const Pattern& pattern) {
  return parse_sum(scanner, pattern, 0);
}

Result<RuleExpression> RuleExpression::parse_sum(Scanner& scanner, const Pattern& pattern, int depth) {
  RuleExpression left = TRY(parse_product(scanner, pattern, depth));
  for (std::size_t terms = 1; scanner.at("+") || scanner.at("-"); ++terms) {
    if (terms == Pattern::kMostStatements) return scanner.error("too many terms");
    RuleExpression sum;
    sum.what = scanner.take().text;
    RuleExpression right = TRY(parse_product(scanner, pattern, depth));
    sum.operands.push_back(std::move(left));
    sum.operands.push_back(std::move(right));
    left = std::move(sum);
  }
  return left;
}

Result<RuleExpression> RuleExpression::parse_product(Scanner& scanner, const Pattern& pattern, int depth) {
  RuleExpression left = TRY(parse_factor(scanner, pattern, depth));
  for (std::size_t factors = 1; scanner.at("*") || scanner.at("/") || scanner.at("%"); ++factors) {
    if (factors == Pattern::kMostStatements) return scanner.error("too many factors");
    RuleExpression product;
    product.what = scanner.take().text;
    RuleExpression right = TRY(parse_factor(scanner, pattern, depth));
    product.operands.push_back(std::move(left));
    product.operands.push_back(std::move(right));
    left = std::move(product);
  }
  return left;
}

Result<RuleExpression> RuleExpression::parse_factor(Scanner& scanner, const Pattern& pattern, int depth) {
  if (depth == kMostDepth) return scanner.error("an expression is deeper than " + std::to_string(kMostDepth));
  RuleExpression e;
  if (scanner.take_if("(")) {
    e = TRY(parse_sum(scanner, pattern, depth + 1));
    TRY(scanner.expect(")"));
    return e;
  }
  if (scanner.take_if("-")) {
    e.what = "-";
    e.operands.emplace_back();
    e.operands.push_back(TRY(parse_factor(scanner, pattern, depth + 1)));
    return e;
  }
  if (scanner.token().kind == Scanner::Kind::number) {
    e.number = scanner.take().number;
    return e;
  }
  return parse_call(scanner, pattern, depth);
}

// A function, a dtype or a constant of the match.
Result<RuleExpression> RuleExpression::parse_call(Scanner& scanner, const Pattern& pattern, int depth) {
  scanner.take_if("#");
  const Scanner::Token at = scanner.token();
  RuleExpression e;
  e.what = TRY(scanner.word("a number, a constant or a function"));
  if (const auto type = dtype_number(e.what); type && !pattern.binds_constant(e.what)) {
    e.what.clear();
    e.number = *type;
    return e;
  }
  if (!scanner.at("(")) {
    if (!pattern.binds_constant(e.what))
      return scanner.error_at(at, "'" + e.what + "' is no constant of the pattern (#" + e.what + ")");
    e.values = {e.what};
    e.what = "#";
    return e;
  }
  const auto function = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                     [&](const Function& f) { return e.what == f.name; });
  if (function == std::end(kFunctions)) {
    std::vector<std::string> names;
    for (const Function& f : kFunctions) names.emplace_back(f.name);
    return scanner.error_at(at, unknown_name("function", e.what, names));
  }
  TRY(scanner.expect("("));
  for (std::size_t i = 0; i < function->values + function->numbers; ++i) {
    if (i > 0) TRY(scanner.expect(","));
    if (i >= function->values) {
      e.operands.push_back(TRY(parse_sum(scanner, pattern, depth + 1)));
      continue;
    }
    const Scanner::Token name = scanner.token();
    e.values.push_back(TRY(scanner.word("a value of the pattern")));
    if (!pattern.binds(e.values.back()))
      return scanner.error_at(name, "'" + e.values.back() + "' is no value of the pattern");
  }
  TRY(scanner.expect(")"));
  return e;
}

double RuleExpression::value(const Rewriter& rw, const Match& match) const {
  if (what.empty()) return number;
  if (what == "#") {
    const auto found = match.constants.find(values[0]);
    return found == match.constants.end() ? kNaN : found->second;
  }
  if (what.size() > 1) return call(rw, match);
  const double a = operands[0].value(rw, match), b = operands[1].value(rw, match);
  switch (what[0]) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return a / b;
    default: return std::fmod(a, b);
  }
}

double RuleExpression::call(const Rewriter& rw, const Match& match) const {
  if (what == "pow2") return is_power_of_two(operands[0].value(rw, match)) ? 1 : 0;
  // A form that was not the one that matched leaves values of its own unbound.
  const auto found = match.values.find(values[0]);
  if (found == match.values.end()) return kNaN;
  const Type& type = rw.graph().type(found->second);
  const auto rank = static_cast<double>(type.shape.size());
  if (what == "rank") return rank;
  if (what == "uses") return static_cast<double>(rw.use_count(found->second));
  if (what == "dtype") return static_cast<double>(type.dtype);
  if (what == "same") {
    const auto other = match.values.find(values[1]);
    return other != match.values.end() && type == rw.graph().type(other->second) ? 1 : 0;
  }
  if (what == "size") return is_static(type.shape) ? static_cast<double>(element_count(type.shape)) : kNaN;
  double axis = operands[0].value(rw, match);
  if (axis < 0) axis += rank;
  if (!(axis >= 0 && axis < rank) || axis != std::floor(axis)) return kNaN;
  const std::int64_t dim = type.shape[static_cast<std::size_t>(axis)];
  return dim < 0 ? kNaN : static_cast<double>(dim);
}

// ---- Conditions ----

Result<RuleCondition> RuleCondition::parse(Scanner& scanner, const Pattern& pattern) {
  RuleCondition condition;
  do {
    if (condition.any_of_.size() == Pattern::kMostStatements) return scanner.error("too many comparisons");
    Comparison c{TRY(RuleExpression::parse(scanner, pattern)), "", std::nullopt};
    for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"})
      if (c.sign.empty() && scanner.take_if(sign)) c.sign = sign;
    if (!c.sign.empty()) c.right = TRY(RuleExpression::parse(scanner, pattern));
    condition.any_of_.push_back(std::move(c));
  } while (scanner.take_if("|"));
  return condition;
}

bool RuleCondition::holds(const Rewriter& rw, const Match& match) const {
  return std::any_of(any_of_.begin(), any_of_.end(), [&](const Comparison& c) {
    const double a = c.left.value(rw, match), b = c.right ? c.right->value(rw, match) : 0;
    if (std::isnan(a) || std::isnan(b)) return false;
    if (c.sign == "==") return a == b;
    if (c.sign == "<=") return a <= b;
    if (c.sign == ">=") return a >= b;
    if (c.sign == "<") return a < b;
    if (c.sign == ">") return a > b;
    return a != b;
  });
}

// ---- What is built ----

Result<RuleTemplate::Operand> RuleTemplate::parse_operand(Scanner& scanner, const Pattern& pattern) {
  Operand operand;
  if (scanner.at("[")) {
    const Scanner::Token at = scanner.token();
    const AttrValue list = TRY(parse_attr_value(scanner));
    const auto* integers = std::get_if<std::vector<std::int64_t>>(&list);
    if (integers == nullptr) return scanner.error_at(at, "expected integers");
    operand.list = *integers;
  } else if (scanner.take_if("#")) {
    operand.scalar = TRY(RuleExpression::parse(scanner, pattern));
  } else {
    operand.name = TRY(scanner.word("an operand"));
  }
  return operand;
}

Result<RuleTemplate::Statement> RuleTemplate::parse_statement(Scanner& scanner, const Pattern& pattern) {
  Statement s;
  TRY(scanner.expect("="));
  const Scanner::Token at = scanner.token();
  s.op = TRY(scanner.word("an operator"));
  if (!is_known_op(s.op)) return scanner.error_at(at, unknown_op(s.op));
  if (needs_attributes(*row_of(s.op)) || row_of(s.op)->has(kMustAlias))
    return scanner.error_at(at, s.op + " is made by passes and training alone");
  TRY(scanner.expect("("));
  while (!scanner.at(")")) {
    if (!s.operands.empty()) TRY(scanner.expect(","));
    if (s.operands.size() == Pattern::kMostOperands) return scanner.error("too many operands");
    s.operands.push_back(TRY(parse_operand(scanner, pattern)));
  }
  TRY(scanner.expect(")"));
  const OpDef& op = *row_of(s.op);
  const auto given = static_cast<int>(s.operands.size());
  if (given < op.min_inputs || given > op.max_inputs)
    return scanner.error_at(
        at, s.op + " takes " + std::to_string(op.min_inputs) +
                (op.max_inputs == op.min_inputs ? "" : " to " + std::to_string(op.max_inputs)) +
                " inputs, not " + std::to_string(given));
  if (!scanner.take_if("{")) return s;
  while (!scanner.at("}")) {
    if (!s.attrs.empty()) TRY(scanner.expect(","));
    if (s.attrs.size() == Pattern::kMostOperands) return scanner.error("too many attributes");
    Attribute attribute;
    attribute.name = TRY(scanner.word("the name of an attribute"));
    TRY(scanner.expect("="));
    if (scanner.take_if("$")) {
      const Scanner::Token name = scanner.token();
      attribute.captured = TRY(scanner.word("a name"));
      if (!pattern.binds_attr(attribute.captured))
        return scanner.error_at(name, "'$" + attribute.captured + "' is no attribute of the pattern");
    } else {
      const Scanner::Token value = scanner.token();
      attribute.value = TRY(parse_attr_value(scanner));
      if (const std::string why = attribute_problem(op, attribute.name, attribute.value); !why.empty())
        return scanner.error_at(value, why);
    }
    s.attrs.push_back(std::move(attribute));
  }
  TRY(scanner.expect("}"));
  return s;
}

bool RuleTemplate::ended(const Scanner& scanner) {
  const auto word = [&](const char* text) {
    return scanner.token().kind == Scanner::Kind::word && scanner.token().text == text;
  };
  return scanner.at("}") || scanner.at_end() || word("where") || word("gradient");
}

bool RuleTemplate::makes(const std::string& name) const {
  return std::any_of(statements_.begin(), statements_.end(),
                     [&](const Statement& s) { return s.result == name; });
}

Result<RuleTemplate> RuleTemplate::parse(Scanner& scanner, const Pattern& pattern) {
  RuleTemplate made;
  made.results_ = {pattern.root_name()};
  const Scanner::Token start = scanner.token();
  while (!ended(scanner)) {
    const Scanner::Token at = scanner.token();
    if (made.statements_.size() == Pattern::kMostStatements)
      return scanner.error("more than " + std::to_string(Pattern::kMostStatements) + " statements");
    const std::string name = TRY(scanner.word("a statement or a value of the pattern"));
    if (made.statements_.empty() && ended(scanner)) {
      if (!pattern.binds(name) || name == pattern.root_name())
        return scanner.error_at(at, "'" + name + "' is no value that the pattern is made of");
      made.existing_ = name;
      return made;
    }
    if (made.statements_.empty() != (name == pattern.root_name()))
      return scanner.error_at(at, made.statements_.empty()
                                      ? "the first statement gives '" + pattern.root_name() + "'"
                                      : "'" + name + "' is the result, which stands first");
    if (made.makes(name)) return scanner.error_at(at, "'" + name + "' has a statement already");
    Statement statement = TRY(made.parse_statement(scanner, pattern));
    statement.result = name;
    for (const Operand& operand : statement.operands)
      if (operand.name == pattern.root_name())
        return scanner.error_at(at, "'" + operand.name + "' is what is replaced");
    made.statements_.push_back(std::move(statement));
    scanner.take_if(";");
  }
  if (made.statements_.empty()) return scanner.error("expected what takes the pattern's place");
  TRY(made.check_operands(scanner, start, [&](const std::string& name) { return pattern.binds(name); }));
  TRY(made.order(scanner, start));
  return made;
}

Result<RuleTemplate> RuleTemplate::parse_gradient(Scanner& scanner, const Pattern& pattern,
                                                  const RuleTemplate& replacement) {
  RuleTemplate made;
  const std::string of_result = "d" + pattern.root_name();
  const std::vector<std::string> read = replacement.used();
  const auto known = [&](const std::string& name) {
    return name == of_result || name == pattern.root_name() || replacement.makes(name) ||
           std::find(read.begin(), read.end(), name) != read.end();
  };
  const Scanner::Token start = scanner.token();
  while (!ended(scanner)) {
    const Scanner::Token at = scanner.token();
    if (made.statements_.size() == Pattern::kMostStatements)
      return scanner.error("more than " + std::to_string(Pattern::kMostStatements) + " statements");
    const std::string name = TRY(scanner.word("a statement"));
    if (known(name) || pattern.binds(name) || made.makes(name))
      return scanner.error_at(at, "'" + name + "' is there already");
    Statement statement = TRY(made.parse_statement(scanner, pattern));
    statement.result = name;
    made.statements_.push_back(std::move(statement));
    if (std::any_of(read.begin(), read.end(), [&](const std::string& x) { return name == "d" + x; }))
      made.results_.push_back(name);
    scanner.take_if(";");
  }
  if (made.results_.empty()) {
    std::string names;
    for (const std::string& x : read) names += (names.empty() ? "'d" : ", 'd") + x + "'";
    return scanner.error_at(start,
                            "no gradient of a value that the replacement reads is given (" + names + ")");
  }
  TRY(made.check_operands(scanner, start, known));
  TRY(made.order(scanner, start));
  return made;
}

// Every operand is `known` or has a statement.
Status RuleTemplate::check_operands(const Scanner& scanner, const Scanner::Token& at,
                                    const std::function<bool(const std::string&)>& known) const {
  for (const Statement& s : statements_)
    for (const Operand& operand : s.operands)
      if (!operand.name.empty() && !makes(operand.name) && !known(operand.name))
        return scanner.error_at(at, "'" + operand.name + "' is no value of the rule");
  return {};
}

// Operands first. A cycle, and what no result needs, are errors.
Status RuleTemplate::order(const Scanner& scanner, const Scanner::Token& at) {
  std::vector<Statement> ordered, left = std::move(statements_);
  while (!left.empty()) {
    const auto ready = std::find_if(left.begin(), left.end(), [&](const Statement& s) {
      return std::none_of(s.operands.begin(), s.operands.end(), [&](const Operand& operand) {
        return !operand.name.empty() && std::any_of(left.begin(), left.end(), [&](const Statement& o) {
          return o.result == operand.name;
        });
      });
    });
    if (ready == left.end()) return scanner.error_at(at, "'" + left[0].result + "' is made of itself");
    ordered.push_back(std::move(*ready));
    left.erase(ready);
  }
  statements_ = std::move(ordered);
  for (const Statement& made : statements_) {
    const bool read = std::any_of(statements_.begin(), statements_.end(), [&](const Statement& s) {
      return std::any_of(s.operands.begin(), s.operands.end(),
                         [&](const Operand& o) { return o.name == made.result; });
    });
    if (!read && std::find(results_.begin(), results_.end(), made.result) == results_.end())
      return scanner.error_at(at, "'" + made.result + "' is nothing that the result is made of");
  }
  return {};
}

std::vector<std::string> RuleTemplate::used() const {
  if (!existing_.empty()) return {existing_};
  std::set<std::string> names, own;
  for (const Statement& s : statements_) own.insert(s.result);
  for (const Statement& s : statements_)
    for (const Operand& operand : s.operands)
      if (!operand.name.empty() && own.count(operand.name) == 0) names.insert(operand.name);
  return {names.begin(), names.end()};
}

Result<ValueId> RuleTemplate::build_statement(GraphBuilder& b, const Rewriter& rw, const Match& match,
                                              const Statement& statement,
                                              std::map<std::string, ValueId>& values) const {
  // Constants have the type of the operands beside them, of Where that of its choices.
  DType type = rw.graph().type(rw.graph().nodes[match.root].outputs[0]).dtype;
  for (const Operand& operand : statement.operands)
    if (!operand.name.empty() && b.type(values.at(operand.name)).dtype != DType::boolean) {
      type = b.type(values.at(operand.name)).dtype;
      break;
    }
  std::vector<ValueId> inputs;
  for (const Operand& operand : statement.operands) {
    if (!operand.name.empty()) {
      inputs.push_back(values.at(operand.name));
    } else if (operand.scalar) {
      const double number = operand.scalar->value(rw, match);
      if (!std::isfinite(number)) return Error{Errc::usage, "a constant is " + number_text(number)};
      inputs.push_back(b.scalar(type, number));
    } else {
      inputs.push_back(b.i64s(operand.list));
    }
  }
  const OpDef& op = *row_of(statement.op);
  Attrs attrs;
  for (const Attribute& attribute : statement.attrs) {
    if (attribute.captured.empty()) attrs.set(attribute.name, attribute.value);
    const auto found = match.attrs.find(attribute.captured);
    if (found == match.attrs.end()) continue;
    if (const std::string why = attribute_problem(op, attribute.name, found->second); !why.empty())
      return Error{Errc::usage, why};
    attrs.set(attribute.name, found->second);
  }
  return TRY(b.add(op, inputs, attrs))[0];
}

Result<RuleTemplate::Values> RuleTemplate::build(GraphBuilder& b, const Rewriter& rw, const Match& match,
                                                 Values values) const {
  if (!existing_.empty()) values[results_[0]] = values.at(existing_);
  for (const Statement& statement : statements_)
    values[statement.result] = TRY(build_statement(b, rw, match, statement, values));
  return values;
}

}  // namespace gradloom
