// Products and attention.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/products/fp8.h"
#include "engine/ops/products/matrix_product.h"
#include "engine/onnx/write/bodies.h"

namespace gradloom {
namespace {

using Values = std::vector<ValueId>;

// The last two dims changed places.
Perm turned(std::size_t rank) {
  Perm perm(rank);
  std::iota(perm.begin(), perm.end(), std::int64_t{0});
  std::swap(perm[rank - 1], perm[rank - 2]);
  return perm;
}

// alpha A' B'
ValueId product(Body& body, ValueId a, ValueId b) {
  a = body.transpose(a, body.attrs().integers("perm_a"));
  b = body.transpose(b, body.attrs().integers("perm_b"));
  const ValueId p = body.op("MatMul", {a, b});
  const double alpha = body.attrs().real("alpha", 1);
  return alpha == 1 ? p : body.op("Mul", {p, body.number_like(p, alpha)});
}

Result<Values> fused_matmul(Body& body) {
  ValueId p = product(body, body.in[0], body.in[1]);
  if (body.has(2)) p = body.op("Add", {p, body.in[2]});
  const ValueId before = p;
  const std::string activation = body.attrs().text("activation", "none");
  if (activation == "relu") p = body.op("Relu", {p});
  if (activation == "gelu_tanh") p = gelu(body, p, true);
  ValueId y = body.transpose(p, body.attrs().integers("perm_y"));
  if (body.has(3)) y = body.op("Add", {y, body.in[3]});
  return Values{y, before};
}

Result<Values> fused_matmul_grad(Body& body) {
  ValueId y = body.transpose(product(body, body.in[0], body.in[1]), body.attrs().integers("perm_y"));
  if (body.attrs().text("activation", "none") == "gelu_tanh")
    y = body.op("Mul", {y, gelu_slope(body, body.in[2], true)});
  Values results = {y};
  const std::string sums = body.attrs().text("sums", "none");
  if (sums != "none") results.push_back(body.sum(body.in[sums == "a" ? 0 : 1], {0}));
  return results;
}

// Whether each row belongs to each group, as ones and zeros of x's type: [rows, groups].
ValueId memberships(Body& body, ValueId x, ValueId ends) {
  const std::int64_t rows = body.shape(x)[0], groups = body.shape(ends)[0];
  // Ends may be out of order: the largest so far counts.
  const ValueId number =
      body.op("Range", {body.number(DType::i64, 0), body.number(DType::i64, static_cast<double>(rows)),
                        body.number(DType::i64, 1)});
  const ValueId inside = body.cast(
      body.op("Less", {body.reshape(number, {rows, 1}), body.reshape(ends, {1, groups})}), body.dtype(x));
  // A row belongs to the first group whose end is behind it: where the running sum becomes 1.
  const ValueId count = body.op("CumSum", {inside, body.number(DType::i64, 1)});
  return body.op("Mul",
                 {inside, body.cast(body.op("Equal", {count, body.number_like(x, 1)}), body.dtype(x))});
}

Result<Values> grouped_matmul(Body& body) {
  const ValueId x = body.in[0], w = body.in[1];
  const std::int64_t rows = body.shape(x)[0], width = body.shape(x)[1], groups = body.shape(w)[0];
  const ValueId member =
      body.reshape(body.transpose(memberships(body, x, body.in[2]), {1, 0}), {groups, rows, 1});
  const ValueId matrices = body.attrs().integer("transposed", 0) != 0 ? body.transpose(w, {0, 2, 1}) : w;
  const ValueId own = body.op("Mul", {body.reshape(x, {1, rows, width}), member});
  return Values{body.sum(body.op("MatMul", {own, matrices}), {0})};
}

Result<Values> grouped_contraction(Body& body) {
  const ValueId a = body.in[0], b = body.in[1];
  const std::int64_t rows = body.shape(a)[0], width = body.shape(a)[1], groups = body.shape(body.in[2])[0];
  const ValueId member =
      body.reshape(body.transpose(memberships(body, a, body.in[2]), {1, 0}), {groups, 1, rows});
  const ValueId own = body.op("Mul", {body.reshape(body.transpose(a, {1, 0}), {1, width, rows}), member});
  return Values{body.op("MatMul", {own, b})};
}

Result<Values> accumulate_matmul(Body& body) {
  const ValueId y = body.transpose(product(body, body.in[2], body.in[3]), body.attrs().integers("perm_y"));
  return Values{body.accumulated(body.in[0], body.in[1], y)};
}

// ---- products of 8 bits (engine/ops/products/fp8_matmul.cpp) --------------------------------------------------------

Result<Values> fp8_quantize(Body& body) {
  const Fp8Format* const format = find_fp8_format(body.attrs().text("format", "e4m3"));
  if (format == nullptr) return infer_error("the format is unknown");
  const DType kept = body.dtype(body.in[0]) == DType::f64 ? DType::f64 : DType::f32;
  const ValueId x = body.cast(body.in[0], DType::f32), zero = body.number(DType::f32, 0);
  const auto n = [&](double value) { return body.number(DType::f32, value); };
  const ValueId largest = body.op("ReduceMax", {body.op("Abs", {x})}, {{"keepdims", std::int64_t{0}}});
  const ValueId part = body.reshape(body.op("Div", {largest, n(format->largest)}), {1});
  const ValueId own =
      body.op("Max", {body.op("Min", {body.op("Reciprocal", {part}), n(kMostFp8Scale)}), n(kLeastFp8Scale)});
  ValueId scale = body.op("Where", {body.op("Greater", {part, zero}), own, n(1)});
  if (body.has(1)) {
    const ValueId slot = body.b.i64s({body.attrs().integer("slot")});
    const ValueId given = body.cast(body.op("Gather", {body.in[1], slot}), DType::f32);
    scale = body.op("Where", {body.op("Greater", {given, zero}), given, scale});
  }
  const ValueId nothing = body.op("Sub", {x, x});  // 0 of what is finite, else NaN
  const ValueId scaled =
      body.op("Where", {body.op("Equal", {nothing, zero}), body.op("Mul", {x, scale}), nothing});
  return Values{body.cast(scaled, format->dtype), body.cast(body.op("Reciprocal", {scale}), kept),
                body.cast(part, kept)};
}

Result<Values> fp8_matmul(Body& body) {
  const DType sums = body.dtype(body.in[2]);
  const ValueId p = product(body, body.cast(body.in[0], sums), body.cast(body.in[1], sums));
  const ValueId y = body.op("Mul", {p, body.op("Mul", {body.in[2], body.in[3]})});
  return Values{body.cast(body.transpose(y, body.attrs().integers("perm_y")), body.types.outputs[0].dtype)};
}

// ---- attention ------------------------------------------------------------------------------------------------

struct Heads {
  ValueId q, k, v, scores, probabilities;  // in the layout of the products
};

// With dropout: some of the probabilities, or of their gradients, dropped by the same random numbers.
ValueId dropped(Body& body, ValueId x) {
  const double ratio = body.attrs().real("dropout", 0);
  return ratio > 0 ? body.dropped(x, ratio, random_key(body.attrs(), body.types.node_name)) : x;
}

// `first`: which input q is.
Result<Heads> heads(Body& body, std::size_t first) {
  const Attrs& attrs = body.attrs();
  if (attrs.integer("safe") != 0) return infer_error("rows that see nothing");
  Heads h{};
  h.q = body.transpose(body.in[first], attrs.integers("perm_q"));
  h.k = body.transpose(body.in[first + 1], attrs.integers("perm_k"));
  h.v = body.transpose(body.in[first + 2], attrs.integers("perm_v"));
  const std::size_t rank = body.shape(h.q).size();
  ValueId scores = body.op("MatMul", {h.q, body.transpose(h.k, turned(rank))});
  scores = body.op("Mul", {scores, body.number_like(scores, attrs.real("scale", 1))});
  if (body.has(first + 3)) {
    const ValueId mask = body.in[first + 3];
    const std::string mode = attrs.text("mask");
    const ValueId fill = body.number_like(scores, attrs.real("fill", -INFINITY));
    if (mode == "add") scores = body.op("Add", {scores, mask});
    if (mode == "keep") scores = body.op("Where", {mask, scores, fill});
    if (mode == "block") scores = body.op("Where", {mask, fill, scores});
  }
  h.scores = scores;
  h.probabilities = body.op("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  return h;
}

// From log-sum-exp, where it tells them.
ValueId probabilities_again(Body& body, const Heads& h, ValueId log_sum_exp) {
  Shape column = body.shape(log_sum_exp);
  column.push_back(1);
  const ValueId sums = body.reshape(log_sum_exp, column);
  const ValueId tells =
      body.op("LessOrEqual", {body.op("Abs", {sums}), body.number_like(sums, kernels::kTellingLogSumExp)});
  const ValueId shares = body.op("Exp", {body.op("Sub", {body.cast(h.scores, body.dtype(sums)), sums})});
  return body.op("Where", {tells, body.cast(shares, body.dtype(h.scores)), h.probabilities});
}

// From the layout of the products back to how the operand lies.
ValueId back(Body& body, ValueId x, const char* perm) {
  const Perm forward = body.attrs().integers(perm);
  return body.transpose(x, forward.empty() ? forward : inverse(forward));
}

Result<Values> fused_attention(Body& body) {
  const Heads h = TRY(heads(body, 0));
  Values results = {body.transpose(body.op("MatMul", {dropped(body, h.probabilities), h.v}),
                                   body.attrs().integers("perm_y"))};
  if (body.types.wants(1)) {
    const auto last = static_cast<std::int64_t>(body.shape(h.scores).size()) - 1;
    const ValueId wide = body.cast(h.scores, body.types.outputs[1].dtype);
    results.push_back(
        body.op("ReduceLogSumExp", {wide, body.b.i64s({last})}, {{"keepdims", std::int64_t{0}}}));
  }
  return results;
}

Result<Values> fused_attention_grad(Body& body) {
  constexpr std::size_t kOperands = 3;  // behind dy, y and log-sum-exp
  const Heads h = TRY(heads(body, kOperands));
  const ValueId dy = back(body, body.in[0], "perm_y"), p = probabilities_again(body, h, body.in[2]);
  const std::size_t rank = body.shape(h.q).size();
  const auto last = static_cast<std::int64_t>(rank) - 1;
  const ValueId dv = body.op("MatMul", {body.transpose(dropped(body, p), turned(rank)), dy});
  const ValueId dp = dropped(body, body.op("MatMul", {dy, body.transpose(h.v, turned(rank))}));
  const ValueId share = body.sum(body.op("Mul", {p, dp}), {last}, true);
  ValueId ds = body.op("Mul", {body.op("Mul", {p, body.op("Sub", {dp, share})}),
                               body.number_like(p, body.attrs().real("scale", 1))});
  const std::string mode = body.attrs().text("mask");
  const ValueId zero = body.number_like(p, 0);  // what the mask put there depends on nothing
  if (body.has(kOperands + 3) && mode == "keep") ds = body.op("Where", {body.in[kOperands + 3], ds, zero});
  if (body.has(kOperands + 3) && mode == "block") ds = body.op("Where", {body.in[kOperands + 3], zero, ds});
  const ValueId dq = body.op("MatMul", {ds, h.k}),
                dk = body.op("MatMul", {body.transpose(ds, turned(rank)), h.q});
  return Values{back(body, dq, "perm_q"), back(body, dk, "perm_k"), back(body, dv, "perm_v")};
}

}  // namespace

const Bodies& product_bodies() {
  static const Bodies bodies = {
      {"FusedMatMul", fused_matmul},
      {"FusedMatMulGrad", fused_matmul_grad},
      {"AccumulateMatMul", accumulate_matmul},
      {"Fp8MatMul", fp8_matmul},
      {"Fp8Quantize", fp8_quantize},
      {"GroupedContraction", grouped_contraction},
      {"GroupedMatMul", grouped_matmul},
      {"FusedAttention", fused_attention},
      {"FusedAttentionGrad", fused_attention_grad},
  };
  return bodies;
}

}  // namespace gradloom
