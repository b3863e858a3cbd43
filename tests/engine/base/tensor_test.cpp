#include "engine/base/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace gradloom {
namespace {

TEST(Tensor, IsZeroFilledAndAligned) {
  const Tensor t(DType::f32, {3, 5});
  EXPECT_EQ(t.count(), 15);
  EXPECT_EQ(t.bytes(), 60u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data()) % 64, 0u);
  for (std::int64_t i = 0; i < 15; ++i) EXPECT_EQ(t.at(i), 0.0);
}

TEST(Tensor, CopiesShareUntilWritten) {
  Tensor a = Tensor::from_i64({1, 2, 3});
  Tensor b = a;
  EXPECT_EQ(a.data(), b.data());
  b.mutable_as<std::int64_t>()[0] = 9;
  EXPECT_EQ(a.int_at(0), 1);
  EXPECT_EQ(b.int_at(0), 9);
}

TEST(Tensor, CastTruncatesAndClamps) {
  const Tensor t = Tensor::from_f64(DType::f64, {5}, {1.9, -1.9, std::nan(""), 1e30, -1e30});
  const Tensor i = t.cast(DType::i64);
  EXPECT_EQ(i.to_i64(), (std::vector<std::int64_t>{1, -1, 0, std::numeric_limits<std::int64_t>::max(),
                                                   std::numeric_limits<std::int64_t>::min()}));
  EXPECT_EQ(Tensor::from_i64({0, 5, -1}).cast(DType::boolean).to_i64(), (std::vector<std::int64_t>{0, 1, 1}));
  EXPECT_EQ(Tensor::from_i64({(std::int64_t{1} << 53) + 1}).cast(DType::i64).int_at(0),
            (std::int64_t{1} << 53) + 1);
}

TEST(Tensor, Bf16RoundsToNearestEven) {
  const Tensor t = Tensor::from_f64(DType::bf16, {3}, {1.0, 1.00390625, 3.0e38});
  EXPECT_EQ(t.at(0), 1.0);
  EXPECT_EQ(t.at(1), 1.0);  // halfway between 1 and 1.0078125: even
  EXPECT_NEAR(t.at(2), 3.0e38, 2e36);
}

TEST(Tensor, SmallTypesTakeAByteAndRound) {
  const Tensor f8 = Tensor::from_f64(DType::f8e4m3fn, {4}, {1.0625, 1.1875, -1e9, std::nan("")});
  EXPECT_EQ(f8.bytes(), 4u);
  EXPECT_EQ(f8.at(0), 1);  // halfway between 1 and 1.125: even
  EXPECT_EQ(f8.at(1), 1.25);
  EXPECT_EQ(f8.at(2), -448);
  EXPECT_TRUE(std::isnan(f8.at(3)));
  EXPECT_EQ(f8.cast(DType::i32).to_i64(), (std::vector<std::int64_t>{1, 1, -448, 0}));
  const Tensor i4 = Tensor::from_f64(DType::i4, {4}, {-8, 7, -9, 2.9});
  EXPECT_EQ(i4.to_i64(), (std::vector<std::int64_t>{-8, 7, 7, 2}));
  EXPECT_EQ(i4.cast(DType::u4).to_i64(), (std::vector<std::int64_t>{8, 7, 7, 2}));
  EXPECT_EQ(i4.cast(DType::f8e5m2).to_f64(), (std::vector<double>{-8, 7, 7, 2}));
}

TEST(Tensor, ElementCountChecksOverflowAndSign) {
  EXPECT_EQ(*checked_element_count({2, 3}, 4), 6);
  EXPECT_EQ(checked_element_count({std::int64_t{1} << 40, std::int64_t{1} << 40}, 1).error().code,
            Errc::limit);
  EXPECT_EQ(checked_element_count({std::int64_t{1} << 61}, 8).error().code, Errc::limit);
  EXPECT_EQ(checked_element_count({2, -3}, 4).error().code, Errc::bad_input);
  EXPECT_EQ(*checked_element_count({0, std::int64_t{1} << 40}, 4), 0);
  // Strides are products of the dims after them, also beside a 0.
  for (const Shape& shape : {Shape{0, std::int64_t{1} << 40, std::int64_t{1} << 40},
                             Shape{std::int64_t{1} << 40, std::int64_t{1} << 40, 0}})
    EXPECT_EQ(checked_element_count(shape, 1).error().code, Errc::limit);
}

TEST(Tensor, NamesRoundTrip) {
  for (DType t : {DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean, DType::bf16, DType::f16,
                  DType::u8, DType::i4, DType::u4, DType::i2, DType::u2, DType::f8e4m3fn, DType::f8e4m3fnuz,
                  DType::f8e5m2, DType::f8e5m2fnuz, DType::f4e2m1, DType::f8e8m0})
    EXPECT_EQ(*dtype_from_name(dtype_name(t)), t);
  EXPECT_EQ(dtype_from_name("float99").error().code, Errc::usage);
  EXPECT_EQ(to_string(Type{DType::f32, {8, -1, 3}}), "f32[8, ?1, 3]");
}

}  // namespace
}  // namespace gradloom
