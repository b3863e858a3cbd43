// Jobs of networks that compute what they need not, and of healthy ones that look alike.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/app/advice_support.h"

namespace gradloom::advice_jobs {

class AdviceKinds : public AdviceTest {
 public:
  using AdviceTest::job_of;
  using AdviceTest::known_job;
  using AdviceTest::told;

  static Recipe with_passes(Recipe recipe, const std::string& passes) {
    set_passes(recipe, passes);
    return recipe;
  }
  std::string file(const std::string& name) const { return folder_ / name; }
};

// `numbers`: constants of shapes and axes.
inline Recipe network(AdviceKinds& t, const std::string& text,
                      const std::map<std::string, std::vector<std::int64_t>>& weights,
                      const std::map<std::string, std::vector<std::int64_t>>& numbers = {}) {
  Recipe recipe = t.job_of("g " + text, weights);
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(test::read_bytes(recipe.model)));
  for (const auto& [name, list] : numbers)
    test::add_ints(model, name, {static_cast<std::int64_t>(list.size())}, list);
  test::write_bytes(recipe.model, model.SerializeAsString());
  return recipe;
}
constexpr const char* kSquares = " z = Mul(y, y) loss = ReduceMean<keepdims=0>(z) }";

inline Recipe softmax_in(AdviceKinds& t, bool wide) {
  return network(t,
                 std::string("(float[2048, 64] x) => (float loss) { h = MatMul(x, w0) ") +
                     (wide ? "a = Cast<to=11>(h) s = Softmax<axis=-1>(a) b = Cast<to=1>(s) "
                           : "b = Softmax<axis=-1>(h) ") +
                     "y = MatMul(b, w1)" + kSquares,
                 {{"w0", {64, 64}}, {"w1", {64, 64}}});
}
inline Recipe rows_of_table(AdviceKinds& t, bool multiplied) {
  Recipe recipe =
      network(t,
              std::string("(int64[512] ids) => (float loss) { ") +
                  (multiplied ? "hot = OneHot<axis=-1>(ids, depth, values) e = MatMul(hot, table) "
                              : "e = Gather<axis=0>(table, ids) ") +
                  "y = MatMul(e, w1)" + kSquares,
              {{"table", {1000, 64}}, {"w1", {64, 64}}, {"values", {2}}}, {{"depth", {1000}}});
  if (multiplied) recipe.freeze = {"values"};
  return recipe;
}
inline Recipe three_matrices(AdviceKinds& t, const std::string& order) {
  return network(t, "(float[64, 512] x) => (float loss) { " + order + kSquares,
                 {{"a", {512, 16}}, {"b", {16, 512}}});
}
inline Recipe rows_for_places(AdviceKinds& t, bool repeated) {
  return network(t,
                 std::string("(float[16, 1, 256] x) => (float loss) { ") +
                     (repeated ? "e = Expand(x, shape) h = MatMul(e, w0) " : "h = MatMul(x, w0) ") +
                     "y = Add(h, place)" + kSquares,
                 {{"w0", {256, 256}}, {"place", {64, 256}}}, {{"shape", {16, 64, 256}}});
}
// Eight products: of one operand, or with one weight.
inline Recipe many_products(AdviceKinds& t, bool one_weight) {
  std::string inputs, code, parts;
  std::map<std::string, std::vector<std::int64_t>> weights;
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i), x = one_weight ? "x" + n : "x", w = one_weight ? "w" : "w" + n;
    if (one_weight || i == 0) inputs += (inputs.empty() ? "float[4, 64] " : ", float[4, 64] ") + x;
    code += "h" + n + " = MatMul(" + x + ", " + w + ") t" + n + " = Tanh(h" + n + ") ";
    parts += (parts.empty() ? "t" : ", t") + n;
    weights[w] = {64, 64};
  }
  return network(
      t, "(" + inputs + ") => (float loss) { " + code + "y = Concat<axis=0>(" + parts + ")" + kSquares,
      weights);
}
inline Recipe norm_before_product(AdviceKinds& t, bool frozen) {
  Recipe recipe = network(
      t,
      std::string(
          "(float[8, 16, 64, 64] x) => (float loss) { n, m, v = BatchNormalization<training_mode=1>(x, s, b, "
          "rm, rv) r = Relu(n) p = GlobalAveragePool(r) y = Conv(p, w)") +
          kSquares,
      {{"s", {16}}, {"b", {16}}, {"rm", {16}}, {"rv", {16}}, {"w", {8, 16, 1, 1}}});
  if (frozen) recipe.freeze = {"s", "b"};
  return recipe;
}
inline Recipe distances(AdviceKinds& t, bool differences) {
  return network(t,
                 std::string("(float[256, 1, 64] x) => (float loss) { h = MatMul(x, w0) ") +
                     (differences ? "d = Sub(h, to) q = Mul(d, d) y = ReduceSum<keepdims=0>(q, last)"
                                  : "y = MatMul(h, turned)") +
                     kSquares,
                 {{"w0", {64, 64}}, {"to", {1, 128, 64}}, {"turned", {64, 128}}}, {{"last", {-1}}});
}
// What passes take for a near miss of theirs, or takes a part that another pass fuses.
inline Recipe norm_in_pieces(AdviceKinds& t) {
  return network(
      t,
      std::string("(float[512, 16] x) => (float loss) { h = MatMul(x, w0) q = Mul(h, h) "
                  "m = ReduceMean<axes=[-1]>(q) eps = Constant<value_float=0.00001>() e = Add(m, eps) "
                  "r = Sqrt(e) n = Div(h, r) y = Mul(n, s)") +
          kSquares,
      {{"w0", {16, 256}}, {"s", {256}}});
}
inline Recipe gated(AdviceKinds& t) {
  return network(t,
                 std::string("(float[512, 16] x) => (float loss) { a = MatMul(x, w0) b = MatMul(x, w1) "
                             "s = Sigmoid(b) y = Mul(a, s)") +
                     kSquares,
                 {{"w0", {16, 64}}, {"w1", {16, 64}}});
}
// Rows of ones and zeros: for each place a layer's input, or the overlap with what is predicted (Dice).
inline Recipe of_hot_rows(AdviceKinds& t, const std::string& code,
                          const std::map<std::string, std::vector<std::int64_t>>& weights) {
  auto all = weights;
  all["values"] = {2};
  Recipe recipe = network(t,
                          "(int64[16, 64] ids, float[16, 64, 100] x) => (float loss) { "
                          "hot = OneHot<axis=-1>(ids, depth, values) " +
                              code + kSquares,
                          all, {{"depth", {100}}, {"last", {-1}}, {"places", {1}}});
  recipe.freeze = {"values"};
  return recipe;
}
inline Recipe recurrence_of_hot_rows(AdviceKinds& t) {
  return of_hot_rows(t, "h, last_h, last_c = LSTM<hidden_size=32>(hot, w, r) y = Add(h, h)",
                     {{"w", {1, 128, 100}}, {"r", {1, 128, 32}}});
}
inline Recipe convolution_of_hot_rows(AdviceKinds& t) {
  return of_hot_rows(t, "turned = Transpose<perm=[0, 2, 1]>(hot) y = Conv(turned, w)", {{"w", {64, 100, 3}}});
}
inline Recipe picked_by_hot_rows(AdviceKinds& t, bool numbers) {
  return of_hot_rows(
      t,
      std::string("h = MatMul(x, w) p = LogSoftmax<axis=-1>(h) m = Mul(hot, p) y = ReduceSum(m, ") +
          (numbers ? "last)" : "places)"),
      {{"w", {100, 100}}});
}
inline Recipe norm_without_scale(AdviceKinds& t) {
  std::string ones = "1", zeros = "0";
  for (int i = 1; i < 16; ++i) {
    ones += ", 1";
    zeros += ", 0";
  }
  return network(t,
                 "(float[8, 16, 64, 64] x) => (float loss) { s = Constant<value = float[16] {" + ones +
                     "}>() b = Constant<value = float[16] {" + zeros +
                     "}>() n, m, v = BatchNormalization<training_mode=1>(x, s, b, rm, rv) r = Relu(n) "
                     "p = GlobalAveragePool(r) y = Conv(p, w)" +
                     kSquares,
                 {{"rm", {16}}, {"rv", {16}}, {"w", {8, 16, 1, 1}}});
}
inline Recipe attention_masked_late(AdviceKinds& t) {
  Recipe recipe = t.job_of(
      "g (float[4, 2, 256, 32] q, float[4, 2, 32, 256] k, float[4, 2, 256, 32] v) => (float loss) { "
      "qw = MatMul(q, w) s = MatMul(qw, k) p = Softmax<axis=-1>(s) m = Mul(p, mask) y = MatMul(m, v) "
      "z = Mul(y, y) loss = ReduceMean<keepdims=0>(z) }",
      {{"w", {32, 32}}, {"mask", {1, 1, 256, 256}}});
  recipe.freeze = {"mask"};
  return recipe;
}

}  // namespace gradloom::advice_jobs
