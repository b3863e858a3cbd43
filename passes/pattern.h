// Patterns are small graphs with wildcards, written as text, and one matcher; passes and rule files (rules.h) share
// both.
//   "y = Mul(x, s, #0.5); s = Add(e, #1); e = Erf(d); d = Div(x, #1.4142135623730951) | Mul(x, #0.7071067811865476)"
// A statement is `result = Op(operand, ...)`, or several forms of it between `|`; the first statement is the root. An
// operand is the result of another statement, a wildcard for any value (the same name is the same value), `_` for a
// value of no interest, `#0.5` for a scalar constant of that value (within 1e-6 relative, 1e-12 for a constant stored
// in f64), or `#name` for any scalar constant; with `?` behind it the node may do without. Operators whose rows say that
// they commute match in either order, and with more than two operands in every way in which nodes of that operator
// combine them. `{axis=-1, perm=$p}` behind the operands: the attribute has that value; it may have any, which is known
// as $p afterwards.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/rewriter.h"
#include "passes/scanner.h"

namespace gradloom {

struct Match {
  NodeId root = kNone;
  std::vector<NodeId> nodes;                 // all nodes of the pattern, root first
  std::map<std::string, ValueId> values;     // wildcards and results of statements, by name
  std::map<std::string, double> constants;   // values of `#name` operands
  std::map<std::string, AttrValue> attrs{};  // of `$name`; none: the node does not have the attribute
  ValueId value(const std::string& name) const { return values.at(name); }
};

// The attempt that got furthest before a clause failed.
struct Mismatch {
  std::vector<NodeId> nodes;  // matched until then, root first
  std::string why;
};

class Pattern {
 public:
  explicit Pattern(const char* text);  // CHECKs its own syntax: patterns are our code
  // Statements until `end`, which is taken. Errors (Errc::usage, with line and column): syntax, unknown operators and
  // numbers of operands that none has, statements that the root does not lead to, more than kMostStatements.
  static Result<Pattern> parse(Scanner& scanner, std::string_view end);
  static constexpr std::size_t kMostStatements = 64, kMostOperands = 16;

  // A match rooted at `root`. `mismatch` (optional) tells why not, when the root operator did match.
  bool match(const Graph& graph, NodeId root, Match& match, Mismatch* mismatch = nullptr) const;
  const std::string& root_name() const { return statements_[0].result; }
  bool binds(const std::string& name) const;           // a value: wildcard or result
  bool binds_constant(const std::string& name) const;  // `#name`
  bool binds_attr(const std::string& name) const;      // `$name`
  // The operator that makes a near miss worth telling: the first that is no sum or product of two, else the root's.
  const std::string& key_op() const;

 private:
  struct Operand {
    enum Kind { wildcard, ignored, statement, constant, any_constant } kind = wildcard;
    std::string name;
    double number = 0;
    std::size_t index = 0;  // of the statement
    bool optional = false;
  };
  struct AttrTest {
    std::string name, captured;  // captured: as $captured
    AttrValue value{};
  };
  struct Form {
    std::string op;
    std::vector<Operand> operands;
    std::vector<AttrTest> attrs;
  };
  struct Statement {
    std::string result;
    std::vector<Form> forms;
    Scanner::Token at{};
  };
  // An operand that `value` is to be, or operands of a commutative form that it is to combine.
  struct Goal {
    const Operand* operand = nullptr;
    const Form* form = nullptr;
    std::uint32_t operands = 0;  // of the form, as bits
    ValueId value = kNone;
  };
  // What one attempt at a match has cost; it is given up at kMostSteps.
  struct Search {
    const Graph& graph;
    Mismatch furthest{};
    int steps = 0;
  };
  Pattern() = default;
  static Result<Operand> parse_operand(Scanner& scanner);
  static Result<Form> parse_form(Scanner& scanner);
  Status resolve(const Scanner& scanner);
  Status check(const Scanner& scanner) const;
  bool solve(Search& search, std::vector<Goal> goals, Match& match) const;
  bool solve_operand(Search& search, const Goal& goal, Match& match) const;
  bool solve_statement(Search& search, std::size_t index, NodeId node, const std::vector<Goal>& goals,
                       Match& match) const;
  bool solve_form(Search& search, const Form& form, NodeId node, const std::vector<Goal>& goals,
                  Match& match) const;
  bool solve_combined(Search& search, const Form& form, std::uint32_t operands, NodeId node,
                      const std::vector<Goal>& goals, Match& match) const;
  static bool fits_attrs(Search& search, const Form& form, const Node& node, Match& match);
  std::vector<Statement> statements_;
  std::map<std::string, std::size_t> by_name_;
};

// `-1`, `0.5`, `"text"`, `[0, 2, 1]`: the value of an attribute.
Result<AttrValue> parse_attr_value(Scanner& scanner);
Result<double> parse_signed_number(Scanner& scanner);
// Some operator of ONNX's own domain or ours has this name.
bool is_known_op(const std::string& name);
std::string unknown_op(const std::string& name);

bool is_commutative(const Node& node);
// True if every result of the match except the root's is used only inside it;
// else `why` names the value used elsewhere.
bool only_used_inside(const Rewriter& rw, const Match& match, std::string* why);
// "... is also read by node X" for the first use outside of `inside`; empty when there is none.
std::string used_elsewhere(const Rewriter& rw, ValueId value, const std::vector<NodeId>& inside);

// True when a result of `from` leads to `to`.
bool leads_to(const Rewriter& rw, NodeId from, NodeId to);

bool is_power_of_two(double c);  // c or -c is

}  // namespace gradloom
