// PartScores: what ranks make of parts of the classes is, put together, the loss of all classes and its gradient.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

constexpr std::int64_t kParts = 3, kClasses = 4;  // of a part

// Classes [first, first + count) of [n, classes, d].
Tensor classes_of(const Tensor& logits, std::int64_t first, std::int64_t count) {
  const Shape& shape = logits.shape();
  std::vector<double> values;
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t c = first; c < first + count; ++c)
      for (std::int64_t d = 0; d < shape[2]; ++d)
        values.push_back(logits.at((n * shape[1] + c) * shape[2] + d));
  return Tensor::from_f64(logits.dtype(), {shape[0], count, shape[2]}, values);
}

Tensor labels_of(const Ints& labels, std::int64_t first, Shape shape) {
  Ints own = labels;
  for (std::int64_t& label : own) label -= first;
  return Tensor::from_i64(own).reshaped(std::move(shape));
}

TEST(PartScores, PartsMakeTheLossOfAllClasses) {
  const Tensor logits = numbers(DType::f64, {2, kParts * kClasses, 3}, 5);
  const Ints labels{0, 11, 4, 7, 8, 3};
  const auto all = run("SoftmaxCrossEntropyLoss", {{"reduction", std::string("none")}},
                       {logits, labels_of(labels, 0, {2, 3})}, 4);
  std::vector<double> sum(labels.size(), 0), target(labels.size(), 0);
  for (std::int64_t part = 0; part < kParts; ++part) {
    const auto scores =
        run("PartScores", {{"parts", kParts}},
            {classes_of(logits, part * kClasses, kClasses), labels_of(labels, part * kClasses, {2, 3})})[0];
    ASSERT_EQ(scores.shape(), (Shape{kParts + 1, 2, 3}));
    for (std::int64_t row = 0; row < 6; ++row) {
      sum[static_cast<std::size_t>(row)] += std::exp(scores.at(row));  // no rank writes line 0
      target[static_cast<std::size_t>(row)] += scores.at(kParts * 6 + row);
      EXPECT_EQ(scores.at(6 + row), 0) << "those of other ranks";
    }
  }
  for (std::size_t row = 0; row < labels.size(); ++row)
    EXPECT_NEAR(std::log(sum[row]) - target[row], all[0].at(static_cast<std::int64_t>(row)), 1e-13);
}

TEST(PartScores, GradientsOfPartsAreThoseOfAllClasses) {
  const Tensor logits = numbers(DType::f64, {2, kParts * kClasses, 3}, 6),
               seed = numbers(DType::f64, {2, 3}, 7);
  const Ints labels{0, 11, 4, 7, 8, 3};
  const Attrs each{{"reduction", std::string("none")}};
  const std::vector<Tensor> operands{logits, labels_of(labels, 0, {2, 3})};
  const Tensor lse = run("SoftmaxCrossEntropyLoss", each, operands, 4)[2];
  Differentiated all = differentiate(op_by_name("SoftmaxCrossEntropyLoss"), each, operands, seed, {0});
  for (std::int64_t part = 0; part < kParts; ++part) {
    const Tensor own = classes_of(logits, part * kClasses, kClasses),
                 places = labels_of(labels, part * kClasses, {2, 3});
    const Tensor scores = run("PartScores", {{"parts", kParts}}, {own, places})[0];
    // What the sum over the ranks and ReduceLogSumExp give back.
    std::vector<double> slopes(static_cast<std::size_t>(scores.count()), 0);
    for (std::int64_t row = 0; row < 6; ++row) {
      slopes[static_cast<std::size_t>(row)] = seed.at(row) * std::exp(scores.at(row) - lse.at(row));
      slopes[static_cast<std::size_t>(kParts * 6 + row)] = -seed.at(row);
    }
    const auto gradient = run("PartScoresGrad", {{"parts", kParts}},
                              {Tensor::from_f64(DType::f64, scores.shape(), slopes), own, places, scores})[0];
    expect_near(gradient, own.shape(), classes_of(all.grad(0), part * kClasses, kClasses).to_f64(), 1e-13);
  }
}

TEST(PartScores, OfALinearLayerAreThoseOfItsResults) {
  const Tensor x = numbers(DType::f64, {7, 5}, 8), w = numbers(DType::f64, {5, kClasses}, 9),
               labels = Tensor::from_i64({0, 5, -100, 3, 2, -1, 1});
  const Tensor logits = run("MatMul", {}, {x, w})[0];
  const auto apart = run("PartScores", {{"parts", kParts}}, {logits, labels})[0];
  const Attrs attrs{{"parts", kParts}, {"chunk_rows", std::int64_t{3}}};
  expect_near(run("LinearPartScores", attrs, {x, w, Tensor(), labels})[0], {kParts + 1, 7}, apart.to_f64(),
              1e-13);
  const Tensor seed = numbers(DType::f64, {kParts + 1, 7}, 10);
  Differentiated together =
      differentiate(op_by_name("LinearPartScores"), attrs, {x, w, Tensor(), labels}, seed, {0, 1});
  Differentiated of_logits =
      differentiate(op_by_name("PartScores"), {{"parts", kParts}}, {logits, labels}, seed, {0});
  Differentiated of_product = differentiate(op_by_name("MatMul"), {}, {x, w}, of_logits.grad(0), {0, 1});
  for (const std::size_t i : {0u, 1u})
    expect_near(together.grad(i), of_product.grad(i).shape(), of_product.grad(i).to_f64(), 1e-13);
}

// Rows that are left out before the products, of which nothing reads the scores, nor has their gradient something to add.
TEST(PartScores, OfALinearLayerLeavesIgnoredRowsOut) {
  const Tensor x = numbers(DType::f64, {7, 5}, 8), w = numbers(DType::f64, {5, kClasses}, 9),
               bias = numbers(DType::f64, {kClasses}, 11),
               labels = Tensor::from_i64({-9, 5, -9, 3, 2, -9, 1});
  std::vector<double> slopes = numbers(DType::f64, {kParts + 1, 7}, 10).to_f64();
  for (std::size_t i = 0; i < slopes.size(); ++i)
    if (labels.int_at(static_cast<std::int64_t>(i) % 7) == -9) slopes[i] = 0;
  const Tensor seed = Tensor::from_f64(DType::f64, {kParts + 1, 7}, slopes);
  Attrs all{{"parts", kParts}, {"chunk_rows", std::int64_t{3}}}, some = all;
  some.set("ignore_index", std::int64_t{-9});
  const std::vector<Tensor> operands{x, w, bias, labels};
  const Tensor with = run("LinearPartScores", all, operands)[0],
               without = run("LinearPartScores", some, operands)[0];
  for (std::int64_t i = 0; i < with.count(); ++i)
    EXPECT_NEAR(without.at(i), labels.int_at(i % 7) == -9 ? 0 : with.at(i), 1e-14) << i;
  Differentiated of_all = differentiate(op_by_name("LinearPartScores"), all, operands, seed, {0, 1, 2}),
                 of_some = differentiate(op_by_name("LinearPartScores"), some, operands, seed, {0, 1, 2});
  for (const std::size_t i : {0u, 1u, 2u})
    expect_near(of_some.grad(i), of_all.grad(i).shape(), of_all.grad(i).to_f64(), 1e-13);
}

TEST(PartScores, RefusesWhatDoesNotFit) {
  const Type logits{DType::f64, {5, 4}}, labels{DType::i64, {5}};
  const auto error = [&](std::int64_t parts, const Type& of) {
    return inference_error("PartScores", {{"parts", parts}}, {logits, of});
  };
  EXPECT_EQ(error(2, labels), "");
  EXPECT_NE(error(0, labels).find("parts must be positive"), std::string::npos);
  EXPECT_NE(error(2, {DType::i64, {4}}).find("do not fit"), std::string::npos);
  EXPECT_NE(error(2, {DType::f32, {5}}).find("i32 or i64"), std::string::npos);
}

TEST(PartIndices, AreThoseOfTheFirstRankWhereThereIsOne) {
  const auto places = run("PartIndices", {{"parts", std::int64_t{2}}, {"size", std::int64_t{3}}},
                          {Tensor::from_i64({0, 3, 5})})[0];
  EXPECT_EQ(places.to_i64(), (Ints{0, 3, 5}));
  EXPECT_NE(inference_error("PartIndices", {{"parts", std::int64_t{2}}}, {{DType::i64, {3}}}), "");
}

}  // namespace
}  // namespace gradloom
