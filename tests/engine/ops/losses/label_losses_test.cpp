// SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss against the definition: reductions, weights, ignored
// labels (tests/engine/ops/contents_test.cpp: those that are no class).
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

struct Expected {
  std::vector<double> loss, log_prob, log_sum_exp, dlogits;
  double total_weight = 0;
};

// Logits [n, classes, d]; a label equal to `ignore` adds nothing.
// dloss = seed per loss element.
Expected expected(const Tensor& logits, const Ints& labels, const std::vector<double>& weight,
                  std::int64_t ignore, const std::string& reduction, const std::vector<double>& seed,
                  bool nll) {
  const std::int64_t n = logits.shape()[0], classes = logits.shape()[1], d = logits.shape()[2];
  Expected e;
  e.log_prob.resize(static_cast<std::size_t>(logits.count()));
  e.dlogits.resize(e.log_prob.size());
  double sum = 0;
  std::vector<double> factor;
  for (std::int64_t row = 0; row < n * d; ++row) {
    const auto at = [&](std::int64_t k) { return (row / d * classes + k) * d + row % d; };
    double total = 0;
    for (std::int64_t k = 0; k < classes; ++k) total += std::exp(logits.at(at(k)));
    e.log_sum_exp.push_back(std::log(total));
    for (std::int64_t k = 0; k < classes; ++k)
      e.log_prob[static_cast<std::size_t>(at(k))] =
          nll ? logits.at(at(k)) : logits.at(at(k)) - std::log(total);
    const std::int64_t label = labels[static_cast<std::size_t>(row)];
    const bool counts = label != ignore;
    const double w = !counts ? 0 : weight.empty() ? 1 : weight[static_cast<std::size_t>(label)];
    e.loss.push_back(counts ? -w * e.log_prob[static_cast<std::size_t>(at(label))] : 0.0);
    e.total_weight += w;
    sum += e.loss.back();
    factor.push_back(w);
  }
  for (std::int64_t row = 0; row < n * d; ++row) {
    const auto at = [&](std::int64_t k) {
      return static_cast<std::size_t>((row / d * classes + k) * d + row % d);
    };
    double f = factor[static_cast<std::size_t>(row)] *
               (reduction == "none" ? seed[static_cast<std::size_t>(row)] : seed[0]);
    if (reduction == "mean") f /= e.total_weight;
    for (std::int64_t k = 0; k < classes; ++k) {
      const double onehot = k == labels[static_cast<std::size_t>(row)] ? 1 : 0;
      e.dlogits[at(k)] = f * ((nll ? 0 : std::exp(e.log_prob[at(k)])) - onehot);
    }
  }
  if (reduction == "sum") e.loss = {sum};
  if (reduction == "mean") e.loss = {sum / e.total_weight};
  return e;
}

class Losses : public ::testing::TestWithParam<const char*> {};

TEST_P(Losses, MatchTheDefinition) {
  const bool nll = std::string(GetParam()) == "NegativeLogLikelihoodLoss";
  const Ints labels{0, 3, 1, 2, -100, 2};  // -100 is ignored
  for (DType dtype : {DType::f32, DType::f64}) {
    for (const char* reduction : {"none", "sum", "mean"}) {
      for (bool weighted : {false, true}) {
        const Tensor logits = numbers(dtype, {2, 4, 3}, 1);
        const std::vector<double> weight =
            weighted ? std::vector<double>{0.5, 2, 1.25, 0.75} : std::vector<double>{};
        const bool none = std::string(reduction) == "none";
        const Shape shape = none ? Shape{2, 3} : Shape{};
        const Tensor seed = numbers(dtype, shape, 5);
        const Expected e = expected(logits, labels, weight, -100, reduction, seed.to_f64(), nll);
        const Attrs attrs{{"reduction", std::string(reduction)}, {"ignore_index", std::int64_t{-100}}};
        std::vector<Tensor> inputs{logits, Tensor::from_i64(labels).reshaped({2, 3})};
        if (weighted) inputs.push_back(Tensor::from_f64(dtype, {4}, weight));
        const std::string what = std::string(reduction) + (weighted ? " weighted" : "");
        const auto got = run(GetParam(), attrs, inputs, nll ? 2 : 4);
        expect_near(got[0], shape, e.loss, tolerance(dtype), what);
        expect_near(got.back(), {}, {e.total_weight}, tolerance(dtype), what + " total weight");
        if (!nll) {
          expect_near(got[1], {2, 4, 3}, e.log_prob, tolerance(dtype), what + " log_prob");
          expect_near(got[2], {2, 3}, e.log_sum_exp, tolerance(dtype), what + " log_sum_exp");
        }
        Differentiated d = differentiate(op_by_name(GetParam()), attrs, inputs, seed, {0});
        expect_near(d.grad(0), {2, 4, 3}, e.dlogits, tolerance(dtype), what + " gradient");
      }
    }
  }
}

TEST_P(Losses, InferenceNamesWhatDoesNotFit) {
  const Type scores{DType::f32, {5, 3}}, labels{DType::i64, {5}};
  EXPECT_EQ(inference_error(GetParam(), {}, {scores, {DType::f32, {5}}}),
            "labels must be i32 or i64, they are f32");
  EXPECT_EQ(inference_error(GetParam(), {}, {scores, {DType::i64, {4}}}),
            "labels [4] do not fit scores [5, 3] [n, classes, ..]");
  EXPECT_EQ(inference_error(GetParam(), {}, {scores, labels, {DType::f32, {5}}}),
            "weight [5] does not fit 3 classes");
  EXPECT_EQ(inference_error(GetParam(), {{"reduction", std::string("max")}}, {scores, labels}),
            "reduction 'max' is unknown");
  EXPECT_EQ(inferred(GetParam(), {{"reduction", std::string("none")}},
                     {{DType::f32, {-1, 3, -2}}, {DType::i64, {-1, -2}}})[0]
                .shape,
            (Shape{-1, -2}));
}

INSTANTIATE_TEST_SUITE_P(Both, Losses,
                         ::testing::Values("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"),
                         [](const auto& given) { return std::string(given.param); });

TEST(SoftmaxCrossEntropyLoss, LargeLogitsStayFinite) {
  const Tensor logits = Tensor::from_f64(DType::f32, {1, 3}, {1e4, 0, -1e4});
  const auto y = run("SoftmaxCrossEntropyLoss", {}, {logits, Tensor::from_i64({1})});
  expect_near(y[0], {}, {1e4}, 0);
}

}  // namespace
}  // namespace gradloom
