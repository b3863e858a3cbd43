// fp8: products of linear layers, and those of their gradients, in numbers of 8 bits with delayed scaling (engine/ops/products/fp8.h).
//   product  y = x w          becomes  y = Fp8MatMul(x8, w8, ..), x8, .. = Fp8Quantize(x, scales), w8 likewise, both E4M3
//            dx = dy w^T, dw = x^T dy  likewise, of the same x8 and w8, and dy8, which is E5M2
//   scales   with scaling=delayed and an optimizer, history, scales = Fp8Scales(history, scales, magnitudes of all tensors): two states for
//            all of them
// A tensor is rounded once, where it is read first. Source: Micikevicius et al. 2022; NVIDIA Transformer Engine (DelayedScaling, HYBRID).
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/hash.h"
#include "engine/ir/op.h"
#include "engine/ir/views.h"
#include "engine/ops/inference.h"
#include "engine/ops/products/fp8.h"
#include "engine/train/weight_copies.h"
#include "passes/pass.h"
#include "passes/product.h"

namespace gradloom {
namespace {

constexpr const char *kProduct = "product", *kScales = "scales";
constexpr std::int64_t kMultiple = 16;  // of dims, as cuBLASLt's products of 8 bits want them
constexpr std::size_t kHashDigits = 12;

// A product of an activation with a weight, and where its operands come from, behind views.
struct LinearLayer {
  NodeId node = kNone;
  ValueId x = kNone, w = kNone;
};

// What is rounded: a tensor, behind views, in a format, and what comes of it. Its place among the scales is that in the list.
struct Rounded {
  ValueId root = kNone;
  const Fp8Format* format = nullptr;
  ValueId codes = kNone, inverse = kNone, amax = kNone;
};

// A product that is replaced, and which of the tensors it reads.
struct Replaced {
  NodeId node = kNone;
  std::size_t a = 0, b = 0;
};

class Fp8 final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field(
        "scaling", scaling_,
        {.help =
             "a tensor's scale comes of its magnitudes in the last steps, or of its own, which is read first",
         .choices = {"delayed", "current"}});
    v.field(
        "history", history_,
        {.help = "steps of which the largest magnitude of a tensor sets its scale", .min = 1, .max = 1024});
    v.field(
        "margin", margin_,
        {.help = "powers of two by which magnitudes may grow until they are cut off", .min = 0, .max = 15});
    v.field("gradients", gradients_,
            {.help = "format of gradients: e5m2 of more range, e4m3 of more digits",
             .choices = {"e5m2", "e4m3"}});
    v.field(
        "least", least_,
        {.help = "products with a dim below this stay as they are: there rounding takes longer than it saves",
         .min = kMultiple,
         .max = 1 << 20});
  }

  Status run(Rewriter& rw) const override {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    std::vector<Rounded> tensors;
    const std::vector<Replaced> found = find(rw, order, tensors);
    if (found.empty()) return {};
    const bool delayed = is_delayed(rw.graph());
    ValueId history = kNone, scales = kNone;
    for (const Replaced& one : found) {
      const Node node = rw.graph().nodes[one.node];
      GraphBuilder& b = rw.begin(kProduct, one.node, {one.node});
      if (delayed && scales == kNone) {
        const auto count = static_cast<std::int64_t>(tensors.size());
        const std::string names = names_of(rw.graph(), tensors);
        history = b.state(b.unique_name(kFp8StatePrefix + ("history." + names)),
                          Tensor(DType::f32, {history_, count}));
        scales = b.state(b.unique_name(kFp8StatePrefix + ("scales." + names)), Tensor(DType::f32, {count}));
      }
      rw.replace(node.outputs[0], product_of_codes(b, one, scales, tensors));
      rw.commit();
    }
    return delayed ? add_scales(rw, history, scales, tensors) : Status{};
  }

 private:
  // Whether scales follow the steps: a module's, or a gradient's without an update, have nothing to keep them in.
  bool is_delayed(const Graph& graph) const {
    const auto updates = [](const Node& node) { return node.alive() && is_op(node, "Optimizer"); };
    return scaling_ == "delayed" && std::any_of(graph.nodes.begin(), graph.nodes.end(), updates);
  }

  // Why nothing of this graph is for products of 8 bits; empty: something may be.
  std::string unfit(const Graph& graph) const {
    const auto exchanges = [](const Node& node) {
      return node.alive() && node.op->exchange != RankExchange::none;
    };
    if (is_delayed(graph) && std::any_of(graph.nodes.begin(), graph.nodes.end(), exchanges))
      return "each of several ranks would follow other magnitudes (scaling=current: none are followed)";
    return "";
  }

  // ---- which products -----------------------------------------------------------------------------------------

  std::vector<Replaced> find(Rewriter& rw, const std::vector<NodeId>& order,
                             std::vector<Rounded>& tensors) const {
    const Graph& graph = rw.graph();
    const std::map<ValueId, ValueId> copies = weight_copies(graph);
    const std::string never = unfit(graph);
    std::vector<LinearLayer> layers;
    std::vector<Replaced> found;
    for (const NodeId id : order) {
      const auto product = read_product(graph, id);
      if (!product) continue;
      const Node& node = graph.nodes[id];
      const bool backward = node.origin.phase == Phase::backward;
      const LinearLayer layer{id, behind_views(graph, product->a), behind_views(graph, product->b)};
      Rounded left{layer.x, find_fp8_format("e4m3")}, right{layer.w, find_fp8_format("e4m3")};
      std::string why = never;
      if (backward) {
        if (!is_gradient(graph, layers, id, left, right)) continue;
      } else {
        if (!is_weight(graph, copies, layer.w)) continue;
        if (why.empty() && meets_labels(rw, node.outputs[0]))
          why = "its results are scores of classes, of which the loss needs every digit";
      }
      if (why.empty()) why = problem(graph, node, *product);
      if (!why.empty()) {
        rw.reject(kProduct, id, why);
        continue;
      }
      if (!rw.allowed(kProduct, id)) continue;
      if (!backward) layers.push_back(layer);
      const std::size_t a = place_of(tensors, left), b = place_of(tensors, right);
      found.push_back({id, a, b});
    }
    return found;
  }

  static std::size_t place_of(std::vector<Rounded>& tensors, const Rounded& wanted) {
    const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const Rounded& tensor) {
      return tensor.root == wanted.root && tensor.format == wanted.format;
    });
    if (at != tensors.end()) return static_cast<std::size_t>(at - tensors.begin());
    tensors.push_back(wanted);
    return tensors.size() - 1;
  }

  // Of a parameter or its 16-bit copy, as it is, cast or transposed.
  static bool is_weight(const Graph& graph, const std::map<ValueId, ValueId>& copies, ValueId value) {
    for (NodeId maker = graph.values[value].producer; maker != kNone; maker = graph.values[value].producer) {
      const Node& node = graph.nodes[maker];
      if (!node.op->has(kView) && !node.op->has(kPermutes) && !is_op(node, "Cast")) return false;
      value = node.inputs[0];
    }
    return graph.values[value].role == Role::parameter || copies.count(value) != 0;
  }

  // Whether the product is of one of the layers' operands and its gradient, which gets its format.
  bool is_gradient(const Graph& graph, const std::vector<LinearLayer>& layers, NodeId id, Rounded& left,
                   Rounded& right) const {
    const std::vector<std::uint32_t>& sources = graph.nodes[id].origin.sources;
    for (const LinearLayer& layer : layers) {
      const std::vector<std::uint32_t>& own = graph.nodes[layer.node].origin.sources;
      if (std::find_first_of(own.begin(), own.end(), sources.begin(), sources.end()) == own.end()) continue;
      const auto is_known = [&](const Rounded& r) { return r.root == layer.x || r.root == layer.w; };
      if (is_known(left) == is_known(right)) continue;
      (is_known(left) ? right : left).format = find_fp8_format(gradients_);
      return true;
    }
    return false;
  }

  // Whether an operator with labels reads the value, as it is or moved, cast and added to.
  static bool meets_labels(const Rewriter& rw, ValueId value) {
    const Graph& graph = rw.graph();
    std::vector<ValueId> open = {value};
    std::set<ValueId> seen;
    while (!open.empty()) {
      const ValueId at = open.back();
      open.pop_back();
      if (!seen.insert(at).second) continue;
      for (const Use& use : rw.uses(at)) {
        const Node& reader = graph.nodes[use.node];
        const auto& roles = reader.op->roles;
        if (std::any_of(roles.begin(), roles.end(), [&](const InputRole& role) {
              return role.use == InputUse::labels && role.of == use.input_index;
            }))
          return true;
        if (reader.op->has(kView) || reader.op->has(kPermutes) || is_op(reader, "Cast") ||
            is_op(reader, "Add") || is_op(reader, "LogSoftmax"))
          open.push_back(reader.outputs[0]);
      }
    }
    return false;
  }

  // Why not; empty: the product may be one of 8 bits.
  std::string problem(const Graph& graph, const Node& node, const Product& p) const {
    const Type &a = graph.type(p.a), &b = graph.type(p.b);
    if (!shapes_known(graph, node)) return "its sizes are not known";
    if (a.dtype == DType::f64) return "f64 is for proofs, and stays exact";
    if (!is_float(a.dtype)) return "it multiplies integers";
    if (b.shape.size() != 2) return "its second operand is more than one matrix";
    if (p.bias != kNone && p.perm_y != identity_perm(p.perm_y.size()))
      return "its bias is not along the last dim";
    const Shape left = permuted(a.shape, p.perm_a), right = permuted(b.shape, p.perm_b);
    const std::int64_t k = right[0], n = right[1];
    if (k == 0 || n == 0) return "it multiplies nothing";
    const std::int64_t rows = element_count(graph.type(node.outputs[0]).shape) / n;
    const std::string sizes = std::to_string(rows) + " x " + std::to_string(n) + " x " + std::to_string(k);
    for (const std::int64_t dim : {rows, n, k}) {
      if (dim % kMultiple != 0) return sizes + ": a dim is no multiple of " + std::to_string(kMultiple);
      if (dim < least_) return sizes + ": a dim is below least=" + std::to_string(least_);
    }
    return "";
  }

  // ---- what takes their place ---------------------------------------------------------------------------------

  // Another choice of tensors has states of other names: a checkpoint's are not taken for those of other tensors.
  static std::string names_of(const Graph& graph, const std::vector<Rounded>& tensors) {
    std::string all;
    for (const Rounded& tensor : tensors)
      all += graph.values[tensor.root].name + " " + tensor.format->name + "\n";
    return hash_hex(all).substr(0, kHashDigits);
  }

  // The codes in the shape of `operand`. Without scales by its own magnitude.
  static ValueId rounded(GraphBuilder& b, ValueId operand, ValueId scales, std::vector<Rounded>& tensors,
                         std::size_t slot) {
    Rounded& tensor = tensors[slot];
    if (tensor.codes == kNone) {
      Attrs attrs{{"format", std::string(tensor.format->name)}};
      std::vector<ValueId> inputs = {operand};
      const bool delayed = scales != kNone;
      if (delayed) attrs.set("slot", static_cast<std::int64_t>(slot));
      if (delayed) inputs.push_back(scales);
      const auto made =
          b.ops(op_by_name("Fp8Quantize"), std::move(inputs), std::move(attrs), delayed ? 3 : 2);
      tensor.codes = made[0];
      tensor.inverse = made[1];
      if (delayed) tensor.amax = made[2];
    }
    if (b.shape(tensor.codes) == b.shape(operand)) return tensor.codes;
    return b.reshape(tensor.codes, b.shape(operand));
  }

  static ValueId product_of_codes(GraphBuilder& b, const Replaced& one, ValueId scales,
                                  std::vector<Rounded>& tensors) {
    const Product p = *read_product(b.graph(), one.node);  // its operands may be results of those before it
    const ValueId left = rounded(b, p.a, scales, tensors, one.a),
                  right = rounded(b, p.b, scales, tensors, one.b);
    Attrs attrs = layout_attrs(p);
    attrs.set("to", onnx_from_dtype(b.type(p.a).dtype));
    ValueId y =
        b.op("Fp8MatMul", {left, right, tensors[one.a].inverse, tensors[one.b].inverse}, std::move(attrs));
    if (p.bias != kNone) y = b.op("Add", {y, p.bias});
    if (p.activation == "relu") y = b.op("Relu", {y});
    return y;
  }

  // When all tensors of the step, or of a micro-batch, have been rounded. Anchored where the last one was.
  Status add_scales(Rewriter& rw, ValueId history, ValueId scales,
                    const std::vector<Rounded>& tensors) const {
    const Graph& graph = rw.graph();
    std::vector<ValueId> magnitudes;
    for (const Rounded& tensor : tensors) magnitudes.push_back(tensor.amax);
    GraphBuilder& b = rw.begin(kScales, graph.values[magnitudes.back()].producer, {});
    const BuildScope after(
        b, {{{}, Phase::optimizer, b.context().origin.passes}, optimizer_rank(graph), "fp8/"});
    const ValueId all = b.op("Concat", magnitudes, {{"axis", std::int64_t{0}}});
    const auto next = b.ops(op_by_name("Fp8Scales"), {history, scales, all}, {{"margin", margin_}}, 2);
    rw.update(history, next[0]);
    rw.update(scales, next[1]);
    rw.commit("of " + std::to_string(tensors.size()) + " tensors");
    return {};
  }

  static std::int64_t optimizer_rank(const Graph& graph) {
    std::int64_t rank = 0;
    for (const Node& node : graph.nodes)
      if (node.alive() && is_op(node, "Optimizer")) rank = std::max(rank, node.rank);
    return rank;
  }

  std::int64_t history_ = 16, margin_ = 0, least_ = 512;
  std::string scaling_ = "delayed", gradients_ = "e5m2";
};

// A layer of which the weight's gradient alone is wanted, with SGD.
Result<PassExample> example() {
  const Type x_type{DType::f32, {512, 512}}, w_type{DType::f32, {512, 512}};
  const auto build = [&](Graph& graph, bool rounded) {
    const BuildContext backward{.origin = {{0}, Phase::backward}, .rank = 1},
        update{.origin = {{}, Phase::optimizer}, .rank = 2};
    graph.sources = {{"layer", "MatMul", "", ""}};
    GraphBuilder b(graph, {.origin = {{0}, Phase::forward}});
    const ValueId x = b.input("x", x_type), dy = b.input("dy", x_type);
    const ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper),
                  step = b.input("step", {DType::i64, {}}, Role::hyper);
    const ValueId w = b.parameter("w", Tensor(DType::f32, {512, 512}));
    const Attrs turned{{"perm_a", Perm{1, 0}}};
    ValueId y = kNone, dw = kNone, history = kNone, scales = kNone;
    std::vector<ValueId> magnitudes;
    const auto quantize = [&](ValueId value, const char* format) {
      const auto slot = static_cast<std::int64_t>(magnitudes.size());
      const auto made = b.ops(op_by_name("Fp8Quantize"), {value, scales},
                              {{"format", std::string(format)}, {"slot", slot}}, 3);
      magnitudes.push_back(made[2]);
      return made;
    };
    if (rounded) {
      history = b.state("history", Tensor(DType::f32, {16, 3}));
      scales = b.state("scales", Tensor(DType::f32, {3}));
      const Attrs to{{"to", onnx_from_dtype(DType::f32)}};
      const auto x8 = quantize(x, "e4m3"), w8 = quantize(w, "e4m3");
      y = b.op("Fp8MatMul", {x8[0], w8[0], x8[1], w8[1]}, to);
      const BuildScope scope(b, backward);
      const auto dy8 = quantize(dy, "e5m2");
      Attrs of_weight = turned;
      of_weight.set("to", onnx_from_dtype(DType::f32));
      dw = b.op("Fp8MatMul", {x8[0], dy8[0], x8[1], dy8[1]}, of_weight);
    } else {
      y = b.op("MatMul", {x, w});
      const BuildScope scope(b, backward);
      dw = b.op("FusedMatMul", {x, dy}, turned);
    }
    const BuildScope scope(b, update);
    const Attrs sgd{{"kind", std::string("sgd")}, {"n", std::int64_t{1}}};
    const ValueId next = b.ops(op_by_name("Optimizer"), {lr, step, kNone, kNone, w, dw}, sgd, 1)[0];
    b.update(w, next);
    graph.outputs = {y};
    if (!rounded) return;
    const ValueId all = b.op("Concat", magnitudes, {{"axis", std::int64_t{0}}});
    const auto kept =
        b.ops(op_by_name("Fp8Scales"), {history, scales, all}, {{"margin", std::int64_t{0}}}, 2);
    b.update(history, kept[0]);
    b.update(scales, kept[1]);
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef fp8_pass;
const PassDef fp8_pass = {
    .name = "fp8",
    .summary = "multiply the weights of linear layers in 8 bits, with scales that follow magnitudes",
    .doc =
        "Products with weights, and those that make their gradients, read numbers of 8 bits: E4M3 in the forward pass, E5M2 for "
        "gradients (FP8 as in Micikevicius et al. 2022). Each tensor is scaled before it is rounded, by what its largest magnitudes in the "
        "last steps were (delayed scaling, as NVIDIA's Transformer Engine); in its first step, and without an optimizer, by its own. Sums are f32, results of the "
        "type that they had, parameters and optimizer as they were. Magnitudes and scales are states, which checkpoints keep. That is "
        "another training than without: off until it is named. Left as they are: products whose dims are no multiples of 16 or below "
        "`least`, scores of classes, and all of a layer whose product in the forward pass is switched off.",
    .phase = PassPhase::post_gradient,
    .by_default = false,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new Fp8); },
    .example = example,
};

}  // namespace gradloom
