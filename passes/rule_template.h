// The right side of a rule (rules.h): statements that are built for a match, and conditions and constants that are
// computed from it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "passes/pattern.h"

namespace gradloom {

// Numbers, constants of the match and functions of its values.
class RuleExpression {
 public:
  // Errors: syntax, names that the pattern does not bind, kMostDepth.
  static Result<RuleExpression> parse(Scanner& scanner, const Pattern& pattern);
  double value(const Rewriter& rw, const Match& match) const;  // NaN where a dim does not exist or is unknown
  static constexpr int kMostDepth = 32;

 private:
  static Result<RuleExpression> parse_sum(Scanner& scanner, const Pattern& pattern, int depth);
  static Result<RuleExpression> parse_product(Scanner& scanner, const Pattern& pattern, int depth);
  static Result<RuleExpression> parse_factor(Scanner& scanner, const Pattern& pattern, int depth);
  static Result<RuleExpression> parse_call(Scanner& scanner, const Pattern& pattern, int depth);
  double call(const Rewriter& rw, const Match& match) const;
  std::string what;  // "" number, "#" constant, "+", .., or a function
  double number = 0;
  std::vector<std::string> values;  // of the match, operands of a function
  std::vector<RuleExpression> operands;
};

class RuleCondition {
 public:
  static Result<RuleCondition> parse(Scanner& scanner, const Pattern& pattern);
  bool holds(const Rewriter& rw, const Match& match) const;

 private:
  struct Comparison {
    RuleExpression left;
    std::string sign;  // "": left is not 0
    std::optional<RuleExpression> right;
  };
  std::vector<Comparison> any_of_;
};

class RuleTemplate {
 public:
  using Values = std::map<std::string, ValueId>;  // by their names in the rule

  // Until `}`, `gradient` or `where`, which is not taken.
  static Result<RuleTemplate> parse(Scanner& scanner, const Pattern& pattern);
  // The gradients that a rule gives: `dx = ..` for values x that the replacement reads, made of them, of the replacement's
  // values and of the gradient `dy` of the result y.
  static Result<RuleTemplate> parse_gradient(Scanner& scanner, const Pattern& pattern,
                                             const RuleTemplate& replacement);
  // All that is made, in a graph that has `values` for those that are read; they are there too. Constants take the
  // type of the first operand beside them, else of the result. Errors: what the operators' inference says.
  Result<Values> build(GraphBuilder& b, const Rewriter& rw, const Match& match, Values values) const;
  // The names of what is made: the result of the pattern, or gradients.
  const std::vector<std::string>& results() const { return results_; }
  // The name of the matched value that is all there is; empty: there are statements.
  const std::string& existing() const { return existing_; }
  std::vector<std::string> used() const;  // values of the match that it reads

 private:
  struct Operand {
    std::string name;  // of a value; empty: a constant
    std::optional<RuleExpression> scalar;
    std::vector<std::int64_t> list;
  };
  struct Attribute {
    std::string name, captured;
    AttrValue value{};
  };
  struct Statement {
    std::string result, op;
    std::vector<Operand> operands;
    std::vector<Attribute> attrs;
  };
  static Result<Operand> parse_operand(Scanner& scanner, const Pattern& pattern);
  Result<Statement> parse_statement(Scanner& scanner, const Pattern& pattern);
  static bool ended(const Scanner& scanner);
  Status check_operands(const Scanner& scanner, const Scanner::Token& at,
                        const std::function<bool(const std::string&)>& known) const;
  Status order(const Scanner& scanner, const Scanner::Token& at);
  bool makes(const std::string& name) const;
  Result<ValueId> build_statement(GraphBuilder& b, const Rewriter& rw, const Match& match,
                                  const Statement& statement, std::map<std::string, ValueId>& values) const;
  std::vector<Statement> statements_;  // operands before what reads them
  std::vector<std::string> results_;
  std::string existing_;
};

}  // namespace gradloom
