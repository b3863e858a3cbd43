// Fused sequences as bodies.
#include "engine/onnx/expand/expansion.h"

#include <algorithm>

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

double gelu_of(double x) { return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }

TEST(ExpandFused, BiasesWithWhatFollows) {
  const Expanded add = expanded(
      "g (float[2, 3, 4] x, float[4] b, float[2, 3, 4] s) => (float[2, 3, 4] y)"
      "{ y = com.microsoft.BiasAdd(x, b, s) }");
  expect_near(outputs_of(add)[0], sum_of(sum_of(add.inputs.at("x"), add.inputs.at("b")), add.inputs.at("s")));
  expect_gradients(add);
  const Expanded split =
      expanded("g (float[2, 6] x, float[6] b) => (float[2, 3] y) { y = com.microsoft.BiasSplitGelu(x, b) }");
  const Array sum = sum_of(split.inputs.at("x"), split.inputs.at("b"));
  Array want;
  for (std::size_t row = 0; row < 12; row += 6)
    for (std::size_t i = 0; i < 3; ++i) want.push_back(sum[row + i] * gelu_of(sum[row + 3 + i]));
  expect_near(outputs_of(split)[0], want);
  expect_gradients(split);
  expect_refused(import_model(microsoft_model("g (float[2, 5] x, float[5] b) => (float y)"
                                              "{ y = com.microsoft.BiasSplitGelu(x, b) }")),
                 Errc::bad_input, {"no halves"});
}

TEST(ExpandFused, BiasSoftmaxOverAllAxesFromOneOn) {
  struct Form {
    const char* axis;
    const char* shape;
    std::size_t size;                              // of what one softmax is over
    std::function<std::size_t(std::size_t)> bias;  // element of the bias for each of x [2, 3, 2, 4]
  };
  const Form forms[] = {{"3", "[2, 1, 1, 4]", 4, [](std::size_t i) { return i / 24 * 4 + i % 4; }},
                        {"-1", "[2, 4]", 4, [](std::size_t i) { return i % 8; }},
                        {"2", "[1, 3, 2, 4]", 8, [](std::size_t i) { return i % 24; }}};
  for (const Form& form : forms) {
    const Expanded e =
        expanded(std::string("g (float[2, 3, 2, 4] x, float") + form.shape +
                 " b) => (float[2, 3, 2, 4] y) { y = com.microsoft.BiasSoftmax<axis = " + form.axis +
                 ", is_inner_broadcast = 1>(x, b) }");
    Array want = e.inputs.at("x");
    for (std::size_t i = 0; i < want.size(); ++i)
      want[i] = std::exp(want[i] + e.inputs.at("b")[form.bias(i)]);
    for (std::size_t row = 0; row < want.size(); row += form.size) {
      double sum = 0;
      for (std::size_t i = 0; i < form.size; ++i) sum += want[row + i];
      for (std::size_t i = 0; i < form.size; ++i) want[row + i] /= sum;
    }
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
}

// x [n, 2, 3, 3], w [2, 2, 2, 2], b [2] -> [n, 2, 2, 2]
Array convolved(const Array& x, const Array& w, const Array& b) {
  Array y;
  for (std::size_t n = 0; n < x.size() / 18; ++n)
    for (std::size_t o = 0; o < 2; ++o)
      for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t j = 0; j < 2; ++j) {
          double sum = b[o];
          for (std::size_t c = 0; c < 2; ++c)
            for (std::size_t u = 0; u < 2; ++u)
              for (std::size_t v = 0; v < 2; ++v)
                sum += x[((n * 2 + c) * 3 + i + u) * 3 + j + v] * w[((o * 2 + c) * 2 + u) * 2 + v];
          y.push_back(sum);
        }
  return y;
}

// [n, c, area] -> [n, area, c]
Array channels_last(const Array& x, std::size_t channels, std::size_t area) {
  Array y;
  for (std::size_t n = 0; n < x.size(); n += channels * area)
    for (std::size_t p = 0; p < area; ++p)
      for (std::size_t c = 0; c < channels; ++c) y.push_back(x[n + c * area + p]);
  return y;
}

TEST(ExpandFused, ConvolutionsWithAnActivation) {
  struct Form {
    const char* activation;
    double (*f)(double);
  };
  const Form forms[] = {{"activation = \"Tanh\"", [](double x) { return std::tanh(x); }},
                        {"activation = \"LeakyRelu\", activation_params = [0.25]",
                         [](double x) { return x > 0 ? x : 0.25 * x; }},
                        {"activation = \"Clip\", activation_params = [-0.5, 0.75]",
                         [](double x) { return std::min(std::max(x, -0.5), 0.75); }},
                        {"activation = \"HardSigmoid\", activation_params = [0.5, 0.25]",
                         [](double x) { return std::min(std::max(0.5 * x + 0.25, 0.0), 1.0); }}};
  for (const Form& form : forms) {
    const Expanded e = expanded(std::string("g (float[2, 2, 3, 3] x, float[2, 2, 2, 2] w, float[2] b, "
                                            "float[2, 2, 2, 2] z) => (float[2, 2, 2, 2] y)"
                                            "{ y = com.microsoft.FusedConv<") +
                                form.activation + ">(x, w, b, z) }");
    Array want = sum_of(convolved(e.inputs.at("x"), e.inputs.at("w"), e.inputs.at("b")), e.inputs.at("z"));
    for (double& v : want) v = form.f(v);
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
  const auto refused = [](const std::string& attributes, const std::string& text) {
    expect_refused(import_model(microsoft_model("g (float[2, 2, 3, 3] x, float[2, 2, 2, 2] w) => (float y)"
                                                "{ y = com.microsoft.FusedConv<" +
                                                attributes + ">(x, w) }")),
                   Errc::bad_input, {text});
  };
  refused("activation = \"Cube\"", "activation 'Cube'");
  refused("activation = \"LeakyRelu\"", "'LeakyRelu' with 0 parameters");
  refused("activation = \"Clip\", activation_params = [1.0]", "'Clip' with 1 parameters");
}

TEST(ExpandFused, ConvolutionWithTheChannelsLast) {
  const Expanded e = expanded(
      "g (float[2, 3, 3, 2] x, float[2, 2, 2, 2] w, float[2] b) => (float[2, 2, 2, 2] y)"
      "{ y = com.microsoft.NhwcConv<kernel_shape = [2, 2]>(x, w, b) }");
  // Back from [n, area, c]: channels and area change their places.
  const Array x = channels_last(e.inputs.at("x"), 9, 2), w = channels_last(e.inputs.at("w"), 4, 2);
  expect_near(outputs_of(e)[0], channels_last(convolved(x, w, e.inputs.at("b")), 2, 4));
  expect_gradients(e);
}

TEST(ExpandFused, ProductsWithAnActivation) {
  struct Form {
    const char* attributes;
    double (*f)(double);
  };
  const Form forms[] = {
      {"", [](double x) { return x; }},
      {", activation = \"Sigmoid\"", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {", activation = \"LeakyRelu\", activation_alpha = 0.25",
       [](double x) { return x > 0 ? x : 0.25 * x; }},
      {", activation = \"LeakyRelu\"", [](double x) { return x > 0 ? x : static_cast<double>(0.01f) * x; }},
      {", activation = \"Selu\", activation_alpha = 1.5, activation_gamma = 1.25",
       [](double x) { return 1.25 * (x > 0 ? x : 1.5 * (std::exp(x) - 1)); }}};
  for (const Form& form : forms) {
    const Expanded e =
        expanded(std::string("g (float[3, 2] a, float[3, 4] b, float[4] c) => (float[2, 4] y)"
                             "{ y = com.microsoft.FusedGemm<transA = 1, alpha = 0.5, beta = 2.0") +
                 form.attributes + ">(a, b, c) }");
    Array want;
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 4; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < 3; ++k) sum += e.inputs.at("a")[k * 2 + i] * e.inputs.at("b")[k * 4 + j];
        want.push_back(form.f(0.5 * sum + 2 * e.inputs.at("c")[j]));
      }
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
  const Expanded fast = expanded(
      "g (float[2, 3] a, float[3, 4] b, float[4] c) => (float[2, 4] y)"
      "{ y = com.microsoft.GemmFastGelu(a, b, c) }");
  Array want = sum_of(product(fast.inputs.at("a"), fast.inputs.at("b"), 3), fast.inputs.at("c"));
  for (double& x : want) x *= 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  expect_near(outputs_of(fast)[0], want);
  expect_gradients(fast);
  const Expanded old = expanded(
      "g (float[2, 3] a, float[4, 3] b) => (float[2, 4] y) { y = com.microsoft.TransposeMatMul<transB = 1>(a, b) }");
  Array turned;
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 4; ++j) turned.push_back(old.inputs.at("b")[j * 3 + i]);
  expect_near(outputs_of(old)[0], product(old.inputs.at("a"), turned, 3));
}

// The exporter's file names the domain of every operator set that it uses.
TEST(ExpandFused, NeedsTheOpsetOfItsDomain) {
  expect_refused(
      import_model(model_from_text("g (float[2] x) => (float[2] y) { y = com.microsoft.Gelu(x) }", 17)),
      Errc::bad_input, {"com.microsoft.Gelu", "the model imports no opset of its domain"});
}

}  // namespace
}  // namespace gradloom::expand_test
