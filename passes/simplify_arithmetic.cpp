// simplify-arithmetic: two elementwise nodes that are one.
//   x * (1 / y)            -> x / y            one rounding less; y has the result's shape, else fewer elements are divided as it is
//   Where(Not(c), a, b)    -> Where(c, b, a)
#include <string>

#include "passes/pass.h"
#include "passes/pattern.h"

namespace gradloom {
namespace {

constexpr const char *kQuotient = "div-mul", *kChoice = "where-not";

class SimplifyArithmetic final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    for (const NodeId id : TRY(topological_order(rw.graph()))) {
      if (!rw.graph().nodes[id].alive()) continue;
      divide(rw, id);
      if (rw.graph().nodes[id].alive()) choose(rw, id);
    }
    return {};
  }

 private:
  static void divide(Rewriter& rw, NodeId id) {
    static const Pattern pattern("z = Mul(x, r); r = Reciprocal(y) | Div(#1, y)");
    const Graph& graph = rw.graph();
    Match match;
    if (!pattern.match(graph, id, match)) return;
    const ValueId x = match.value("x"), y = match.value("y"), z = match.value("z");
    if (x == match.value("r")) return;  // its square: the reciprocal stays
    std::string why;
    if (!is_float(graph.type(z).dtype)) return;  // of integers it is another number
    if (graph.type(y).shape != graph.type(z).shape)
      why = graph.values[y].name + " is broadcast: fewer elements are divided as it is";
    else
      only_used_inside(rw, match, &why);
    if (!why.empty()) return rw.reject(kQuotient, id, why);
    if (!rw.allowed(kQuotient, id, match.nodes)) return;
    GraphBuilder& b = rw.begin(kQuotient, id, match.nodes);
    rw.replace(z, b.op("Div", {x, y}));
    rw.commit();
  }

  static void choose(Rewriter& rw, NodeId id) {
    static const Pattern pattern("z = Where(n, a, b); n = Not(c)");
    Match match;
    if (!pattern.match(rw.graph(), id, match)) return;
    std::string why;
    if (!only_used_inside(rw, match, &why)) return rw.reject(kChoice, id, why);
    if (!rw.allowed(kChoice, id, match.nodes)) return;
    GraphBuilder& b = rw.begin(kChoice, id, match.nodes);
    rw.replace(match.value("z"), b.op("Where", {match.value("c"), match.value("b"), match.value("a")}));
    rw.commit();
  }
};

Result<PassExample> example() {
  const Type type{DType::f32, {3, 4}};
  PassExample e;
  for (const bool simple : {false, true}) {
    Graph& graph = simple ? e.after : e.before;
    GraphBuilder b(graph);
    const ValueId x = b.input("x", type), y = b.input("y", type), c = b.input("c", {DType::boolean, {3, 4}});
    const ValueId quotient = simple ? b.op("Div", {x, y}) : b.op("Mul", {x, b.op("Reciprocal", {y})});
    graph.outputs = {simple ? b.op("Where", {c, x, quotient})
                            : b.op("Where", {b.op("Not", {c}), quotient, x})};
  }
  return e;
}

}  // namespace

extern const PassDef simplify_arithmetic_pass;
const PassDef simplify_arithmetic_pass = {
    .name = "simplify-arithmetic",
    .summary = "divide instead of multiplying by a reciprocal, choose without negating the condition",
    .doc =
        "A product with a reciprocal that nothing else reads, of the result's shape, becomes a division, which rounds once; a Where "
        "whose condition is negated for it alone takes its operands the other way round. Reciprocals that are broadcast stay: they divide fewer "
        "elements.",
    .phase = PassPhase::both,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new SimplifyArithmetic); },
    .example = example,
};

}  // namespace gradloom
