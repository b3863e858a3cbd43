// move-casts: a cast and what only moves elements change places, for every number is cast alone. Casts that make
// elements smaller go up, those that make them larger go down: what lies between moves fewer bytes, and a cast meets its
// inverse, another cast of the same value, or what casts by itself.
//   narrow  Cast16(Transpose(x)) -> Transpose(Cast16(x));  Cast16(Concat(Cast32(a), Cast32(b))) -> Concat(a, b)
//   widen   Transpose(Cast32(x)) -> Cast32(Transpose(x));  Cast16(Reshape(Cast32(x))) -> Reshape(x)
// It costs a kernel where no neighbour takes it in: elementwise operators do (fuse-elementwise), and on one side of the
// step trained parameters, on the other the update of them (fuse-weight-casts). A cast moves where fewer kernels are
// left, or as many and a copy of smaller elements.
#include <algorithm>
#include <map>
#include <set>

#include "engine/ir/op.h"
#include "engine/ops/inference.h"
#include "passes/casts.h"
#include "passes/pass.h"
#include "passes/pattern.h"

namespace gradloom {
namespace {

constexpr const char *kNarrow = "narrow", *kWiden = "widen";
constexpr int kMostRounds = 4;

// How many inputs, from the first, the node hands on element by element in another order, number or shape (zeros
// between them for SliceGrad); 0: it computes.
std::size_t moved_inputs(const Node& node) {
  static const std::set<std::string> others = {"Identity",     "Slice",    "Split",          "Expand",
                                               "Tile",         "Gather",   "GatherElements", "SpaceToDepth",
                                               "DepthToSpace", "GatherND", "SliceGrad"};
  if (is_op(node, "Concat")) return node.inputs.size();
  const bool moves = node.op->has(kReshapes) || node.op->has(kPermutes) ||
                     (others.count(node.op->name) > 0 && is_op(node, node.op->name));
  return moves ? 1 : 0;
}

bool is_elementwise(const Node& node) { return node.op->has(kElementwise) && !is_op(node, "Cast"); }

// What becomes of a cast on one side of nodes that move elements: the nodes that it passes, and what it then costs.
struct Way {
  std::set<NodeId> passed;
  std::set<ValueId> casts;    // values that are cast by kernels of their own
  std::int64_t elements = 0;  // that those cast
  bool copies = false;        // some passed node has a kernel
  std::string why_not{};      // the first reason to stop

  void add(const Way& other) {
    passed.insert(other.passed.begin(), other.passed.end());
    for (const ValueId v : other.casts) casts.insert(v);
    copies = copies || other.copies;
    if (why_not.empty()) why_not = other.why_not;
  }
};

class Mover {
 public:
  explicit Mover(Rewriter& rw) : rw_(rw) {}

  // Whether anything moved; reasons are told in the last round alone, which changes nothing.
  Result<bool> round() {
    const std::size_t before = rw_.log().size();
    for (const NodeId id : TRY(topological_order(graph()))) {
      const Node& node = graph().nodes[id];
      if (!node.alive() || !is_op(node, "Cast") || !plain(node.inputs[0])) continue;
      const std::size_t from = dtype_bytes(dtype(node.inputs[0])), to = dtype_bytes(dtype(node.outputs[0]));
      if (to < from) narrow(id);
      if (to > from) widen(id);
    }
    return std::any_of(rw_.log().begin() + static_cast<std::ptrdiff_t>(before), rw_.log().end(),
                       [](const RewriteRecord& r) { return r.matched; });
  }
  bool tell = true;

 private:
  const Graph& graph() const { return rw_.graph(); }
  DType dtype(ValueId v) const { return graph().type(v).dtype; }
  // Not what is known before running: shapes may depend on it.
  bool plain(ValueId v) const {
    return graph().values[v].has_type && is_static(graph().type(v).shape) &&
           !graph().values[v].data.defined();
  }
  std::int64_t elements(ValueId v) const { return element_count(graph().type(v).shape); }
  bool has_kernel(const Node& node) const { return !node.op->has(kView); }
  std::string name(ValueId v) const { return graph().values[v].name; }
  void reject(const char* rule, NodeId id, const std::string& why) {
    if (tell && !why.empty()) rw_.reject(rule, id, why);
  }
  std::vector<NodeId> readers(ValueId v) const {
    std::vector<NodeId> nodes;
    for (const Use& use : rw_.uses(v))
      if (std::find(nodes.begin(), nodes.end(), use.node) == nodes.end()) nodes.push_back(use.node);
    return nodes;
  }
  // The elementwise neighbour, before or after the cast, computes it with its own result: no kernel.
  bool joins(NodeId cast, NodeId neighbour) const {
    const Node &a = graph().nodes[cast], &b = graph().nodes[neighbour];
    return is_elementwise(b) && a.origin.phase == b.origin.phase &&
           graph().type(a.outputs[0]).shape == graph().type(b.outputs[0]).shape;
  }
  bool joins_somebody(NodeId cast) const {
    const NodeId producer = graph().values[graph().nodes[cast].inputs[0]].producer;
    if (producer != kNone && joins(cast, producer)) return true;
    const auto after = readers(graph().nodes[cast].outputs[0]);
    return std::any_of(after.begin(), after.end(), [&](NodeId reader) { return joins(cast, reader); });
  }

  // ---- up --------------------------------------------------------------------------------------------------------

  // A value that is v in type `to` already: what v was widened from, or another cast of it.
  ValueId given(ValueId v, DType to, Phase phase) const {
    const NodeId producer = graph().values[v].producer;
    if (producer != kNone && is_op(graph().nodes[producer], "Cast")) {
      const ValueId source = graph().nodes[producer].inputs[0];
      if (dtype(source) == to && widens(to, dtype(v))) return source;
    }
    for (const NodeId reader : readers(v)) {
      const Node& node = graph().nodes[reader];
      if (is_op(node, "Cast") && dtype(node.outputs[0]) == to && node.origin.phase <= phase &&
          !rw_.is_output(node.outputs[0]))
        return node.outputs[0];
    }
    return kNone;
  }

  // v in type `to` for `reader` alone, part of the rewrite of `cast`.
  Way above(ValueId v, NodeId reader, NodeId cast, DType to) const {
    Way here;
    const Phase phase = graph().nodes[cast].origin.phase;
    const Value& value = graph().values[v];
    if (is_constant(graph(), v) || (reader != cast && given(v, to, phase) != kNone)) return here;
    const Way through = above_producer(v, reader, cast, to);
    const bool absorbed =
        is_trained(graph(), v) || (value.producer != kNone && is_elementwise(graph().nodes[value.producer]) &&
                                   graph().nodes[value.producer].origin.phase == phase);
    if (!absorbed) here.casts = {v};
    here.why_not = through.why_not;
    return better(through, here) ? through : here;
  }

  static bool better(const Way& a, const Way& b) {
    if (a.passed.empty()) return false;
    return a.casts.size() < b.casts.size() || (a.casts.size() == b.casts.size() && a.copies);
  }

  Way above_producer(ValueId v, NodeId reader, NodeId cast, DType to) const {
    Way way;
    const NodeId id = graph().values[v].producer;
    if (id == kNone) return way;
    const Node& node = graph().nodes[id];
    const std::size_t count = moved_inputs(node);
    if (count == 0 || !plain(v)) return way;
    const auto stop = [&](std::string why) {
      way.why_not = std::move(why);
      return way;
    };
    for (const ValueId out : node.outputs)  // the parts of a Split are cast together
      if (out != kNone)
        if (const std::string why = used_elsewhere(rw_, out, {reader}); !why.empty()) return stop(why);
    if (node.origin.phase != graph().nodes[cast].origin.phase)
      return stop("node " + node.name + " is of another part of the step");
    way.passed = {id};
    way.copies = has_kernel(node);
    for (std::size_t i = 0; i < count; ++i) {
      way.add(above(node.inputs[i], id, cast, to));
    }
    if (is_op(node, "Gather") && is_trained(graph(), node.inputs[0]) &&
        given(node.inputs[0], to, node.origin.phase) == kNone)
      return Way{.why_not = "the whole of " + name(node.inputs[0]) + " would be cast for some of its rows"};
    return way;
  }

  void narrow(NodeId cast) {
    const Node& node = graph().nodes[cast];
    const ValueId v = node.inputs[0], y = node.outputs[0];
    const DType to = dtype(y);
    const Way way = above_producer(v, cast, cast, to);
    if (way.passed.empty()) return reject(kNarrow, cast, way.why_not);
    const std::size_t before = joins_somebody(cast) ? 0 : 1, after = way.casts.size();
    if (after > before || (after == before && !way.copies)) {
      const std::string where = after == 0 ? "" : name(*way.casts.begin());
      return reject(kNarrow, cast,
                    after > before ? "it would take " + std::to_string(after) + " casts, of " + where +
                                         (after > 1 ? " and others" : "")
                                   : "nothing before it takes it in, and nothing between copies");
    }
    std::int64_t cast_elements = 0;
    for (const ValueId each : way.casts) cast_elements += elements(each);
    if (cast_elements > elements(y))
      return reject(kNarrow, cast, name(*way.casts.begin()) + " has more elements than are read of it");
    std::vector<NodeId> matched = {cast};
    matched.insert(matched.end(), way.passed.begin(), way.passed.end());
    if (!rw_.allowed(kNarrow, cast, matched)) return;
    const Phase phase = node.origin.phase;
    for (const NodeId id : way.passed)  // what nothing reads any more goes
      for (const ValueId in : graph().nodes[id].inputs)
        if (in != kNone && graph().values[in].producer != kNone && given(in, to, phase) != kNone)
          matched.push_back(graph().values[in].producer);
    std::sort(matched.begin(), matched.end());
    matched.erase(std::unique(matched.begin(), matched.end()), matched.end());
    GraphBuilder& b = rw_.begin(kNarrow, cast, matched);
    std::map<ValueId, ValueId> done;
    rw_.replace(y, rebuilt(b, v, to, way, phase, done));
    rw_.commit(gain(before, after));
  }

  static std::string gain(std::size_t before, std::size_t after) {
    return after < before ? "a cast less" : "less to move";
  }

  ValueId rebuilt(GraphBuilder& b, ValueId v, DType to, const Way& way, Phase phase,
                  std::map<ValueId, ValueId>& done) const {
    if (const auto at = done.find(v); at != done.end()) return at->second;
    const Attrs cast{{"to", onnx_from_dtype(to)}};
    const NodeId id = graph().values[v].producer;
    if (id != kNone && way.passed.count(id) > 0) {
      const Node node = graph().nodes[id];
      std::vector<ValueId> inputs = node.inputs;
      for (std::size_t i = 0; i < moved_inputs(node); ++i)
        inputs[i] = rebuilt(b, inputs[i], to, way, phase, done);
      const auto results =
          b.ops(*node.op, std::move(inputs), node.attrs, static_cast<int>(node.outputs.size()));
      for (std::size_t i = 0; i < results.size(); ++i)
        if (node.outputs[i] != kNone) done[node.outputs[i]] = results[i];
      return done.at(v);
    }
    if (const ValueId there = given(v, to, phase); there != kNone) return done[v] = there;
    if (is_constant(graph(), v)) {
      const Tensor& contents = graph().values[v].data;
      if (auto tensor = evaluate(op_by_name("Cast"), cast, {contents}, 1, ""); tensor.ok())
        return done[v] = b.constant((*tensor)[0]);
    }
    return done[v] = b.op("Cast", {v}, cast);
  }

  // ---- down ------------------------------------------------------------------------------------------------------

  // What cast `cast` costs, if those readers of v that it can pass read what was not cast yet.
  Way below(ValueId v, NodeId cast) const {
    const DType low = dtype(graph().nodes[cast].inputs[0]);
    Way way;
    std::string why = rw_.is_output(v) ? name(v) + " is an output of the graph" : "";
    bool here = rw_.is_output(v), updates_alone = !here && is_half(low), elementwise_alone = !here;
    for (const NodeId reader : readers(v)) {
      if (goes_back(graph().nodes[reader], low)) continue;
      const Way through = below_reader(v, reader, cast);
      way.add(through);
      if (!through.passed.empty()) continue;
      if (why.empty()) why = through.why_not;
      here = true;
      updates_alone = updates_alone && updates(reader, v);
      elementwise_alone = elementwise_alone && reads_elementwise(reader, v, cast);
    }
    if ((here && !updates_alone && !elementwise_alone) || way.casts.size() > 1)
      return Way{.casts = {v}, .elements = elements(v), .why_not = why.empty() ? way.why_not : why};
    for (const ValueId each : way.casts) way.elements += elements(each);
    return way;
  }

  Way below_reader(ValueId v, NodeId reader, NodeId cast) const {
    const Node& node = graph().nodes[reader];
    const std::size_t count = moved_inputs(node);
    if (count == 0) return Way{.why_not = "node " + node.name + " computes with " + name(v)};
    if (node.origin.phase != graph().nodes[cast].origin.phase)
      return Way{.why_not = "node " + node.name + " is of another part of the step"};
    std::set<ValueId> read;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId in = node.inputs[i];
      if (i >= count ? in == v : in != v && widened_from(in, cast) == kNone)
        return Way{.why_not = "node " + node.name + " reads " + name(in) + ", which is not cast so"};
      if (i < count) read.insert(in);
    }
    Way way{.passed = {reader}, .copies = has_kernel(node)};
    for (const ValueId out : node.outputs) {
      if (out == kNone) continue;
      if (!plain(out)) return Way{.why_not = name(out) + " is known before running"};
      way.add(below(out, cast));
    }
    std::int64_t before = 0;
    for (const ValueId in : read) before += elements(in);
    for (const ValueId each : way.casts) way.elements += elements(each);
    if (way.casts.empty() || (way.casts.size() == 1 && way.copies && way.elements <= before)) return way;
    if (way.casts.size() > 1)
      return Way{.why_not = std::to_string(way.casts.size()) + " casts would follow node " + node.name};
    return Way{.why_not = way.copies ? name(*way.casts.begin()) + " has more elements" : way.why_not};
  }

  // What v was cast from, where that is as `cast` does it.
  ValueId widened_from(ValueId v, NodeId cast) const {
    const NodeId producer = graph().values[v].producer;
    const Node& like = graph().nodes[cast];
    if (producer == kNone || !is_op(graph().nodes[producer], "Cast")) return kNone;
    const ValueId source = graph().nodes[producer].inputs[0];
    return dtype(source) == dtype(like.inputs[0]) && dtype(v) == dtype(like.outputs[0]) ? source : kNone;
  }

  bool goes_back(const Node& node, DType low) const {
    return is_op(node, "Cast") && dtype(node.outputs[0]) == low && widens(low, dtype(node.inputs[0])) &&
           !rw_.is_output(node.outputs[0]);
  }
  // Every place where the node reads v takes a gradient of 16 bits.
  bool updates(NodeId id, ValueId v) const {
    const std::vector<ValueId>& inputs = graph().nodes[id].inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] == v && !takes_low_gradient(graph().nodes[id], i)) return false;
    return true;
  }
  bool reads_elementwise(NodeId id, ValueId v, NodeId cast) const {
    const Node& node = graph().nodes[id];
    return is_elementwise(node) && node.origin.phase == graph().nodes[cast].origin.phase &&
           graph().type(node.outputs[0]).shape == graph().type(v).shape;
  }

  void widen(NodeId cast) {
    const ValueId v = graph().nodes[cast].outputs[0];
    const Way way = below(v, cast);
    const std::size_t before = joins_somebody(cast) ? 0 : 1, after = way.casts.size();
    if (way.passed.empty()) {
      const std::vector<NodeId> after_it = readers(v);
      const bool candidate = std::any_of(after_it.begin(), after_it.end(),
                                         [&](NodeId id) { return moved_inputs(graph().nodes[id]) > 0; });
      return reject(kWiden, cast, candidate ? way.why_not : "");
    }
    if (after > before || (after == before && !way.copies))
      return reject(kWiden, cast, "an elementwise operator takes it in where it is");
    std::vector<NodeId> matched = {cast};
    matched.insert(matched.end(), way.passed.begin(), way.passed.end());
    if (!rw_.allowed(kWiden, cast, matched)) return;
    const ValueId low = graph().nodes[cast].inputs[0];
    GraphBuilder& b = rw_.begin(kWiden, cast, with_casts_back(matched, way, cast));
    push(b, v, low, way, cast);
    rw_.commit(gain(before, after));
  }

  // All that may go: the matched nodes and the casts that their results meet.
  std::vector<NodeId> with_casts_back(std::vector<NodeId> matched, const Way& way, NodeId cast) const {
    const DType low = dtype(graph().nodes[cast].inputs[0]);
    std::vector<NodeId> sources(way.passed.begin(), way.passed.end());
    sources.push_back(cast);
    for (const NodeId id : sources)
      for (const ValueId out : graph().nodes[id].outputs)
        if (out != kNone)
          for (const NodeId reader : readers(out))
            if (goes_back(graph().nodes[reader], low)) matched.push_back(reader);
    for (const NodeId id : way.passed)
      for (const ValueId in : graph().nodes[id].inputs)
        if (in != kNone && widened_from(in, cast) != kNone) matched.push_back(graph().values[in].producer);
    std::sort(matched.begin(), matched.end());
    matched.erase(std::unique(matched.begin(), matched.end()), matched.end());
    return matched;
  }

  // `low` is v before `cast`: what the cast passes reads it, and what reads v as it is gets a cast.
  void push(GraphBuilder& b, ValueId v, ValueId low, const Way& way, NodeId cast) {
    bool here = rw_.is_output(v);
    for (const NodeId reader : readers(v)) {
      const Node node = graph().nodes[reader];
      if (goes_back(node, dtype(low))) {
        rw_.replace(node.outputs[0], low);
      } else if (way.passed.count(reader) > 0) {
        std::vector<ValueId> inputs = node.inputs;
        for (std::size_t i = 0; i < moved_inputs(node); ++i)
          inputs[i] = inputs[i] == v ? low : widened_from(inputs[i], cast);
        const auto moved = b.ops(*node.op, inputs, node.attrs, static_cast<int>(node.outputs.size()));
        for (std::size_t i = 0; i < moved.size(); ++i)
          if (node.outputs[i] != kNone) push(b, node.outputs[i], moved[i], way, cast);
      } else {
        here = true;
      }
    }
    if (here && v != graph().nodes[cast].outputs[0])
      rw_.replace(v, b.op("Cast", {low}, {{"to", onnx_from_dtype(dtype(v))}}));
  }

  Rewriter& rw_;
};

class MoveCasts final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    // One moved cast can let another pass; the reasons of those that stay are told at the end.
    Mover mover(rw);
    mover.tell = false;
    for (int round = 0; round < kMostRounds; ++round)
      if (!TRY(mover.round())) break;
    mover.tell = true;
    TRY(mover.round());
    return {};
  }
};

Result<PassExample> example() {
  const Type low{DType::bf16, {4, 8}}, full{DType::f32, {4, 8}};
  const Attrs to_full{{"to", onnx_from_dtype(DType::f32)}}, to_low{{"to", onnx_from_dtype(DType::bf16)}};
  const Attrs swap{{"perm", std::vector<std::int64_t>{1, 0}}}, rows{{"axis", std::int64_t{0}}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", low), y = b.input("y", low);
  const ValueId both = b.op("Concat", {b.op("Cast", {x}, to_full), b.op("Cast", {y}, to_full)}, rows);
  const ValueId z = b.op("Transpose", {b.input("z", full)}, swap);
  e.before.outputs = {b.op("Softmax", {b.op("Cast", {both}, to_low)}),
                      b.op("Softmax", {b.op("Cast", {z}, to_low)})};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", low), ay = a.input("y", low), az = a.input("z", full);
  e.after.outputs = {a.op("Softmax", {a.op("Concat", {ax, ay}, rows)}),
                     a.op("Softmax", {a.op("Transpose", {a.op("Cast", {az}, to_low)}, swap)})};
  return e;
}

}  // namespace

extern const PassDef move_casts_pass;
const PassDef move_casts_pass = {
    .name = "move-casts",
    .summary =
        "casts change places with what only moves elements, and meet their inverse or what takes them in",
    .doc =
        "A cast to a smaller type goes up through views, Transpose, Slice, Split, Concat, Expand, Gather and others that "
        "only move elements, one to a larger type goes down, where fewer kernels are left, or as many and elements of fewer "
        "bytes are copied. On the way it meets its inverse, another cast of the same value, an elementwise operator, a "
        "trained parameter (whose 16-bit copy the optimizer writes) or the update, which reads 16-bit gradients. Casts go "
        "as far as that takes at once; since one can open the way for another, this is done again until none moves, at "
        "most four times. Bit-equal.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new MoveCasts); },
    .example = example,
};

}  // namespace gradloom
