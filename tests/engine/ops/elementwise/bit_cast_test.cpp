// BitCast: bits of numbers, and what has no such bits.
#include "engine/ops/inference.h"
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

Attrs to(DType type) { return {{"to", onnx_from_dtype(type)}}; }

TEST(BitCast, KeepsTheBits) {
  EXPECT_EQ(run("BitCast", {tensor({2}, {1, -2}, DType::f32)}, to(DType::i32)),
            (std::vector<double>{0x3f800000, -0x40000000}));
  EXPECT_EQ(run("BitCast", {tensor({1}, {0x40490fdb}, DType::i32)}, to(DType::f32)),
            (std::vector<double>{3.14159274101257324}));
  EXPECT_EQ(run("BitCast", {tensor({2}, {-1, 5}, DType::i8)}, to(DType::u8)), (std::vector<double>{255, 5}));
  EXPECT_EQ(run("BitCast", {tensor({}, {1})}, to(DType::i64)), (std::vector<double>{4607182418800017408.0}));
}

TEST(BitCast, KeepsTheBitsOfSmallTypes) {
  EXPECT_EQ(run("BitCast", {tensor({3}, {-8, -1, 7}, DType::i4)}, to(DType::u4)),
            (std::vector<double>{8, 15, 7}));
  EXPECT_EQ(run("BitCast", {tensor({3}, {8, 15, 7}, DType::u4)}, to(DType::i4)),
            (std::vector<double>{-8, -1, 7}));
  EXPECT_EQ(run("BitCast", {tensor({3}, {-8, -1, 7}, DType::i4)}, to(DType::f4e2m1)),
            (std::vector<double>{0, -6, 6}));
  EXPECT_EQ(run("BitCast", {tensor({2}, {-6, 0.5}, DType::f4e2m1)}, to(DType::i4)),
            (std::vector<double>{-1, 1}));
  EXPECT_EQ(run("BitCast", {tensor({2}, {-2, 3}, DType::i2)}, to(DType::u2)), (std::vector<double>{2, 3}));
  EXPECT_EQ(run("BitCast", {tensor({2}, {0x38, 0xfe}, DType::u8)}, to(DType::f8e4m3fn)),
            (std::vector<double>{1, -448}));
}

TEST(BitCast, RefusesOtherSizesAndBooleans) {
  EXPECT_TRUE(mentions(error_of("BitCast", {Type{DType::u8, {2}}}, to(DType::i4)), "differ in size"));
  EXPECT_TRUE(mentions(error_of("BitCast", {Type{DType::i2, {2}}}, to(DType::i4)), "differ in size"));
  EXPECT_TRUE(mentions(error_of("BitCast", {f32({2})}, to(DType::i64)), "differ in size"));
  EXPECT_TRUE(mentions(error_of("BitCast", {Type{DType::u8, {2}}}, to(DType::boolean)), "booleans"));
  EXPECT_TRUE(mentions(error_of("BitCast", {f32({2})}), "'to' is missing"));
}

}  // namespace
}  // namespace gradloom
