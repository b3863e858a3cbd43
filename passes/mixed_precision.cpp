// mixed-precision: 16 bits (bf16 or f16) where the time goes, f32 where digits count (Micikevicius
// et al. 2018; Kalamkar et al. 2019). Every row of the operator table says what it wants
// (Precision in engine/ir/op.h):
//   low     MatMul, Gemm, Conv, Einsum, ...: operands are cast to 16 bits; in the loss only where the result is f32 all the same
//   full    losses, sums over many elements, exp, log, pow, ...: operands are cast to f32; what follows from its result stays f32
//   wide    SoftmaxCrossEntropyLoss: reads logits in 16 bits, as they are, and gives an f32 loss
//   follow  everything else: 16 bits where an activation that it reads has them and none comes from a full operator, else as it is;
//           what only moves elements for products to read (the transposed weight of a Linear) moves those in 16 bits
// A list of another library, or names that the user gives, say otherwise (passes/precision.h).
// With weights=low, parameters that are read in 16 bits are kept so, and what reads them in f32 reads a Cast of them (of the
// rows, where it is a Gather). Else parameters, and always inputs of the graph and outputs, keep their types; a value is cast once for all its readers.
// Autodiff makes the backward part of what stands here: the gradient of a parameter's Cast brings its
// gradient to the optimizer in f32. An operand that an operator takes in f32 beside 16 bits (scale and bias
// of normalizations, a dropout ratio) stays f32, and so do statistics of normalizations. bf16 has the range
// of f32; gradients in f16 need the loss scaling that precision f16 brings (engine/train/train_graph.h).
#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/precision.h"

namespace gradloom {
namespace {

constexpr DType kFull = DType::f32;
constexpr const char *kFullRule = "f32", *kOutputRule = "output", *kWeightRule = "weight";

// A constant in 16 bits. What is finite stays finite: masks are made of the largest number there is.
Tensor rounded(const Tensor& full, DType low) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < full.count(); ++i) numbers.push_back(kept_finite(low, full.at(i)));
  return Tensor::from_f64(low, full.shape(), numbers);
}

// Constants in the types that trials read them in; each is converted once, whoever reads it.
class TrialConstants {
 public:
  const Tensor& in_type(ValueId id, const Tensor& contents, DType to) {
    if (contents.dtype() == to) return contents;
    const auto [at, fresh] = converted_.try_emplace({id, contents.dtype(), to});
    if (fresh) at->second = contents.cast(to);
    return at->second;
  }

 private:
  std::map<std::tuple<ValueId, DType, DType>, Tensor> converted_;
};

// Types of a node's results when it reads `inputs` with other types than they have. Inference looks into
// constants alone: contents of parameters and states, which are large, stay outside of it.
class Trial {
 public:
  Trial(const Graph& graph, const Node& node, TrialConstants& constants)
      : original_(graph), inputs_(node.inputs), constants_(constants), node_(node) {
    graph_.opset = graph.opset;
    for (ValueId& in : node_.inputs) {
      if (in == kNone) continue;
      const Value& original = graph.values[in];
      Value& value = graph_.values.emplace_back();
      value.name = original.name;
      value.type = original.type;
      value.has_type = original.has_type;
      value.role = is_constant(graph, in) ? Role::constant  // contents known without the producer
                                          : original.role;
      in = static_cast<ValueId>(graph_.values.size() - 1);
    }
  }
  // Empty: inference accepts it.
  std::string infer(const std::vector<DType>& dtypes) {
    for (std::size_t i = 0; i < node_.inputs.size(); ++i) {
      if (node_.inputs[i] == kNone) continue;
      Value& value = graph_.values[node_.inputs[i]];
      const Tensor& contents = original_.values[inputs_[i]].data;
      if (value.role == Role::constant && contents.defined())
        value.data = constants_.in_type(inputs_[i], contents, dtypes[i]);
      value.type.dtype = dtypes[i];
    }
    InferContext ctx{graph_, node_.attrs, node_.inputs, static_cast<int>(node_.outputs.size()),
                     std::vector<Type>(node_.outputs.size())};
    if (Status status = node_.op->infer(ctx); !status) return status.error().message;
    results_ = std::move(ctx.outputs);
    return "";
  }
  const std::vector<Type>& results() const { return results_; }

 private:
  const Graph& original_;
  const std::vector<ValueId> inputs_;  // of the node in it
  TrialConstants& constants_;
  Graph graph_;
  Node node_;
  std::vector<Type> results_;
};

class Converter {
 public:
  Converter(Rewriter& rw, DType low, PrecisionChoice choice)
      : rw_(rw), low_(low), low_rule_(dtype_name(low)), choice_(std::move(choice)) {
    for (const Value& value : rw.graph().values) original_.push_back(value.type.dtype);
  }

  Status run() {
    const std::vector<NodeId> order = TRY(topological_order(rw_.graph()));
    find_moves(order);
    for (NodeId id : order) {
      const Node& node = graph().nodes[id];
      if (node.op->has(kShapeOnly) || is_op(node, "Cast") || !reads(id, kFull, low_)) continue;
      const std::string stays = why_full(id);
      if (!stays.empty() || !lower(id)) raise(id, stays);
    }
    keep_outputs();
    if (choice_.low_weights()) lower_weights();
    return {};
  }

 private:
  const Graph& graph() const { return rw_.graph(); }
  Precision precision(NodeId id) const { return choice_.of(graph(), id); }
  DType dtype(ValueId id) const { return graph().type(id).dtype; }
  bool reads(NodeId id, DType a, DType b) const {
    for (ValueId in : graph().nodes[id].inputs)
      if (in != kNone && graph().values[in].has_type && (dtype(in) == a || dtype(in) == b)) return true;
    return false;
  }

  // Nodes whose f32 result is their operand's elements elsewhere and read by products alone, which would cast
  // it: cast before, a transpose moves half the bytes and becomes the product's strides.
  void find_moves(const std::vector<NodeId>& order) {
    moves_.assign(graph().nodes.size(), false);
    for (auto id = order.rbegin(); id != order.rend(); ++id) {
      const Node& node = graph().nodes[*id];
      if ((!node.op->has(kView) && !node.op->has(kPermutes)) || choice_.by_user(graph(), *id)) continue;
      const ValueId out = node.outputs[0];
      const std::vector<Use>& uses = rw_.uses(out);
      moves_[*id] = !uses.empty() && !rw_.is_output(out) && graph().values[out].has_type &&
                    dtype(out) == kFull && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
                      const Node& reader = graph().nodes[use.node];
                      return moves_[use.node] ||
                             (precision(use.node) == Precision::low && reader.origin.phase != Phase::loss);
                    });
    }
  }

  // Why the node is not computed in 16 bits; empty: it is, if it can be.
  std::string why_full(NodeId id) {
    const Node& node = graph().nodes[id];
    if (moves_[id]) return "";
    const Precision wanted = precision(id);
    if (wanted == Precision::wide && node.outputs.size() == 1 && dtype(node.inputs[0]) == low_) return "";
    if (node.origin.phase == Phase::loss && !(wanted == Precision::low && sums_in_full(node)))
      return "the loss is computed in f32";
    if (wanted == Precision::wide || wanted == Precision::full)
      return std::string(node.op->name) + " is computed in f32";
    if (wanted == Precision::low) return "";
    for (ValueId in : node.inputs)
      if (in != kNone && full_.count(in))
        return "reads " + graph().values[in].name + ", which is computed in f32";
    return reads(id, low_, low_) ? "" : std::string("reads no activation in ") + low_rule_;
  }

  // Products whose results leave the kernel in f32 alone, whatever their operands.
  bool sums_in_full(const Node& node) {
    std::vector<DType> types;
    for (ValueId in : node.inputs)
      types.push_back(in == kNone ? kFull : dtype(in) == kFull ? low_ : dtype(in));
    Trial trial(graph(), node, constants_);
    return trial.infer(types).empty() && trial.results()[0].dtype == kFull;
  }

  // The node in 16 bits; false, with the reason logged, when it cannot be.
  bool lower(NodeId id) {
    Node node = graph().nodes[id];
    const bool wide = precision(id) == Precision::wide, wide_already = node.attrs.has("wide");
    if (wide) node.attrs.set("wide", std::int64_t{1});
    Trial trial(graph(), node, constants_);
    std::vector<DType> before;
    for (ValueId in : node.inputs) before.push_back(in == kNone ? kFull : dtype(in));
    std::vector<DType> types = before;
    if (const std::string why = lower_operands(trial, node, types); !why.empty()) {
      rw_.reject(low_rule_, id, why);
      return false;
    }
    const bool done = types == before && wide == wide_already && has_types(node, trial.results());
    if (!done && !rw_.allowed(low_rule_, id)) return false;
    if (!done) change(id, low_rule_, types, node.attrs, full_operands(node, types));
    if (wide) full_.insert(node.outputs[0]);
    return true;
  }

  // `types` of the operands -> those with which the node computes in 16 bits; the reason when there are none.
  // Operands are left in f32 where they must be (scales of Resize) and where they may be beside the first one
  // in 16 bits: all of them, or one by one. The trial has inferred the result.
  std::string lower_operands(Trial& trial, const Node& node, std::vector<DType>& types) const {
    std::vector<std::size_t> castable;
    for (std::size_t i = 0; i < types.size(); ++i)
      if (node.inputs[i] != kNone && types[i] == kFull) castable.push_back(i);
    for (std::size_t i : castable) types[i] = low_;
    std::string why = trial.infer(types);
    std::vector<DType> wide = types;
    for (std::size_t i : castable)
      if (i > 0) wide[i] = kFull;
    if (!why.empty()) why = trial.infer(types = wide);
    if (!why.empty()) return why;
    const Type result = trial.results()[0];
    const auto accepts = [&](const std::vector<DType>& some) {
      return trial.infer(some).empty() && trial.results()[0] == result;
    };
    if (accepts(wide)) {
      types = wide;
    } else {
      for (std::size_t i : castable) {
        if (i == 0) continue;
        const DType low = std::exchange(types[i], kFull);
        if (!accepts(types)) types[i] = low;
      }
    }
    return trial.infer(types);
  }

  std::string full_operands(const Node& node, const std::vector<DType>& types) const {
    std::string names;
    for (std::size_t i = 1; i < types.size(); ++i)
      if (node.inputs[i] != kNone && types[i] == kFull)
        names += (names.empty() ? "in f32 stay " : ", ") + graph().values[node.inputs[i]].name;
    return names;
  }

  bool has_types(const Node& node, const std::vector<Type>& types) const {
    for (std::size_t i = 0; i < types.size(); ++i)
      if (node.outputs[i] != kNone && graph().type(node.outputs[i]) != types[i]) return false;
    return true;
  }

  // The node in f32. `why`: it belongs there, and so does what follows; empty: it could not be in 16 bits.
  void raise(NodeId id, const std::string& why) {
    if (reads(id, low_, low_)) {
      std::vector<DType> dtypes;
      for (ValueId in : graph().nodes[id].inputs)
        dtypes.push_back(in == kNone || dtype(in) == low_ ? kFull : dtype(in));
      if (Trial trial(graph(), graph().nodes[id], constants_); trial.infer(dtypes).empty())
        change(id, kFullRule, dtypes, graph().nodes[id].attrs, why);
    } else if (!why.empty()) {
      rw_.reject(low_rule_, id, why);
    }
    const Node& node = graph().nodes[id];
    const bool sums = precision(id) == Precision::full || precision(id) == Precision::wide;
    const bool belongs = !why.empty() && (sums || reads_full(node));
    for (ValueId out : node.outputs)
      if (belongs && out != kNone && dtype(out) == kFull) full_.insert(out);
  }

  bool reads_full(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId in) { return full_.count(in) > 0; });
  }

  // The node reads its operands in these types.
  void change(NodeId id, const char* rule, const std::vector<DType>& dtypes, Attrs attrs,
              const std::string& why) {
    GraphBuilder& b = rw_.begin(rule, id, {id});
    std::vector<ValueId> inputs = graph().nodes[id].inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] != kNone && dtype(inputs[i]) != dtypes[i]) inputs[i] = converted(b, inputs[i], dtypes[i]);
    rw_.retype(id, std::move(inputs), std::move(attrs));
    rw_.commit(why);
  }

  ValueId converted(GraphBuilder& b, ValueId id, DType to) {
    const auto [at, fresh] = casts_.try_emplace(id, kNone);
    if (!fresh) return at->second;
    const std::string name = graph().values[id].name + "/" + dtype_name(to);
    const Value& value = graph().values[id];
    if (value.role == Role::constant && value.producer == kNone)
      return at->second = b.constant(to == low_ ? rounded(value.data, low_) : value.data.cast(to),
                                     b.unique_name(name));
    const OpDef& cast = op_by_name("Cast");
    const auto result = b.add(cast, {id}, {{"to", onnx_from_dtype(to)}}, 1, {}, b.unique_name(name));
    CHECK(result.ok(), "a cast between floats");
    return at->second = (*result)[0];
  }

  // Parameters with a Cast to 16 bits have this type from here on.
  void lower_weights() {
    for (const ValueId parameter : graph().parameters) {
      std::vector<NodeId> casts;
      for (const Use& use : rw_.uses(parameter))
        if (is_op(graph().nodes[use.node], "Cast") && dtype(graph().nodes[use.node].outputs[0]) == low_)
          casts.push_back(use.node);
      if (casts.empty() || dtype(parameter) != kFull || rw_.is_output(parameter)) continue;
      if (!rw_.allowed(kWeightRule, casts[0])) continue;
      lower_weight(parameter, casts);
    }
  }

  void lower_weight(ValueId parameter, const std::vector<NodeId>& casts) {
    std::vector<NodeId> readers, gathers;
    for (const Use& use : rw_.uses(parameter)) {
      if (std::find(casts.begin(), casts.end(), use.node) != casts.end()) continue;
      const bool rows = is_op(graph().nodes[use.node], "Gather") && use.input_index == 0;
      (rows ? gathers : readers).push_back(use.node);
    }
    std::vector<NodeId> replaced = casts;
    replaced.insert(replaced.end(), gathers.begin(), gathers.end());
    GraphBuilder& b = rw_.begin(kWeightRule, casts[0], replaced);
    rw_.retype_parameter(parameter, low_);
    const Attrs full{{"to", onnx_from_dtype(kFull)}};
    for (const NodeId cast : casts) rw_.replace(graph().nodes[cast].outputs[0], parameter);
    for (const NodeId id : gathers) {
      const Node gather = graph().nodes[id];
      const ValueId rows = b.op(*gather.op, gather.inputs, gather.attrs);
      rw_.replace(gather.outputs[0], b.op("Cast", {rows}, full));
    }
    if (!readers.empty()) {
      const ValueId wide = b.op("Cast", {parameter}, full);
      for (const NodeId id : readers) {
        std::vector<ValueId> inputs = graph().nodes[id].inputs;
        std::replace(inputs.begin(), inputs.end(), parameter, wide);
        rw_.retype(id, std::move(inputs), graph().nodes[id].attrs);
      }
    }
    rw_.commit("kept in 16 bits");
  }

  // Outputs, loss and updates in the types that they had.
  void keep_outputs() {
    std::set<ValueId> outputs(graph().outputs.begin(), graph().outputs.end());
    if (graph().loss != kNone) outputs.insert(graph().loss);
    for (const Update& u : graph().updates) outputs.insert(u.next);
    for (ValueId id : outputs) {
      const NodeId producer = graph().values[id].producer;
      if (producer == kNone || dtype(id) == original_[id]) continue;
      GraphBuilder& b = rw_.begin(kOutputRule, producer, {producer});
      rw_.replace_outputs(id, converted(b, id, original_[id]));
      rw_.commit("outputs of the graph keep their type");
    }
  }

  Rewriter& rw_;
  const DType low_;
  const char* const low_rule_;
  const PrecisionChoice choice_;
  std::vector<bool> moves_;           // by node
  std::map<ValueId, ValueId> casts_;  // the other type of a value
  TrialConstants constants_;
  std::set<ValueId> full_;       // computed in f32 because digits count there
  std::vector<DType> original_;  // of the values before the pass
};

class MixedPrecision final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("type", type_, {.help = "of products and activations", .choices = {"bf16", "f16"}});
    v.field("list", list_,
            {.help = "of what is in 16 bits and what is not: autocast, O1, O2; empty: the operators' own"});
    v.field("full", full_,
            {.help = "what stays in f32: types and globs over node names, which semicolons separate"});
    v.field("low", low_, {.help = "what computes in 16 bits, likewise"});
    v.field("within", within_, {.help = "where 16 bits may be at all, likewise; empty: anywhere"});
    v.field("weights", weights_,
            {.help = "low: what is read in 16 bits is kept in 16 bits alone", .choices = {"full", "low"}});
  }
  Status run(Rewriter& rw) const override {
    PrecisionSpec spec;
    spec.list = list_;
    spec.low_weights = weights_ == "low";
    for (const auto& [text, patterns] :
         {std::pair{&full_, &spec.full}, std::pair{&low_, &spec.low}, std::pair{&within_, &spec.within}})
      for (const std::string& pattern : split_top_level(*text, ';'))
        if (!pattern.empty()) patterns->push_back(pattern);
    return Converter(rw, type_ == "f16" ? DType::f16 : DType::bf16,
                     TRY(PrecisionChoice::make(rw.graph(), spec)))
        .run();
  }

 private:
  std::string type_ = "bf16", list_, full_, low_, within_, weights_ = "full";
};

Result<PassExample> example() {
  const Type x_type{DType::f32, {4, 8}}, w_type{DType::f32, {8, 8}};
  const Attrs low{{"to", onnx_from_dtype(DType::bf16)}}, full{{"to", onnx_from_dtype(kFull)}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", x_type), w = b.input("w", w_type, Role::parameter);
  e.before.outputs = {b.op("ReduceMean", {b.op("Relu", {b.op("MatMul", {x, w})}), b.i64s({1})})};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", x_type), aw = a.input("w", w_type, Role::parameter);
  const ValueId product = a.op("MatMul", {a.op("Cast", {ax}, low), a.op("Cast", {aw}, low)});
  e.after.outputs = {a.op("ReduceMean", {a.op("Cast", {a.op("Relu", {product})}, full), a.i64s({1})})};
  return e;
}

}  // namespace

extern const PassDef mixed_precision_pass;
const PassDef mixed_precision_pass = {
    .name = "mixed-precision",
    .summary = "compute products and activations in bf16 or f16, parameters and sums in f32",
    .doc =
        "Switched by --precision bf16 and f16. Matrix products and convolutions compute in 16 bits, and so does "
        "what follows from them; losses, sums over many elements, exponentials, logarithms and powers, and "
        "what is computed from their results, stay in f32, as do statistics, scales and biases of "
        "normalizations. Parameters, optimizer states and gradients that reach the optimizer are f32. "
        "A site that is switched off is computed in f32.",
    .phase = PassPhase::pre_gradient,
    .by_precision = true,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new MixedPrecision); },
    .example = example,
};

}  // namespace gradloom
