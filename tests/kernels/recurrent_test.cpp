// The activations of recurrent cells and their slopes against differences, and what a step does beyond an
// item's length. The cells themselves are tested against the specification's equations with the layers
// (tests/engine/ops/recurrent/layers_test.cpp).
#include "kernels/recurrent.h"

#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

constexpr RecurrentActivation kActivations[] = {{RecurrentFunction::sigmoid, 0, 0},
                                                {RecurrentFunction::tanh, 0, 0},
                                                {RecurrentFunction::relu, 0, 0},
                                                {RecurrentFunction::affine, 0.3, -0.2},
                                                {RecurrentFunction::leaky_relu, 0.1, 0},
                                                {RecurrentFunction::thresholded_relu, 0.4, 0},
                                                {RecurrentFunction::scaled_tanh, 1.7, 0.66},
                                                {RecurrentFunction::hard_sigmoid, 0.3, 0.5},
                                                {RecurrentFunction::elu, 0.8, 0},
                                                {RecurrentFunction::softsign, 0, 0},
                                                {RecurrentFunction::softplus, 0, 0}};

TEST(RecurrentActivations, SlopesAreDifferences) {
  for (const RecurrentActivation& f : kActivations) {
    for (const double x : {-3.1, -1.2, -0.3, 0.15, 0.7, 2.9}) {
      const double step = 1e-6;
      const double difference =
          (portable::recurrent_function(f, x + step) - portable::recurrent_function(f, x - step)) /
          (2 * step);
      EXPECT_NEAR(portable::recurrent_slope(f, x), difference, 1e-8) << int(f.function) << " at " << x;
    }
  }
}

TEST(RecurrentActivations, Values) {
  const double x = 0.7, expected[] = {1 / (1 + std::exp(-x)),
                                      std::tanh(x),
                                      x,
                                      0.3 * x - 0.2,
                                      x,
                                      x,
                                      1.7 * std::tanh(0.66 * x),
                                      0.3 * x + 0.5,
                                      x,
                                      x / 1.7,
                                      std::log1p(std::exp(x))};
  const double below[] = {1 / (1 + std::exp(x)),
                          -std::tanh(x),
                          0,
                          -0.3 * x - 0.2,
                          -0.1 * x,
                          0,
                          -1.7 * std::tanh(0.66 * x),
                          0.5 - 0.3 * x,
                          0.8 * std::expm1(-x),
                          -x / 1.7,
                          std::log1p(std::exp(-x))};
  for (std::size_t i = 0; i < std::size(kActivations); ++i) {
    EXPECT_NEAR(portable::recurrent_function(kActivations[i], x), expected[i], 1e-15) << i;
    EXPECT_NEAR(portable::recurrent_function(kActivations[i], -x), below[i], 1e-15) << i;
  }
}

void expect_that_items_end(const CpuKernels& k) {
  const std::int32_t lengths[] = {1, 2};
  RecurrentCell cell{
      DType::f64, RecurrentKind::rnn, false, false, INFINITY, {kActivations[1]}, 2, 2, 3, 1, 1, 6, 3, 6, 3,
      lengths};
  const auto input = values<double>(12, 1), product = values<double>(6, 2), h = values<double>(6, 3);
  const auto dy = values<double>(12, 4), dh = values<double>(6, 5);
  std::vector<double> kept(6, NAN), next(6, NAN), y(12, 7), running = dh, dinput(12, 7), dproduct(6, NAN);
  k.recurrent_step({cell, 1, 0, input.data(), product.data(), nullptr, nullptr, h.data(), nullptr,
                    kept.data(), next.data(), nullptr, y.data()});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(next[i], h[i]);
    EXPECT_EQ(y[6 + i], 0);
    EXPECT_NEAR(next[3 + i], std::tanh(input[9 + i] + product[3 + i]), 1e-15);
    EXPECT_EQ(y[9 + i], next[3 + i]);
    EXPECT_EQ(y[i], 7);  // of the step before
  }
  k.recurrent_step_grad({cell, 1, 0, dy.data(), nullptr, kept.data(), h.data(), nullptr, nullptr, nullptr,
                         running.data(), nullptr, dinput.data(), dproduct.data()});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(running[i], dh[i]);
    EXPECT_EQ(dproduct[i], 0);
    EXPECT_EQ(dinput[6 + i], 0);
    EXPECT_EQ(running[3 + i], 0);
    EXPECT_NEAR(dproduct[3 + i], (dh[3 + i] + dy[9 + i]) * (1 - next[3 + i] * next[3 + i]), 1e-14);
    EXPECT_EQ(dinput[9 + i], dproduct[3 + i]);
  }
}

TEST(RecurrentStep, ItemsThatHaveEndedKeepTheirState) {
  for (const CpuKernels* k : levels()) expect_that_items_end(*k);
}

}  // namespace
}  // namespace gradloom::kernels::test
