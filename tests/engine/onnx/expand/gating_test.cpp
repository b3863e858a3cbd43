// Operators of language models as bodies.
#include "engine/onnx/expand/expansion.h"

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

TEST(ExpandGating, SwiGlu) {
  const Expanded e =
      expanded("g (float[3, 4] a, float[3, 4] b) => (float[3, 4] y) { y = SwiGLU<alpha = 1.5>(a, b) }", 28);
  Array want;
  for (std::size_t i = 0; i < 12; ++i) {
    const double a = e.inputs.at("a")[i];
    want.push_back(a / (1 + std::exp(-1.5 * a)) * e.inputs.at("b")[i]);
  }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandGating, RunningProducts) {
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true}) {
      const Expanded e = expanded(
          "g (float[2, 4] x, int64 axis) => (float[2, 4] y) { y = CumProd<exclusive = " +
              std::string(exclusive ? "1" : "0") + ", reverse = " + (reverse ? "1" : "0") + ">(x, axis) }",
          26, {{"axis", Tensor::scalar(DType::i64, -1)}});
      Array want;
      for (int row = 0; row < 2; ++row)
        for (int i = 0; i < 4; ++i) {
          double product = 1;
          for (int j = 0; j < 4; ++j) {
            const bool before = reverse ? j > i : j < i;
            if (before || (j == i && !exclusive))
              product *= e.inputs.at("x")[static_cast<std::size_t>(row * 4 + j)];
          }
          want.push_back(product);
        }
      expect_near(outputs_of(e)[0], want);
      expect_gradients(e);
    }
}

TEST(ExpandGating, CausalConvolutionWithItsState) {
  const Expanded e = expanded(
      "g (float[1, 2, 4] x, float[2, 1, 3] w, float[2] b, float[1, 2, 2] past) => (float[1, 2, 4] y, "
      "float[1, 2, 2] next)"
      "{ y, next = CausalConvWithState<activation = \"silu\">(x, w, b, past) }",
      27);
  Array want, next;
  for (std::size_t c = 0; c < 2; ++c) {
    const Array &x = e.inputs.at("x"), &past = e.inputs.at("past"), &w = e.inputs.at("w");
    Array line{past[c * 2], past[c * 2 + 1]};
    line.insert(line.end(), x.begin() + static_cast<std::ptrdiff_t>(c * 4),
                x.begin() + static_cast<std::ptrdiff_t>(c * 4 + 4));
    for (std::size_t i = 0; i < 4; ++i) {
      double sum = e.inputs.at("b")[c];
      for (std::size_t k = 0; k < 3; ++k) sum += line[i + k] * w[c * 3 + k];
      want.push_back(sum / (1 + std::exp(-sum)));
    }
    next.insert(next.end(), line.end() - 2, line.end());
  }
  const auto outputs = outputs_of(e);
  expect_near(outputs[0], want);
  expect_near(outputs[1], next);
  expect_gradients(e);
}

TEST(ExpandGating, CachesAreWrittenAtAPosition) {
  for (const bool circular : {false, true}) {
    const Expanded e = expanded(
        "g (float[2, 4, 2] c, float[2, 2, 2] u, int64[2] at) => (float[2, 4, 2] y)"
        "{ y = TensorScatter<mode = \"" +
            std::string(circular ? "circular" : "linear") + "\">(c, u, at) }",
        24, {{"at", Tensor::from_i64({1, circular ? 3 : 2})}});
    Array want = e.inputs.at("c");
    for (std::size_t b = 0; b < 2; ++b)
      for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t d = 0; d < 2; ++d) {
          const std::size_t row = (b == 0 ? 1 : circular ? 3 : 2) + i;
          want[(b * 4 + row % 4) * 2 + d] = e.inputs.at("u")[(b * 2 + i) * 2 + d];
        }
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
}

// Two heads of keys, four of queries; S [key, value] per head of keys.
TEST(ExpandGating, LinearAttentionStepByStep) {
  for (const char* rule : {"linear", "gated", "delta", "gated_delta"}) {
    const bool gated = std::string(rule).find("gated") == 0,
               delta = std::string(rule).find("delta") != std::string::npos;
    const Expanded e =
        expanded(std::string("g (float[1, 3, 8] q, float[1, 3, 4] k, float[1, 3, 6] v, float[1, 2, 2, 3] s") +
                     (gated ? ", float[1, 3, 4] g" : "") + (delta ? ", float[1, 3, 2] b" : "") +
                     ") => (float[1, 3, 12] y, float[1, 2, 2, 3] next) { y, next = "
                     "LinearAttention<q_num_heads = 4, kv_num_heads = 2,"
                     " scale = 0.5, update_rule = \"" +
                     rule + "\">(q, k, v, s, " + (gated ? "g" : "") + (delta ? ", b" : "") + ") }",
                 27);
    Array state = e.inputs.at("s"), want(36);
    const Array &q = e.inputs.at("q"), &k = e.inputs.at("k"), &v = e.inputs.at("v");
    for (std::size_t t = 0; t < 3; ++t)
      for (std::size_t h = 0; h < 2; ++h) {
        double* s = &state[h * 6];
        for (std::size_t i = 0; i < 2 && gated; ++i)
          for (std::size_t j = 0; j < 3; ++j) s[i * 3 + j] *= std::exp(e.inputs.at("g")[t * 4 + h * 2 + i]);
        Array added;
        for (std::size_t j = 0; j < 3; ++j) {
          double known = 0;
          for (std::size_t i = 0; i < 2; ++i) known += s[i * 3 + j] * k[t * 4 + h * 2 + i];
          const double value = v[t * 6 + h * 3 + j];
          added.push_back(delta ? e.inputs.at("b")[t * 2 + h] * (value - known) : value);
        }
        for (std::size_t i = 0; i < 2; ++i)
          for (std::size_t j = 0; j < 3; ++j) s[i * 3 + j] += k[t * 4 + h * 2 + i] * added[j];
        for (std::size_t head = 2 * h; head < 2 * h + 2; ++head)
          for (std::size_t j = 0; j < 3; ++j)
            want[t * 12 + head * 3 + j] =
                0.5 * (q[t * 8 + head * 2] * s[j] + q[t * 8 + head * 2 + 1] * s[3 + j]);
      }
    const auto outputs = outputs_of(e);
    expect_near(outputs[0], want);
    expect_near(outputs[1], state);
    expect_gradients(e);
  }
}

}  // namespace
}  // namespace gradloom::expand_test
