// MeanVarianceNormalization, LpNormalization and Hardmax beyond the generic suite: rows without variance,
// norm or largest element.
#include <cmath>

#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

TEST(MeanVarianceNormalization, RowsWithoutVariance) {
  const Attrs last = {{"axes", std::vector<std::int64_t>{1}}};
  const Tensor x = tensor({2, 3}, {5, 5, 5, 1, 2, 3});
  const auto y = run("MeanVarianceNormalization", {x}, last);
  EXPECT_EQ(std::vector<double>(y.begin(), y.begin() + 3), (std::vector<double>{0, 0, 0}));
  EXPECT_NEAR(y[5], std::sqrt(1.5), 1e-8);
  for (const double g : gradient("MeanVarianceNormalization", {x}, 0, last)) EXPECT_TRUE(std::isfinite(g));
  EXPECT_TRUE(mentions(error_of("MeanVarianceNormalization", {f32({2, 3})}), "axis"));
}

TEST(LpNormalization, RowsWithoutNorm) {
  const Tensor x = tensor({2, 2}, {0, 0, 3, -4});
  const auto y = run("LpNormalization", {x});
  EXPECT_EQ(std::vector<double>(y.begin(), y.begin() + 2), (std::vector<double>{0, 0}));
  EXPECT_NEAR(y[2], 0.6, 1e-15);
  EXPECT_NEAR(y[3], -0.8, 1e-15);
  EXPECT_NEAR(run("LpNormalization", {x}, {{"p", std::int64_t{1}}})[3], -4.0 / 7, 1e-15);
  EXPECT_TRUE(mentions(error_of("LpNormalization", {f32({2})}, {{"p", std::int64_t{3}}}), "p is 3"));
}

TEST(Hardmax, FirstOfEqualElements) {
  const Tensor x = tensor({2, 3}, {1, 2, 2, 3, 3, 3});
  EXPECT_EQ(run("Hardmax", {x}), (std::vector<double>{0, 1, 0, 1, 0, 0}));
  EXPECT_EQ(run("Hardmax", {x}, {{"axis", std::int64_t{0}}}), (std::vector<double>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(run("Hardmax", {tensor({2}, {std::nan(""), 1})}), (std::vector<double>{0, 0}));
  const auto old = evaluate(*find_op("Hardmax", "", 11), {}, {tensor({1, 2, 2}, {0, 1, 5, 5})});
  ASSERT_TRUE(old.ok());
  EXPECT_EQ((*old)[0].to_f64(), (std::vector<double>{0, 0, 1, 0}))
      << "opset 11: all dims from the axis on are one row";
}

}  // namespace
}  // namespace gradloom
