// Activations and products as bodies.
#include "engine/onnx/expand/expansion.h"

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

TEST(ExpandActivation, Gelus) {
  const auto phi = [](double x) { return 0.5 * (1 + std::erf(x / std::sqrt(2.0))); };
  const auto tanh_form = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  struct Form {
    const char* call;
    bool bias;
    std::function<double(double)> f;
  };
  for (const Form& form :
       {Form{"Gelu(x)", false, [&](double x) { return x * phi(x); }},
        Form{"BiasGelu(x, b)", true, [&](double x) { return x * phi(x); }},
        Form{"FastGelu(x, b)", true, tanh_form}, Form{"FastGelu(x)", false, tanh_form},
        Form{"QuickGelu<alpha = 1.5>(x)", false, [](double x) { return x / (1 + std::exp(-1.5 * x)); }}}) {
    SCOPED_TRACE(form.call);
    const Expanded e = expanded("g (float[3, 4] x" + std::string(form.bias ? ", float[4] b" : "") +
                                ") => (float[3, 4] y) { y = com.microsoft." + form.call + " }");
    Array want = form.bias ? sum_of(e.inputs.at("x"), e.inputs.at("b")) : e.inputs.at("x");
    for (double& v : want) v = form.f(v);
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
}

TEST(ExpandActivation, FusedMatMul) {
  const Expanded e = expanded(
      "g (float[2, 4, 3] a, float[2, 5, 4] b) => (float[2, 3, 5] y)"
      "{ y = com.microsoft.FusedMatMul<alpha = 0.5, transA = 1, transB = 1>(a, b) }");
  Array want;
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 5; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < 4; ++k)
          sum += e.inputs.at("a")[(n * 4 + k) * 3 + i] * e.inputs.at("b")[(n * 5 + j) * 4 + k];
        want.push_back(0.5 * sum);
      }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandActivation, FusedMatMulWithTheBatchInside) {
  const Expanded e = expanded(
      "g (float[3, 2, 4] a, float[2, 4, 5] b) => (float[2, 3, 5] y)"
      "{ y = com.microsoft.FusedMatMul<transBatchA = 1>(a, b) }");
  Array want;
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 5; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < 4; ++k)
          sum += e.inputs.at("a")[(i * 2 + n) * 4 + k] * e.inputs.at("b")[(n * 4 + k) * 5 + j];
        want.push_back(sum);
      }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandActivation, BiasDropoutKeepsWhatItDoesNotDrop) {
  const Expanded e = expanded(
      "g (float[16, 8] x, float[8] b, float[16, 8] r, float ratio, bool training) => (float[16, 8] y, "
      "bool[16, 8] m)"
      "{ y, m = com.microsoft.BiasDropout(x, b, r, ratio, training) }",
      17, {{"ratio", Tensor::scalar(DType::f32, 0.25)}, {"training", Tensor::scalar(DType::boolean, 1)}});
  const auto outputs = outputs_of(e);
  const Array sum = sum_of(e.inputs.at("x"), e.inputs.at("b"));
  int kept = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    EXPECT_NEAR(outputs[0][i], outputs[1][i] * sum[i] / 0.75 + e.inputs.at("r")[i], 1e-12);
    kept += outputs[1][i] != 0;
  }
  EXPECT_GT(kept, 64);
  EXPECT_LT(kept, 128);
  expect_gradients(e);
}

TEST(ExpandActivation, SoftmaxCrossEntropyInternal) {
  const Expanded e = expanded(
      "g (float[3, 4] x, int64[3] l, int64 i) => (float y, float[3, 4] p)"
      "{ y, p = com.microsoft.SoftmaxCrossEntropyLossInternal<reduction = \"mean\">(x, l, , i) }",
      17, {{"l", Tensor::from_i64({2, -1, 0})}, {"i", Tensor::from_i64({-1}).reshaped({})}});
  const Array& x = e.inputs.at("x");
  double loss = 0;
  for (const auto& [row, label] : {std::pair<std::size_t, std::size_t>{0, 2}, {2, 0}}) {
    double sum = 0;
    for (std::size_t i = 0; i < 4; ++i) sum += std::exp(x[row * 4 + i]);
    loss += (std::log(sum) - x[row * 4 + label]) / 2;
  }
  EXPECT_NEAR(outputs_of(e)[0][0], loss, 1e-12);
  expect_gradients(e);
}

TEST(ExpandActivation, CastLikeTakesOnlyTheType) {
  const Expanded e =
      expanded("g (float[2, 3] x, float[7] like) => (float[2, 3] y) { y = CastLike(x, like) }");
  expect_near(outputs_of(e)[0], e.inputs.at("x"));
  EXPECT_TRUE(uses_of(e.model.graph)[e.model.graph.inputs[1]].empty());
  const auto integers = import_model(
      model_from_text("g (float[2] x, int32[1] like) => (int32[2] y) { y = CastLike(x, like) }"));
  ASSERT_TRUE(integers.ok()) << integers.error().message;
  EXPECT_EQ(to_string(integers->graph.type(integers->graph.outputs[0])), "i32[2]");
}

}  // namespace
}  // namespace gradloom::expand_test
