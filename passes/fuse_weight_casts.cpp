// fuse-weight-casts: casts between f32 parameters and 16-bit products become part of the kernels on either side.
//   weight    Cast(p) of a parameter that Optimizer updates: a state of 16 bits with an update of its own, which the
//             optimizer writes beside p. It holds what the cast would give.
//   gradient  Cast(g) of a 16-bit gradient to f32 that Optimizer, GlobalNorm and Accumulate alone read: they read g.
#include <algorithm>
#include <optional>

#include "engine/ir/op.h"
#include "engine/ops/inference.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "engine/train/weight_copies.h"
#include "passes/casts.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

using namespace optimizer_inputs;

constexpr const char *kWeight = "weight", *kGradient = "gradient";

class FuseWeightCasts final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    std::optional<DType> type;
    for (const auto& [copy, of] : weight_copies(rw.graph())) type = rw.graph().type(copy).dtype;
    for (NodeId id : order) {
      const Node& node = rw.graph().nodes[id];
      if (!is_op(node, "Cast")) continue;
      const DType from = rw.graph().type(node.inputs[0]).dtype, to = rw.graph().type(node.outputs[0]).dtype;
      if (!is_half(from) && is_half(to)) weight(rw, id, type);
      if (is_half(from) && !is_half(to)) gradient(rw, id);
    }
    return {};
  }

 private:
  // The node that updates a parameter and its place there.
  struct Updater {
    NodeId node = kNone;
    std::size_t place = 0;
  };
  static Updater updater_of(const Rewriter& rw, ValueId parameter) {
    for (const Use& use : rw.uses(parameter)) {
      const Node& node = rw.graph().nodes[use.node];
      if (is_op(node, "Optimizer") && use.input_index >= kFirst &&
          use.input_index < kFirst + parameter_count(node.attrs))
        return {use.node, use.input_index - kFirst};
    }
    return {};
  }

  // `type`: of the copies, once there are any.
  static void weight(Rewriter& rw, NodeId cast, std::optional<DType>& type) {
    const Graph& graph = rw.graph();
    const ValueId parameter = graph.nodes[cast].inputs[0], low = graph.nodes[cast].outputs[0];
    if (graph.values[parameter].role != Role::parameter) return;
    if (!is_trained(graph, parameter)) return rw.reject(kWeight, cast, "the parameter is not trained");
    const Updater at = updater_of(rw, parameter);
    if (at.node == kNone) return rw.reject(kWeight, cast, "no optimizer updates the parameter");
    if (rw.is_output(low)) return rw.reject(kWeight, cast, "the cast is an output of the graph");
    if (is_shared(rw, graph.nodes[at.node].outputs[at.place]))
      return rw.reject(kWeight, cast, "each rank updates a part, and gets the others in f32 (pass zero)");
    const std::vector<std::int64_t> copies = graph.nodes[at.node].attrs.integers("copies");
    const auto place = static_cast<std::int64_t>(at.place);
    if (std::find(copies.begin(), copies.end(), place) != copies.end() ||
        graph.type(low).dtype != type.value_or(graph.type(low).dtype))
      return rw.reject(kWeight, cast, "the optimizer writes copies of another type");
    if (!rw.allowed(kWeight, cast)) return;
    type = graph.type(low).dtype;
    GraphBuilder& b = rw.begin(kWeight, cast, {cast});
    const WeightCopy copy = add_weight_copy(rw, b, at.node, at.place, *type);
    rw.update(copy.state, copy.next);
    rw.replace(low, copy.state);
    rw.commit();
  }

  static void gradient(Rewriter& rw, NodeId cast) {
    const Graph& graph = rw.graph();
    const ValueId low = graph.nodes[cast].inputs[0], wide = graph.nodes[cast].outputs[0];
    const std::vector<Use> uses = rw.uses(wide);
    const auto takes = [&](const Use& use) {
      return takes_low_gradient(graph.nodes[use.node], use.input_index);
    };
    if (std::none_of(uses.begin(), uses.end(), takes)) return;
    if (rw.is_output(wide) || !std::all_of(uses.begin(), uses.end(), takes))
      return rw.reject(kGradient, cast, "others than the update read the gradient in f32");
    if (!rw.allowed(kGradient, cast)) return;
    std::vector<NodeId> readers{cast};
    for (const Use& use : uses) readers.push_back(use.node);
    rw.begin(kGradient, cast, {cast});
    for (std::size_t i = 1; i < readers.size(); ++i) {
      const Node& reader = graph.nodes[readers[i]];
      std::vector<ValueId> inputs = reader.inputs;
      std::replace(inputs.begin(), inputs.end(), wide, low);
      Attrs attrs = reader.attrs;
      if (is_op(reader, "GlobalNorm") && graph.type(reader.outputs[0]).dtype == DType::f32)
        attrs.set("full", std::int64_t{1});
      rw.retype(readers[i], std::move(inputs), std::move(attrs));
    }
    rw.commit();
  }
};

// SGD of a parameter that a product reads in bf16.
Result<PassExample> example() {
  const Type x_type{DType::bf16, {4, 8}}, w_type{DType::f32, {8, 8}};
  const Attrs low{{"to", onnx_from_dtype(DType::bf16)}}, full{{"to", onnx_from_dtype(DType::f32)}};
  const auto build = [&](Graph& graph, bool fused) {
    GraphBuilder b(graph, {.origin = {{}, Phase::optimizer}});
    const ValueId x = b.input("x", x_type), dw = b.input("dw", {DType::bf16, {8, 8}});
    const ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper),
                  step = b.input("step", {DType::i64, {}}, Role::hyper);
    const ValueId w = b.parameter("w", Tensor(DType::f32, {8, 8}));
    const OpDef& optimizer = op_by_name("Optimizer");
    Attrs attrs{{"kind", std::string("sgd")}, {"n", std::int64_t{1}}};
    if (fused) {
      const ValueId copy = b.input("w/copy", {DType::bf16, {8, 8}}, Role::state);
      graph.outputs = {b.op("MatMul", {x, copy})};
      attrs.set("copies", std::vector<std::int64_t>{0});
      const auto next = b.ops(optimizer, {lr, step, kNone, kNone, w, dw, copy}, attrs, 2);
      graph.updates = {{w, next[0]}, {copy, next[1]}};
    } else {
      graph.outputs = {b.op("MatMul", {x, b.op("Cast", {w}, low)})};
      graph.updates = {
          {w, b.ops(optimizer, {lr, step, kNone, kNone, w, b.op("Cast", {dw}, full)}, attrs, 1)[0]}};
    }
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef fuse_weight_casts_pass;
const PassDef fuse_weight_casts_pass = {
    .name = "fuse-weight-casts",
    .summary = "the optimizer writes the 16-bit weights and reads 16-bit gradients",
    .doc =
        "Where a product reads a trained f32 parameter in bf16 or f16, the optimizer's kernel writes the rounded parameter "
        "for the next step, and the cast of every step is gone; the copy begins as the rounded initial parameter and is in "
        "no checkpoint. Gradients in 16 bits that only the update reads, with the global norm and the accumulator, are read "
        "as they are. Bit-equal.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new FuseWeightCasts); },
    .example = example,
};

}  // namespace gradloom
