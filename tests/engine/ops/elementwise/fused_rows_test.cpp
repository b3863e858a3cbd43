// Regions with reductions over rows: what inference takes, and that a region gives what operators give one by one.
#include "engine/ops/elementwise/fused.h"

#include <cmath>

#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

Attrs rows(const std::string& code, List outputs, std::int64_t row_dims = 1) {
  return {{"code", code}, {"outputs", std::move(outputs)}, {"row_dims", row_dims}};
}

TEST(FusedRows, HaveTheRegionsShapeOrOneNumberPerRow) {
  const std::string code = "t0=Add(i0,i1);t1=RowMax(t0);t2=Sub(t0,t1);t3=Less(t2,t1)";
  const auto types = infer("FusedRows", {f32({2, 3, 1}), f32({5})}, rows(code, {1, 2, 3}), 3);
  ASSERT_TRUE(types.ok()) << types.error().message;
  EXPECT_EQ((*types)[0], f32({2, 3, 1}));
  EXPECT_EQ((*types)[1], f32({2, 3, 5}));
  EXPECT_EQ((*types)[2], (Type{DType::boolean, {2, 3, 5}}));
  const auto wide = infer("FusedRows", {f32({2, 3, 1}), f32({5})}, rows(code, {1}, 2));
  ASSERT_TRUE(wide.ok()) << wide.error().message;
  EXPECT_EQ((*wide)[0], f32({2, 1, 1}));
}

TEST(FusedRows, RefuseWrongRegions) {
  const auto error = [](const std::vector<Given>& inputs, const std::string& code, List outputs,
                        std::int64_t row_dims = 1) {
    return error_of("FusedRows", inputs, rows(code, std::move(outputs), row_dims));
  };
  EXPECT_TRUE(mentions(error({f32({3, 4})}, "t0=RowSum(i0);t1=RowSum(t0)", {1}), "one number per row"));
  EXPECT_TRUE(mentions(error({i64({3, 4})}, "t0=RowSum(i0)", {0}), "RowSum"));
  EXPECT_TRUE(mentions(error({f32({3, 4}), f32({4})}, "t0=Neg(i1);t1=Add(i0,t0)", {0}), "neither"));
  EXPECT_TRUE(mentions(error({f32({3, 4})}, "t0=Neg(i0)", {1}), "statement 1"));
  EXPECT_TRUE(mentions(error({f32({3, 4})}, "t0=Neg(i0)", {0}, 3), "row_dims"));
  EXPECT_TRUE(mentions(error({f32({3, 4})}, "t0=Neg(i0)", {0}, 0), "row_dims"));
  EXPECT_TRUE(mentions(error({f32({3, 4}), f32({4}), f32({}), Type{DType::boolean, {}}},
                             "t0=Dropout#1(i1,i2,i3);t1=Add(i0,t0)", {1}),
                       "in a region of"));
  EXPECT_TRUE(mentions(error_of("FusedRows", {f32({3, 4})}, rows("t0=Neg(i0)", {0}), 2), "outputs"));
  EXPECT_TRUE(mentions(error_of("FusedElementwise", {f32({3})},
                                {{"code", std::string("t0=RowSum(i0)")}, {"outputs", List{0}}}),
                       "without rows"));
}

TEST(FusedRows, EqualTheOperators) {
  std::vector<double> numbers(24), others(24);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = std::sin(double(i) * 1.3);
    others[i] = std::cos(double(i) * 0.7);
  }
  const Tensor x = tensor({4, 6}, numbers), r = tensor({4, 6}, others),
               scale = tensor({6}, {1, 2, 0.5, -1, 0.25, 3}), bias = tensor({6}, {0, 1, -1, 0.5, 2, -2}),
               epsilon = tensor({}, {1e-5});
  const auto fused = evaluate(
      op_by_name("FusedRows"),
      rows(
          "t0=Add(i0,i1);t1=RowMean(t0);t2=Sub(t0,t1);t3=Square(t2);t4=RowMean(t3);t5=Add(t4,i2);t6=Sqrt(t5);"
          "t7=Div(t2,t6);t8=Mul(t7,i3);t9=Add(t8,i4);t10=RowMax(t0);t11=Sub(t0,t10);t12=Exp(t11);t13=RowSum(t12);"
          "t14=Div(t12,t13);t15=RowMin(t0)",
          {9, 14, 15, 1}),
      {x, r, epsilon, scale, bias}, 4);
  ASSERT_TRUE(fused.ok()) << fused.error().message;
  const Tensor sum = (*evaluate(op_by_name("Add"), {}, {x, r}))[0];
  const auto norm = *evaluate(op_by_name("LayerNormalization"), {{"epsilon", 1e-5}}, {sum, scale, bias}, 2);
  const auto softmax = *evaluate(op_by_name("Softmax"), {}, {sum}),
             least = *evaluate(op_by_name("ReduceMin"), {}, {sum, Tensor::from_i64({1})});
  const Tensor wanted[] = {norm[0], softmax[0], least[0], norm[1]};
  for (std::size_t o = 0; o < 4; ++o) {
    ASSERT_EQ((*fused)[o].type(), wanted[o].type()) << o;
    for (std::int64_t i = 0; i < wanted[o].count(); ++i)
      EXPECT_NEAR((*fused)[o].at(i), wanted[o].at(i), 1e-13) << o << " " << i;
  }
}

}  // namespace
}  // namespace gradloom
