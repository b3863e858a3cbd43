// FlexAttention-1 (domain ai.onnx.preview): attention whose scores and probabilities pass through subgraphs.
//   Y = prob_mod(softmax(score_mod(scale Q K^T))) V
// Q [B, Hq, L, E], K [B, Hkv, S, E], V [B, Hkv, S, Ev]; query head h has the key head h / (Hq / Hkv), so that
// the queries of one key head lie one behind the other: [B, Hkv, Hq / Hkv * L, E].
#include <cmath>
#include <optional>

#include "engine/base/text.h"
#include "engine/onnx/read/node_reader.h"
#include "engine/ops/inference.h"

namespace gradloom {
namespace {

struct FlexAttributes {
  std::optional<double> scale;
  std::int64_t softmax_precision = 0;
  const onnx::GraphProto *score_mod = nullptr, *prob_mod = nullptr;
};

Result<FlexAttributes> flex_attributes(const onnx::NodeProto& node) {
  FlexAttributes found;
  for (const auto& a : node.attribute()) {
    const std::string& name = a.name();
    if (name == "scale" && a.type() == onnx::AttributeProto::FLOAT && !found.scale) {
      found.scale = static_cast<double>(a.f());
    } else if (name == "softmax_precision" && a.type() == onnx::AttributeProto::INT) {
      found.softmax_precision = a.i();
    } else if (name == "score_mod" && a.has_g() && found.score_mod == nullptr) {
      found.score_mod = &a.g();
    } else if (name == "prob_mod" && a.has_g() && found.prob_mod == nullptr) {
      found.prob_mod = &a.g();
    } else {
      return bad_input("attribute '" + escaped(name) + "' is not one of it, of another type or given twice");
    }
  }
  return found;
}

}  // namespace

Result<ValueId> NodeReader::modified(const onnx::GraphProto* graph, const char* part, ValueId x,
                                     const Site& site, Names& names) {
  if (graph == nullptr) return x;
  if (graph->input_size() != 1 || graph->output_size() != 1)
    return bad_input(std::string(part) + " must have one input and one output");
  const Body* body = TRY(body_of(*graph, names, site));
  Names inner{&names, site.name + "/" + part + "/"};
  inner.values[graph->input(0).name()] = x;
  const ValueId y = TRY(read_body(*body, inner, site, std::string(".") + part))[0];
  if (is_sequence(y)) return bad_input(std::string(part) + " gives a sequence");
  const Value& made = out_.graph.values[y];
  if (!made.has_type) return not_followed(std::string("the type of ") + part + "'s output is not known");
  if (made.type != out_.graph.type(x))
    return bad_input(std::string(part) + " makes " + to_string(made.type) + " of " +
                     to_string(out_.graph.type(x)));
  return y;
}

Result<NodeReader::Values> NodeReader::read_flex_attention(const onnx::NodeProto& node, const Site& site,
                                                           Names& names) {
  const FlexAttributes attributes = TRY(flex_attributes(node));
  const Values inputs = resolve(node, names);
  if (inputs.size() != 3 || node.output_size() != 1)
    return bad_input("has the inputs Q, K and V and one output");
  for (const ValueId id : inputs) {
    if (id == kNone || is_sequence(id)) return bad_input("has the inputs Q, K and V");
    if (!out_.graph.values[id].has_type) return not_followed("the types of its inputs are not known");
  }
  const Type q = out_.graph.type(inputs[0]), k = out_.graph.type(inputs[1]), v = out_.graph.type(inputs[2]);
  if (!is_float(q.dtype) || k.dtype != q.dtype || v.dtype != q.dtype || q.shape.size() != 4 ||
      k.shape.size() != 4 || v.shape.size() != 4)
    return bad_input("Q, K and V must be floating point of one type and have rank 4");
  const std::int64_t heads = q.shape[1], key_heads = k.shape[1];
  if (heads < 0 || key_heads < 0 || q.shape[3] < 0)
    return not_followed("the number of heads or their size is not known");
  if (v.shape[1] != key_heads || key_heads == 0 || heads % key_heads != 0)
    return bad_input("its " + std::to_string(heads) + " query heads do not share the " +
                     std::to_string(key_heads) + " and " + std::to_string(v.shape[1]) + " heads of K and V");
  const auto differ = [](std::int64_t a, std::int64_t b) { return a >= 0 && b >= 0 && a != b; };
  if (differ(q.shape[0], k.shape[0]) || differ(q.shape[0], v.shape[0]) || differ(q.shape[3], k.shape[3]) ||
      differ(k.shape[2], v.shape[2]))
    return bad_input("Q " + to_string(q.shape) + ", K " + to_string(k.shape) + " and V " +
                     to_string(v.shape) + " do not fit");
  const bool grouped = heads != key_heads;
  if (grouped && (k.shape[2] < 0 || v.shape[3] < 0))
    return not_followed("the sizes of K and V are not known");
  const DType wide = q.dtype == DType::f64 ? DType::f64 : DType::f32;
  const DType work = attributes.softmax_precision == 0
                         ? wide
                         : options_.imported(TRY(dtype_from_onnx(attributes.softmax_precision)));
  if (!is_float(work)) return bad_input(std::string("softmax_precision is ") + dtype_name(work));
  const auto part = [&](const char* op, Values operands, Attrs attrs = {}) -> Result<ValueId> {
    const ValueId y = TRY(add_part(site, op, std::move(operands), std::move(attrs)));
    if (!out_.graph.values[y].has_type) return not_followed("types inside it cannot be inferred");
    return y;
  };
  const auto with_heads = [&](ValueId x, std::int64_t count) -> Result<ValueId> {
    if (!grouped) return x;
    return part("Reshape", {x, builder_.i64s({0, count, -1, out_.graph.type(x).shape[3]})});
  };
  const auto cast = [&](ValueId x, DType to) -> Result<ValueId> {
    if (out_.graph.type(x).dtype == to) return x;
    return part("Cast", {x}, {{"to", onnx_from_dtype(to)}});
  };

  const double scale = attributes.scale.value_or(1 / std::sqrt(static_cast<double>(q.shape[3])));
  const std::vector<std::int64_t> transposed = {0, 1, 3, 2};
  const ValueId keys = TRY(part("Transpose", {inputs[1]}, {{"perm", transposed}}));
  const ValueId product = TRY(part("MatMul", {TRY(with_heads(inputs[0], key_heads)), keys}));
  ValueId scores = TRY(cast(TRY(with_heads(product, heads)), work));
  scores = TRY(part("Mul", {scores, builder_.scalar(work, scale)}));
  scores = TRY(modified(attributes.score_mod, "score_mod", scores, site, names));
  ValueId probabilities = TRY(part("Softmax", {scores}, {{"axis", std::int64_t{-1}}}));
  probabilities = TRY(modified(attributes.prob_mod, "prob_mod", probabilities, site, names));
  const ValueId values = TRY(cast(inputs[2], work));
  const ValueId y = TRY(part("MatMul", {TRY(with_heads(probabilities, key_heads)), values}));
  return Values{TRY(cast(TRY(with_heads(y, heads)), q.dtype))};
}

}  // namespace gradloom
