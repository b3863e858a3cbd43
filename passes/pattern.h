// Patterns are small graphs with wildcards, written as text, and one matcher.
//   "y = Mul(#0.5, h); h = Mul(x, s); s = Add(e, #1); e = Erf(d); d = Div(x, #1.4142135623730951)"
// A statement is `result = Op(operand, ...)`; the first one is the root. An operand is the result of another
// statement, a wildcard for any value (the same name is the same value), `_` for a value of no interest,
// `#0.5` for a scalar constant of that value (within 1e-6 relative, 1e-12 for a constant stored in f64), or
// `#name` for any scalar constant. Commutative operators match in either order.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/rewriter.h"

namespace gradloom {

struct Match {
  NodeId root = kNone;
  std::vector<NodeId> nodes;                // all nodes of the pattern, root first
  std::map<std::string, ValueId> values;    // wildcards and results of statements, by name
  std::map<std::string, double> constants;  // values of `#name` operands
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
  // A match rooted at `root`. `mismatch` (optional) tells why not, when the root operator did match.
  bool match(const Graph& graph, NodeId root, Match& match, Mismatch* mismatch = nullptr) const;
  const std::string& root_op() const { return statements_[0].op; }

 private:
  struct Operand {
    enum Kind { wildcard, ignored, statement, constant, any_constant } kind;
    std::string name;
    double number = 0;
    std::size_t index = 0;  // of the statement
  };
  struct Statement {
    std::string result, op;
    std::vector<Operand> operands;
  };
  struct Goal {
    const Operand* operand;
    ValueId value;
  };
  Operand parse_operand(const std::string& text) const;
  bool solve(const Graph& graph, std::vector<Goal> goals, Match& match, Mismatch& mismatch) const;
  bool solve_statement(const Graph& graph, std::size_t index, NodeId node, const std::vector<Goal>& goals,
                       Match& match, Mismatch& mismatch) const;
  std::vector<Statement> statements_;
  std::map<std::string, std::size_t> by_name_;
};

// A live node of this operator of ONNX's own domain or ours.
bool is_op(const Node& node, std::string_view name);
bool is_commutative(const Node& node);
// True if every result of the match except the root's is used only inside it;
// else `why` names the value used elsewhere.
bool only_used_inside(const Rewriter& rw, const Match& match, std::string* why);
// "... is also read by node X" for the first use outside of `inside`; empty when there is none.
std::string used_elsewhere(const Rewriter& rw, ValueId value, const std::vector<NodeId>& inside);

}  // namespace gradloom
