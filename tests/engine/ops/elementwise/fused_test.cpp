// The text form of fused regions, and what inference and the kernel make of it.
#include "engine/ops/elementwise/fused.h"

#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

using kernels::EwOp;

Attrs region(const std::string& code, List outputs) {
  return {{"code", code}, {"outputs", std::move(outputs)}};
}

TEST(FusedCode, RoundTrips) {
  for (const std::string text :
       {"t0=Mul(i0,i1);t1=Cast:f32(t0);t2=Dropout#81985529216486895(t1,i2,i3);t3=Where(i4,t2,i0)",
        "t0=Neg(i0)", "t0=DropoutMask#18446744073709551615(i0,i1)", "t0=Uniform#5(i0,i1)",
        "t0=RowMax(i0);t1=Sub(i0,t0)", "t0=GeluTanhGrad(i0,i12)", "t0=Cast:f8e8m0#5(i0);t1=Cast:i4(t0)"}) {
    const auto code = parse_fused(text);
    ASSERT_TRUE(code.ok()) << code.error().message;
    EXPECT_EQ(print_fused(*code), text);
  }
}

TEST(FusedCode, KeepsEveryPart) {
  const auto code = *parse_fused("t0=Cast:i64(i3);t1=Dropout#7(i0,i1,i2)");
  EXPECT_EQ(code[0].cast_to, DType::i64);
  EXPECT_TRUE(code[0].operands[0].is_input);
  EXPECT_EQ(code[0].operands[0].index, 3);
  EXPECT_EQ(code[1].op, EwOp::Dropout);
  EXPECT_EQ(code[1].key, 7u);
}

TEST(FusedCode, RefusesWhatItCannotRead) {
  for (const char* text : {"",
                           ";",
                           "t0",
                           "t0=",
                           "t1=Neg(i0)",
                           "t0=Neg(i0",
                           "t0=Neg(i0);",
                           "t0=Neg(i0)t1=Neg(t0)",
                           "t0=Neg(t0)",
                           "t0=Neg(t1)",
                           "t0=Add(i0)",
                           "t0=Neg(i0,i1)",
                           "t0=Nag(i0)",
                           "t0=Cast(i0)",
                           "t0=Cast:f31(i0)",
                           "t0=Cast:f8e5m2#(i0)",
                           "t0=Dropout(i0,i1,i2)",
                           "t0=Neg(i-1)",
                           "t0=Neg(i99999999999999999999)",
                           "t0=Neg(x0)",
                           "t0= Neg(i0)",
                           "t0=Neg(i0);t0=Neg(i0)",
                           "t0=Dropout#-1(i0,i1,i2)"}) {
    const auto code = parse_fused(text);
    ASSERT_FALSE(code.ok()) << text;
    EXPECT_EQ(code.error().code, Errc::bad_input);
  }
}

TEST(EwTypes, FollowTheList) {
  const auto type = [](EwOp op, std::vector<DType> operands, DType to = DType::f32) {
    return ew_result_type(op, operands, to);
  };
  EXPECT_EQ(*type(EwOp::Add, {DType::i64, DType::i64}), DType::i64);
  EXPECT_EQ(*type(EwOp::Less, {DType::f32, DType::f32}), DType::boolean);
  EXPECT_EQ(*type(EwOp::Equal, {DType::boolean, DType::boolean}), DType::boolean);
  EXPECT_EQ(*type(EwOp::Where, {DType::boolean, DType::i32, DType::i32}), DType::i32);
  EXPECT_EQ(*type(EwOp::Cast, {DType::boolean}, DType::f64), DType::f64);
  EXPECT_EQ(*type(EwOp::DropoutMask, {DType::f32, DType::boolean}), DType::boolean);
  EXPECT_EQ(*type(EwOp::IsNaN, {DType::f16}), DType::boolean);
  EXPECT_EQ(*type(EwOp::BitwiseAnd, {DType::u8, DType::u8}), DType::u8);
  EXPECT_EQ(*type(EwOp::Uniform, {DType::f64, DType::f64}), DType::f64);
  EXPECT_FALSE(type(EwOp::IsNaN, {DType::i32}).ok());
  EXPECT_FALSE(type(EwOp::BitwiseAnd, {DType::f32, DType::f32}).ok());
  EXPECT_FALSE(type(EwOp::BitwiseAnd, {DType::boolean, DType::boolean}).ok());
  EXPECT_FALSE(type(EwOp::Uniform, {DType::f32, DType::f64}).ok());
  EXPECT_FALSE(type(EwOp::Add, {DType::f32, DType::f64}).ok());
  EXPECT_FALSE(type(EwOp::Add, {DType::boolean, DType::boolean}).ok());
  EXPECT_FALSE(type(EwOp::Exp, {DType::i64}).ok());
  EXPECT_FALSE(type(EwOp::And, {DType::i64, DType::i64}).ok());
  EXPECT_FALSE(type(EwOp::Where, {DType::f32, DType::f32, DType::f32}).ok());
  EXPECT_FALSE(type(EwOp::Less, {DType::boolean, DType::boolean}).ok());
  EXPECT_FALSE(type(EwOp::Neg, {DType::f32, DType::f32}).ok());
}

TEST(FusedRegion, EveryOutputHasTheRegionsShape) {
  const auto types =
      infer("FusedElementwise", {f32({3, 1}), f32({5})}, region("t0=Neg(i0);t1=Less(t0,i1)", {0, 1}), 2);
  ASSERT_TRUE(types.ok()) << types.error().message;
  EXPECT_EQ((*types)[0], f32({3, 5}));
  EXPECT_EQ((*types)[1], (Type{DType::boolean, {3, 5}}));
}

TEST(FusedRegion, RefusesWrongRegions) {
  EXPECT_TRUE(mentions(error_of("FusedElementwise", {f32({3})}, region("t0=Neg(i1)", {0})), "input 1"));
  EXPECT_TRUE(mentions(error_of("FusedElementwise", {f32({3})}, region("t0=Neg(i0)", {1})), "statement 1"));
  EXPECT_TRUE(mentions(error_of("FusedElementwise", {f32({3})}, region("t0=Neg(i0)", {-1})), "statement -1"));
  EXPECT_TRUE(mentions(error_of("FusedElementwise", {f32({3})}, region("t0=Neg(i0)", {0}), 2), "outputs"));
  EXPECT_TRUE(
      mentions(error_of("FusedElementwise", {f32({3}), i64({3})}, region("t0=Add(i0,i1)", {0})), "Add"));
  EXPECT_TRUE(mentions(error_of("FusedElementwise", {f32({3}), f32({4})}, region("t0=Add(i0,i1)", {0})),
                       "broadcast"));
}

TEST(FusedRegion, HasALimitOfRegistersAndRanks) {
  std::string code = "t0=Neg(i0)";
  for (int i = 1; i < 300; ++i) code += ";t" + std::to_string(i) + "=Neg(t" + std::to_string(i - 1) + ")";
  const auto many = evaluate(op_by_name("FusedElementwise"), region(code, {299}), {tensor({2}, {1, 2})});
  EXPECT_EQ(many.error().code, Errc::device);
  const Shape deep(9, 2);
  const auto rank = evaluate(op_by_name("Add"), {}, {Tensor(DType::f32, deep), Tensor(DType::f32, deep)});
  EXPECT_EQ(rank.error().code, Errc::device);
  const auto thin = evaluate(op_by_name("Neg"), {}, {Tensor(DType::f32, Shape(20, 1))});
  EXPECT_TRUE(thin.ok()) << "dimensions of size 1 cost nothing";
}

// A fused region computes what its statements compute one by one, bit for bit.
TEST(FusedRegion, EqualsItsStatements) {
  const Tensor x = tensor({2, 3}, {-1.5, 0, 0.25, 3, -0.5, 2}, DType::f32),
               b = tensor({3}, {1, -2, 0.5}, DType::f32);
  const auto fused = evaluate(op_by_name("FusedElementwise"),
                              region("t0=Mul(i0,i1);t1=Gelu(t0);t2=Max(t1,i0)", {2, 0}), {x, b}, 2);
  ASSERT_TRUE(fused.ok());
  const Tensor t0 = (*evaluate(op_by_name("Mul"), {}, {x, b}))[0];
  const Tensor t1 = (*evaluate(op_by_name("Gelu"), {}, {t0}))[0];
  const Tensor t2 = (*evaluate(op_by_name("Max"), {}, {t1, x}))[0];
  EXPECT_TRUE(bit_equal((*fused)[0], t2));
  EXPECT_TRUE(bit_equal((*fused)[1], t0));
}

}  // namespace
}  // namespace gradloom
