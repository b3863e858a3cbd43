// Softmax and LogSoftmax of both opset families against the definition.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

// Softmax over n of [outer, n, inner].
std::vector<double> softmax(const Tensor& x, std::int64_t outer, std::int64_t n, std::int64_t inner,
                            bool log) {
  std::vector<double> y(static_cast<std::size_t>(x.count()));
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) {
      const auto at = [&](std::int64_t k) { return (o * n + k) * inner + i; };
      double peak = x.at(at(0)), total = 0;
      for (std::int64_t k = 0; k < n; ++k) peak = std::max(peak, x.at(at(k)));
      for (std::int64_t k = 0; k < n; ++k) total += std::exp(x.at(at(k)) - peak);
      for (std::int64_t k = 0; k < n; ++k) {
        const double v = x.at(at(k)) - peak - std::log(total);
        y[static_cast<std::size_t>(at(k))] = log ? v : std::exp(v);
      }
    }
  return y;
}

TEST(Softmax, Opset13NormalizesOneAxis) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = numbers(dtype, {2, 3, 4});
    for (const char* name : {"Softmax", "LogSoftmax"}) {
      const OpDef& op = *find_op(name, "", 13);
      const bool log = name[0] == 'L';
      expect_near(run(op, {}, {x})[0], {2, 3, 4}, softmax(x, 6, 4, 1, log), tolerance(dtype), name);
      expect_near(run(op, {{"axis", std::int64_t{-2}}}, {x})[0], {2, 3, 4}, softmax(x, 2, 3, 4, log),
                  tolerance(dtype), name);
      expect_near(run(op, {{"axis", std::int64_t{0}}}, {x})[0], {2, 3, 4}, softmax(x, 1, 2, 12, log),
                  tolerance(dtype), name);
    }
  }
}

TEST(Softmax, EarlierOpsetsCoerceToTwoDims) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = numbers(dtype, {2, 3, 4});
    for (const char* name : {"Softmax", "LogSoftmax"}) {
      const OpDef& op = *find_op(name, "", 11);
      EXPECT_NE(&op, find_op(name, "", 13));
      const bool log = name[0] == 'L';
      expect_near(run(op, {}, {x})[0], {2, 3, 4}, softmax(x, 2, 12, 1, log), tolerance(dtype), name);
      expect_near(run(op, {{"axis", std::int64_t{0}}}, {x})[0], {2, 3, 4}, softmax(x, 1, 24, 1, log),
                  tolerance(dtype), name);
      expect_near(run(op, {{"axis", std::int64_t{-1}}}, {x})[0], {2, 3, 4}, softmax(x, 6, 4, 1, log),
                  tolerance(dtype), name);
    }
  }
}

TEST(Softmax, GradientsOfBothFamiliesMatchFiniteDifferences) {
  const Tensor x = numbers(DType::f64, {2, 3, 4}, 1), seed = numbers(DType::f64, {2, 3, 4}, 2);
  for (int opset : {11, 13}) {
    for (const char* name : {"Softmax", "LogSoftmax"}) {
      const OpDef& op = *find_op(name, "", opset);
      const Attrs attrs{{"axis", std::int64_t{1}}};
      Differentiated d = differentiate(op, attrs, {x}, seed, {0});
      const auto loss = [&](std::int64_t i, double step) {
        std::vector<double> moved = x.to_f64();
        moved[static_cast<std::size_t>(i)] += step;
        const Tensor y = run(op, attrs, {Tensor::from_f64(DType::f64, {2, 3, 4}, moved)})[0];
        double total = 0;
        for (std::int64_t k = 0; k < y.count(); ++k) total += y.at(k) * seed.at(k);
        return total;
      };
      for (std::int64_t i = 0; i < x.count(); ++i)
        EXPECT_NEAR(d.grad(0).at(i), (loss(i, 1e-5) - loss(i, -1e-5)) / 2e-5, 1e-8)
            << name << opset << " element " << i;
    }
  }
}

TEST(Softmax, Errors) {
  EXPECT_EQ(inference_error("Softmax", {{"axis", std::int64_t{2}}}, {{DType::f32, {2, 3}}}),
            "axis 2 is out of range for rank 2");
  EXPECT_EQ(inference_error("Softmax", {}, {{DType::i64, {2, 3}}}), "the input is i64");
  EXPECT_EQ(inferred("Softmax", {}, {{DType::f32, {-1, -2}}})[0].shape, (Shape{-1, -2}));
}

}  // namespace
}  // namespace gradloom
