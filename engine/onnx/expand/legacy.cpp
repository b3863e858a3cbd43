// Operators in the forms that they had before opset 7, as today's. Source: the ONNX operator changelog.
//   Add Sub Mul Div Pow And Or Xor Equal Less Greater   B broadcasts when asked, its axes from `axis` of A on
//   PRelu                                               one slope per channel (axis 1)
//   Gemm                                                C broadcasts when asked
//   BatchNormalization, Dropout                         is_test
// And of the experimental operators that ONNX dropped (1.5) the one that torch.onnx wrote, for the states of
// recurrent networks at opsets 7 and 8:
//   ConstantFill                                        `value` in the shape that an input holds, or has, or that
//                                                       is given, with `extra_shape` after it
#include "engine/onnx/expand/expansion.h"
#include "engine/onnx/file/types.h"
#include "engine/ops/inference.h"

namespace gradloom {

namespace {

// x with axes of length 1 after its own, so that its first axis lies on `axis` of a tensor of `rank`.
Result<ValueId> aligned(Expander& e, ValueId x, std::int64_t axis, std::size_t rank) {
  const std::size_t own = e.rank(x);
  if (static_cast<std::size_t>(axis) + own > rank)
    return infer_error("axis " + std::to_string(axis) + " leaves no room for " + std::to_string(own) +
                       " axes");
  const std::size_t after = rank - own - static_cast<std::size_t>(axis);
  if (own == 0 || after == 0) return x;
  std::vector<std::int64_t> shape(own, 0);  // 0 copies
  shape.resize(own + after, 1);
  return e.reshape(x, shape);
}

template <int name>
Status broadcast(Expander& e) {
  static constexpr const char* kNames[] = {"Add", "Sub", "Mul",   "Div",  "Pow",    "And",
                                           "Or",  "Xor", "Equal", "Less", "Greater"};
  ValueId b = e.in(1);
  if (e.attrs.has("axis") && e.attrs.integer("broadcast") != 0)
    b = TRY(aligned(e, b, TRY(normalized_axis(e.attrs.integer("axis"), e.rank(e.in(0)))), e.rank(e.in(0))));
  e.outputs[0] = TRY(e.op(kNames[name], {e.in(0), b}));
  return {};
}

Status prelu(Expander& e) {
  const ValueId x = e.in(0), slope = e.in(1);
  const bool per_channel = e.rank(slope) == 1 && e.shape(slope)[0] != 1 && e.rank(x) > 1;
  e.outputs[0] = TRY(e.op("PRelu", {x, per_channel ? TRY(aligned(e, slope, 1, e.rank(x))) : slope}));
  return {};
}

Status gemm(Expander& e) {
  Attrs attrs = e.attrs;
  attrs.erase("broadcast");
  e.outputs[0] = TRY(e.op("Gemm", {e.in(0), e.in(1), e.in(2)}, std::move(attrs)));
  return {};
}

Status batch_normalization(Expander& e) {
  if (e.attrs.integer("is_test") == 0) return e.unsupported("its training form before opset 7");
  if (e.attrs.integer("spatial", 1) == 0) return e.unsupported("attribute 'spatial' = 0");
  const ValueId x = e.in(0);
  e.outputs[0] = TRY(e.op("BatchNormalization", {x, e.in(1), e.in(2), e.in(3), e.in(4)},
                          {{"epsilon", e.attrs.real("epsilon", 1e-5)}}));
  return {};
}

Status dropout(Expander& e) {
  const ValueId x = e.in(0);
  if (e.attrs.integer("is_test") != 0) {
    if (e.wants(1)) return e.unsupported("the mask of its test form before opset 7");
    e.outputs[0] = TRY(e.op("Identity", {x}));
    return {};
  }
  const auto dropped =
      TRY(e.ops("Dropout", {x, e.scalar(e.dtype(x), e.attrs.real("ratio", 0.5)), e.scalar(DType::boolean, 1)},
                {}, e.wants(1) ? 2 : 1));
  for (std::size_t k = 0; k < dropped.size(); ++k) e.outputs[k] = dropped[k];
  return {};
}

Status constant_fill(Expander& e) {
  const DType type = TRY(dtype_from_onnx(e.attrs.integer("dtype", onnx_from_dtype(DType::f32))));
  ValueId shape = e.has(0) ? e.in(0) : e.ints(e.attrs.integers("shape"));
  if (e.has(0) && e.attrs.integer("input_as_shape") == 0) shape = TRY(e.op("Shape", {shape}));
  shape = TRY(e.cast(shape, DType::i64));
  if (e.has(0) && e.attrs.has("extra_shape"))
    shape =
        TRY(e.op("Concat", {shape, e.ints(e.attrs.integers("extra_shape"))}, {{"axis", std::int64_t{0}}}));
  const Tensor value = Tensor::from_f64(type, {1}, {e.attrs.real("value")});
  e.outputs[0] = TRY(e.op("ConstantOfShape", {shape}, {{"value", value}}));
  return {};
}

}  // namespace

std::span<const Expansion> legacy_expansions() {
  using A = onnx::AttributeProto;
  static const std::vector<Expansion> kTable = {
      {"Add", "", 1, 6, 2, 2, 1, broadcast<0>, {}},
      {"Sub", "", 1, 6, 2, 2, 1, broadcast<1>, {}},
      {"Mul", "", 1, 6, 2, 2, 1, broadcast<2>, {}},
      {"Div", "", 1, 6, 2, 2, 1, broadcast<3>, {}},
      {"Pow", "", 1, 6, 2, 2, 1, broadcast<4>, {}},
      {"And", "", 1, 6, 2, 2, 1, broadcast<5>, {}},
      {"Or", "", 1, 6, 2, 2, 1, broadcast<6>, {}},
      {"Xor", "", 1, 6, 2, 2, 1, broadcast<7>, {}},
      {"Equal", "", 1, 6, 2, 2, 1, broadcast<8>, {}},
      {"Less", "", 1, 6, 2, 2, 1, broadcast<9>, {}},
      {"Greater", "", 1, 6, 2, 2, 1, broadcast<10>, {}},
      {"PRelu", "", 1, 6, 2, 2, 1, prelu, {}},
      {"Gemm", "", 1, 6, 3, 3, 1, gemm, {}},
      {"BatchNormalization", "", 1, 6, 5, 5, 5, batch_normalization, {}},
      {"Dropout", "", 1, 6, 1, 1, 2, dropout, {}},
      {"ConstantFill",
       "",
       1,
       kNewest,
       0,
       1,
       1,
       constant_fill,
       {{"dtype", A::INT},
        {"value", A::FLOAT},
        {"input_as_shape", A::INT},
        {"shape", A::INTS},
        {"extra_shape", A::INTS}}},
  };
  return kTable;
}

}  // namespace gradloom
