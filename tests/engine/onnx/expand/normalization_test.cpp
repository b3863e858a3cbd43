// Normalizations as bodies.
#include "engine/onnx/expand/expansion.h"

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

// Rows of `size` normalized; without a mean when `centred` is false.
Array normalized(const Array& x, std::size_t size, const Array& scale, const Array& bias, double epsilon,
                 bool centred) {
  Array y;
  for (std::size_t row = 0; row < x.size(); row += size) {
    double mean = 0, square = 0;
    for (std::size_t i = 0; centred && i < size; ++i) mean += x[row + i] / static_cast<double>(size);
    for (std::size_t i = 0; i < size; ++i)
      square += (x[row + i] - mean) * (x[row + i] - mean) / static_cast<double>(size);
    for (std::size_t i = 0; i < size; ++i)
      y.push_back((x[row + i] - mean) / std::sqrt(square + epsilon) * scale[i] +
                  (bias.empty() ? 0 : bias[i]));
  }
  return y;
}

TEST(ExpandNormalization, SkipLayerNormalization) {
  const Expanded e = expanded(
      "g (float[2, 3, 4] x, float[2, 3, 4] s, float[4] gamma, float[4] beta, float[4] b)"
      " => (float[2, 3, 4] y, float[2, 3, 4] sum)"
      "{ y, , , sum = com.microsoft.SkipLayerNormalization<epsilon = 0.01>(x, s, gamma, beta, b) }");
  const Array sum = sum_of(sum_of(e.inputs.at("x"), e.inputs.at("s")), e.inputs.at("b"));
  const auto outputs = outputs_of(e);
  expect_near(outputs[0], normalized(sum, 4, e.inputs.at("gamma"), e.inputs.at("beta"), 0.01f, true));
  expect_near(outputs[1], sum);
  expect_gradients(e);
}

TEST(ExpandNormalization, SimplifiedForms) {
  const Expanded skip = expanded(
      "g (float[2, 3, 4] x, float[2, 3, 4] s, float[4] gamma) => (float[2, 3, 4] y)"
      "{ y = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.01>(x, s, gamma) }");
  expect_near(outputs_of(skip)[0], normalized(sum_of(skip.inputs.at("x"), skip.inputs.at("s")), 4,
                                              skip.inputs.at("gamma"), {}, 0.01f, false));
  expect_gradients(skip);
  for (const char* domain : {"", "com.microsoft."}) {
    const Expanded e =
        expanded("g (float[2, 3, 4] x, float[4] gamma) => (float[2, 3, 4] y) { y = " + std::string(domain) +
                     "SimplifiedLayerNormalization<axis = -1, epsilon = 0.01, stash_type = 1>(x, gamma) }",
                 17);
    expect_near(outputs_of(e)[0], normalized(e.inputs.at("x"), 4, e.inputs.at("gamma"), {}, 0.01f, false));
    expect_gradients(e);
  }
}

TEST(ExpandNormalization, AMeanThatDoesNotExistIsNamed) {
  expect_refused(
      import_model(microsoft_model("g (float[2, 4] x, float[4] w) => (float[2, 4] y)"
                                   "{ y, m = com.microsoft.SkipSimplifiedLayerNormalization(x, x, w) }")),
      Errc::bad_input, {"SkipSimplifiedLayerNormalization", "output 1 is not supported"});
}

TEST(ExpandNormalization, LayerNormalizationBeforeItsOpset) {
  const Expanded e = expanded(
      "g (float[2, 3, 4] x, float[4] gamma, float[4] beta) => (float[2, 3, 4] y)"
      "{ y = LayerNormalization<axis = -1, epsilon = 0.01>(x, gamma, beta) }",
      11);
  expect_near(outputs_of(e)[0],
              normalized(e.inputs.at("x"), 4, e.inputs.at("gamma"), e.inputs.at("beta"), 0.01f, true));
  expect_gradients(e);
}

TEST(ExpandNormalization, EmbedLayerNormalization) {
  const std::vector<std::int64_t> ids = {4, 0, 1, 2, 2, 3}, segments = {0, 0, 1, 1, 0, 1},
                                  mask = {1, 1, 0, 1, 0, 0}, positions = {5, 4, 0, 1, 2, 3};
  const auto known = [](const std::vector<std::int64_t>& values) {
    return Tensor::from_i64(values).cast(DType::i32).reshaped({2, 3});
  };
  for (const bool full : {true, false}) {
    const Expanded e = expanded(
        std::string(
            "g (int32[2, 3] i, int32[2, 3] k, float[5, 4] w, float[6, 4] p, float[2, 4] s, float[4] g, "
            "float[4] b, int32[2, 3] m, int32[2, 3] o)"
            " => (float[2, 3, 4] y, int32[2] n, float[2, 3, 4] z)"
            "{ y, n, z = com.microsoft.EmbedLayerNormalization<epsilon = 0.01>(i, ") +
            (full ? "k, w, p, s, g, b, m, o) }" : ", w, p, , g, b) }"),
        17, {{"i", known(ids)}, {"k", known(segments)}, {"m", known(mask)}, {"o", known(positions)}});
    Array sum;
    for (std::size_t at = 0; at < 6; ++at)
      for (std::size_t c = 0; c < 4; ++c) {
        const auto row = [&](const char* table, std::int64_t index) {
          return e.inputs.at(table)[static_cast<std::size_t>(index) * 4 + c];
        };
        sum.push_back(row("w", ids[at]) + row("p", full ? positions[at] : static_cast<std::int64_t>(at % 3)) +
                      (full ? row("s", segments[at]) : 0));
      }
    const auto outputs = outputs_of(e);
    expect_near(outputs[0], normalized(sum, 4, e.inputs.at("g"), e.inputs.at("b"), 0.01f, true));
    expect_near(outputs[1], full ? Array{2, 1} : Array{0, 0});
    expect_near(outputs[2], sum);
    if (full) expect_gradients(e);
  }
  expect_refused(
      import_model(microsoft_model("g (int32[2, 3] i, float[5, 4] w, float[2, 4] p, float[4] g) => (float y)"
                                   "{ y = com.microsoft.EmbedLayerNormalization(i, , w, p, , g, g) }")),
      Errc::bad_input, {"3 positions in a table of 2"});
  expect_refused(
      import_model(microsoft_model("g (int32[2, 3] i, float[5, 4] w, float[4] g) => (float y)"
                                   "{ y = com.microsoft.EmbedLayerNormalization(i, , w, , , g, g) }")),
      Errc::bad_input, {"input 3 is required"});
}

// x [n, area, c], channels last.
Array group_normalized(const Array& x, std::size_t images, std::size_t channels, std::size_t groups,
                       const Array& gamma, const Array& beta, double epsilon, bool swish) {
  Array y(x.size());
  const std::size_t area = x.size() / images / channels, size = channels / groups;
  for (std::size_t n = 0; n < images; ++n)
    for (std::size_t g = 0; g < groups; ++g) {
      double mean = 0, square = 0;
      const auto each = [&](const auto& f) {
        for (std::size_t p = 0; p < area; ++p)
          for (std::size_t c = g * size; c < (g + 1) * size; ++c) f((n * area + p) * channels + c, c);
      };
      const double count = static_cast<double>(area * size);
      each([&](std::size_t i, std::size_t) { mean += x[i] / count; });
      each([&](std::size_t i, std::size_t) { square += (x[i] - mean) * (x[i] - mean) / count; });
      each([&](std::size_t i, std::size_t c) {
        y[i] = (x[i] - mean) / std::sqrt(square + epsilon) * gamma[c] + beta[c];
        if (swish) y[i] /= 1 + std::exp(-y[i]);
      });
    }
  return y;
}

TEST(ExpandNormalization, GroupsWithTheChannelsLast) {
  const Expanded plain = expanded(
      "g (float[2, 3, 2, 4] x, float[4] a, float[4] b) => (float[2, 3, 2, 4] y)"
      "{ y = com.microsoft.GroupNorm<activation = 1, epsilon = 0.01, groups = 2>(x, a, b) }");
  expect_near(outputs_of(plain)[0], group_normalized(plain.inputs.at("x"), 2, 4, 2, plain.inputs.at("a"),
                                                     plain.inputs.at("b"), 0.01f, true));
  expect_gradients(plain);
  const Expanded skip = expanded(
      "g (float[2, 3, 2, 4] x, float[4] a, float[4] b, float[2, 4] s, float[4] c) =>"
      "(float[2, 3, 2, 4] y, float[2, 3, 2, 4] z)"
      "{ y, z = com.microsoft.SkipGroupNorm<activation = 0, epsilon = 0.01, groups = 2>(x, a, b, s, c) }");
  Array sum = sum_of(skip.inputs.at("x"), skip.inputs.at("c"));
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += skip.inputs.at("s")[i / 24 * 4 + i % 4];
  const auto outputs = outputs_of(skip);
  expect_near(outputs[0],
              group_normalized(sum, 2, 4, 2, skip.inputs.at("a"), skip.inputs.at("b"), 0.01f, false));
  expect_near(outputs[1], sum);
  expect_gradients(skip);
  const auto refused = [](const std::string& attributes, const std::string& text) {
    expect_refused(import_model(microsoft_model("g (float[2, 3, 2, 4] x, float[4] a) => (float y)"
                                                "{ y = com.microsoft.GroupNorm<" +
                                                attributes + ">(x, a, a) }")),
                   Errc::bad_input, {text});
  };
  refused("activation = 2, groups = 2", "attribute 'activation' is 2, it must be 0 or 1");
  refused("activation = 0, groups = 3", "num_groups 3");
  refused("activation = 0", "num_groups 0");
}

}  // namespace
}  // namespace gradloom::expand_test
