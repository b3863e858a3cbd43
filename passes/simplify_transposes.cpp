// simplify-transposes: transposes that move no data become views, those around operators that take dims in any order meet, and
// what is reduced is not transposed before.
//   Transpose of dims of size 1 -> Reshape
//   Transpose(f(Transpose(x), Transpose(y), c)) -> one Transpose of f'(x, y, c'), or none; f and f': transposed.h
//   Reduce(Transpose(x)) -> Transpose(Reduce(x)), or a view, or nothing: what is left is smaller
#include <algorithm>
#include <map>
#include <string_view>

#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"
#include "passes/transposed.h"

namespace gradloom {
namespace {

constexpr const char* kUnit = "unit-transpose";
constexpr const char *kSink = "transpose-elementwise", *kReduced = "transpose-reduction";

class SimplifyTransposes final : public Pass {
 public:
  // One that is gone lets others meet.
  Status run(Rewriter& rw) const override {
    for (int round = 0, before = -1; round < kRounds && rw.matched_count() != before; ++round) {
      before = rw.matched_count();
      for (const NodeId id : TRY(topological_order(rw.graph())))
        if (is_op(rw.graph().nodes[id], "Transpose") &&
            is_static(rw.graph().type(rw.graph().nodes[id].inputs[0]).shape) && !to_view(rw, id) &&
            !behind_reduction(rw, id))
          Sinking(rw, id).run();
    }
    return {};
  }

 private:
  static constexpr int kRounds = 4;

  static bool to_view(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const Node& node = graph.nodes[id];
    const ValueId y = node.outputs[0];
    const Perm perm = perm_of_transpose(graph, node);
    if (is_identity(perm) || !moves_nothing(graph.type(node.inputs[0]).shape, perm)) return false;
    if (!rw.allowed(kUnit, id)) return true;
    const ValueId x = node.inputs[0];
    const Shape shape = graph.type(y).shape;
    GraphBuilder& b = rw.begin(kUnit, id, {id});
    rw.replace(y, b.reshape(x, shape));
    rw.commit("no data moves");
    return true;
  }

  // Behind the one reduction that reads it, where less is left to move.
  static bool behind_reduction(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const ValueId turned = graph.nodes[id].outputs[0];
    if (rw.uses(turned).empty()) return false;
    const NodeId reader = rw.uses(turned)[0].node;
    const Node node = graph.nodes[reader];
    if (node.outputs.size() != 1 || node.inputs[0] != turned) return false;
    const Perm perm = perm_of_transpose(graph, graph.nodes[id]);
    StraightNode straight;
    std::string why = straighten_reduction(graph, node, perm, straight);
    if (!why.empty() && std::string_view(node.op->name).substr(0, 6) != "Reduce") return false;
    if (why.empty()) why = used_elsewhere(rw, turned, {reader});
    if (!why.empty()) {
      rw.reject(kReduced, reader, why);
      return false;
    }
    if (!rw.allowed(kReduced, reader, {reader, id})) return false;
    const ValueId y = node.outputs[0], x = graph.nodes[id].inputs[0];
    const Perm rest = perm_of_rest(node, perm, straight);
    const Shape shape = graph.type(y).shape;
    GraphBuilder& b = rw.begin(kReduced, reader, {reader, id});
    ValueId reduced = build_straight(b, node, straight, {{0, x}});
    const bool moves = !moves_nothing(b.shape(reduced), rest);
    if (moves)
      reduced = b.op("Transpose", {reduced}, {{"perm", rest}});
    else if (b.shape(reduced) != shape)
      reduced = b.reshape(reduced, shape);
    rw.replace(y, reduced);
    rw.commit(moves ? "what is left is transposed" : "nothing is transposed");
    return true;
  }

  // The nodes between the last transpose and those that it meets.
  class Sinking {
   public:
    Sinking(Rewriter& rw, NodeId last) : rw_(rw), last_(last) {}

    void run() {
      const Graph& graph = rw_.graph();
      const ValueId result = graph.nodes[last_].inputs[0];
      if (!collect(result) || read_elsewhere()) {
        if (!why_.empty() && !transposes_.empty()) rw_.reject(kSink, last_, why_);
        return;
      }
      if (inside_.empty() || transposes_.empty()) return;
      const Perm outer = perm_of_transpose(graph, graph.nodes[last_]);
      const Perm both = composed(inner_, outer);
      const ValueId y = graph.nodes[last_].outputs[0];
      std::vector<NodeId> matched = {last_};
      matched.insert(matched.end(), inside_.begin(), inside_.end());
      matched.insert(matched.end(), transposes_.begin(), transposes_.end());
      const bool all_go = std::all_of(transposes_.begin(), transposes_.end(), [&](NodeId t) {
        return used_elsewhere(rw_, graph.nodes[t].outputs[0], matched).empty();
      });
      if (!all_go && !is_identity(both))
        return rw_.reject(kSink, last_, "the transposes before it are read elsewhere too: none would go");
      if (!rw_.allowed(kSink, last_, matched)) return;
      GraphBuilder& b = rw_.begin(kSink, last_, matched);
      std::map<ValueId, ValueId> straight;
      const ValueId value = rebuild(b, result, straight);
      rw_.replace(y, is_identity(both) ? value : b.op("Transpose", {value}, {{"perm", both}}));
      rw_.commit(std::to_string(transposes_.size() + 1) + " transposes become " +
                 (is_identity(both) ? "none" : "1"));
    }

   private:
    static constexpr std::size_t kMostNodes = 64;

    // Whether the value can be computed from what its transposes read.
    bool collect(ValueId value) {
      const Graph& graph = rw_.graph();
      const NodeId id = graph.values[value].producer;
      if (id == kNone) return refuse(graph.values[value].name + " is not transposed");
      if (is_op(graph.nodes[id], "Transpose")) {
        const Perm perm = perm_of_transpose(graph, graph.nodes[id]);
        if (inner_.empty()) inner_ = perm;
        if (perm != inner_) return refuse("node " + graph.nodes[id].name + " transposes otherwise");
        if (std::find(transposes_.begin(), transposes_.end(), id) == transposes_.end())
          transposes_.push_back(id);
        return true;
      }
      if (std::find(inside_.begin(), inside_.end(), id) != inside_.end()) return true;
      const Node& node = graph.nodes[id];
      const std::vector<std::size_t> operands = turned_operands(graph, node);
      if (operands.empty())
        return refuse("node " + node.name +
                      (node.op->has(kElementwise) ? " reads no tensor" : " knows its dims by their place"));
      if (inside_.size() == kMostNodes) return refuse("there are more than 64 nodes between");
      inside_.push_back(id);
      for (const std::size_t i : operands)
        if (!collect(node.inputs[i])) return false;
      const std::string why = straighten(graph, node, inner_, straight_[id]);
      return why.empty() || refuse(why);
    }

    bool read_elsewhere() {
      std::vector<NodeId> readers = inside_;
      readers.push_back(last_);
      for (const NodeId id : inside_)
        if (const std::string why = used_elsewhere(rw_, rw_.graph().nodes[id].outputs[0], readers);
            !why.empty())
          return !refuse(why);
      return false;
    }

    bool refuse(std::string why) {
      if (why_.empty()) why_ = std::move(why);
      return false;
    }

    ValueId rebuild(GraphBuilder& b, ValueId value, std::map<ValueId, ValueId>& straight) {
      if (const auto done = straight.find(value); done != straight.end()) return done->second;
      const NodeId id = rw_.graph().values[value].producer;
      const Node node = rw_.graph().nodes[id];
      if (is_op(node, "Transpose")) return straight[value] = node.inputs[0];
      std::map<std::size_t, ValueId> operands;
      for (const std::size_t i : turned_operands(rw_.graph(), node))
        operands[i] = rebuild(b, node.inputs[i], straight);
      return straight[value] = build_straight(b, node, straight_[id], operands);
    }

    Rewriter& rw_;
    const NodeId last_;
    Perm inner_;
    std::vector<NodeId> inside_, transposes_;
    std::map<NodeId, StraightNode> straight_;  // of those inside
    std::string why_;
  };
};

Result<PassExample> example() {
  const Type type{DType::f32, {2, 3, 4}};
  const Attrs swap{{"perm", Perm{0, 2, 1}}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", type), y = b.input("y", type);
  const ValueId sum = b.op("Add", {b.op("Transpose", {x}, swap), b.op("Transpose", {y}, swap)});
  e.before.outputs = {b.op("Transpose", {b.op("Mul", {b.op("Tanh", {sum}), b.scalar(DType::f32, 3)})}, swap)};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", type), ay = a.input("y", type);
  e.after.outputs = {a.op("Mul", {a.op("Tanh", {a.op("Add", {ax, ay})}), a.scalar(DType::f32, 3)})};
  return e;
}

}  // namespace

extern const PassDef simplify_transposes_pass;
const PassDef simplify_transposes_pass = {
    .name = "simplify-transposes",
    .summary =
        "make transposes around operators that take dims in any order meet, and views of those that move nothing",
    .doc =
        "A transpose that moves only dims of size 1 is a view and costs nothing. One behind elementwise operators, "
        "Softmax, Concat, Pad and reductions whose operands are transposed alike is put together with theirs: the operators work on "
        "what was not transposed yet, one transpose is left, or none. Operands that are broadcast come along where renaming their dims "
        "moves nothing; a Softmax over the last dim stays there. Values between them that something else reads keep "
        "theirs. What a reduction alone reads is transposed behind it, if at all. Sums may be added up in another order.",
    .phase = PassPhase::post_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new SimplifyTransposes); },
    .example = example,
};

}  // namespace gradloom
