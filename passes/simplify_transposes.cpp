// simplify-transposes: transposes that move no data become views, and those around elementwise operators meet.
//   Transpose of dims of size 1 -> Reshape
//   Transpose(f(Transpose(x), Transpose(y), scalar)) -> one Transpose of f(x, y, scalar), or none
#include <algorithm>
#include <map>

#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"

namespace gradloom {
namespace {

constexpr const char* kUnit = "unit-transpose";
constexpr const char* kSink = "transpose-elementwise";

// The dims of more than one element keep their order: the bytes stay where they are.
bool moves_nothing(const Shape& shape, const Perm& perm) {
  std::int64_t last = -1;
  for (const std::int64_t axis : perm) {
    if (shape[static_cast<std::size_t>(axis)] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

class SimplifyTransposes final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    for (const NodeId id : TRY(topological_order(rw.graph()))) {
      if (!is_op(rw.graph().nodes[id], "Transpose") ||
          !is_static(rw.graph().type(rw.graph().nodes[id].inputs[0]).shape))
        continue;
      if (!to_view(rw, id)) Sinking(rw, id).run();
    }
    return {};
  }

 private:
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
    rw.replace(y, b.op("Reshape", {x, b.i64s(shape)}));
    rw.commit("no data moves");
    return true;
  }

  // The elementwise nodes between the last transpose and those that it meets.
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
      if (!node.op->has(kElementwise)) return refuse("node " + node.name + " is not elementwise");
      if (inside_.size() == kMostNodes) return refuse("there are more than 64 nodes between");
      inside_.push_back(id);
      const Shape& shape = graph.type(value).shape;
      bool any = false;
      for (const ValueId in : node.inputs) {
        if (is_one(in)) continue;
        if (graph.type(in).shape != shape)
          return refuse("node " + node.name + " broadcasts " + graph.values[in].name);
        any = true;
        if (!collect(in)) return false;
      }
      if (!any) return refuse("node " + node.name + " reads no tensor");
      return true;
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

    // One element, of no more dims than its reader has: the same in every order of them.
    bool is_one(ValueId v) const {
      const Shape& shape = rw_.graph().type(v).shape;
      return std::all_of(shape.begin(), shape.end(), [](std::int64_t d) { return d == 1; });
    }

    ValueId rebuild(GraphBuilder& b, ValueId value, std::map<ValueId, ValueId>& straight) {
      if (const auto done = straight.find(value); done != straight.end()) return done->second;
      const Node node = rw_.graph().nodes[rw_.graph().values[value].producer];
      if (is_op(node, "Transpose")) return straight[value] = node.inputs[0];
      std::vector<ValueId> inputs;
      for (const ValueId in : node.inputs) inputs.push_back(is_one(in) ? in : rebuild(b, in, straight));
      return straight[value] = b.op(*node.op, std::move(inputs), node.attrs);
    }

    Rewriter& rw_;
    const NodeId last_;
    Perm inner_;
    std::vector<NodeId> inside_, transposes_;
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
    .summary = "make transposes around elementwise operators meet, and views of those that move nothing",
    .doc =
        "A transpose that moves only dims of size 1 is a view and costs nothing. One behind elementwise operators "
        "whose operands are transposed alike, or have one element, is put together with theirs: the operators work on "
        "what was not transposed yet, one transpose is left, or none. Values between them that something else reads keep "
        "theirs.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new SimplifyTransposes); },
    .example = example,
};

}  // namespace gradloom
