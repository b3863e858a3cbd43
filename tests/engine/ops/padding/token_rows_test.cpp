// TokenRows, PackRows, UnpackRows: which rows they find, that each is the other's gradient, and what they refuse.
#include "engine/ops/padding/token_rows.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/engine/every_op.h"

namespace gradloom {
namespace {

// Texts of 3, 1 and 2 tokens in 4 positions; those of the last have gaps before them.
const std::vector<double> kMask = {1, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 1};
const std::vector<double> kRows = {0, 1, 2, 4, 9, 11, 12, 12, 12, 12, 12, 12};
const std::vector<double> kPackedPlaces = {0, 1, 2, 12, 3, 12, 12, 12, 12, 4, 12, 5};

std::vector<double> numbers_in(const Tensor& tensor) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < tensor.count(); ++i) all.push_back(tensor.at(i));
  return all;
}

Tensor random_tensor(const Type& type, std::mt19937& random) {
  std::vector<double> all;
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (std::int64_t i = 0; i < element_count(type.shape); ++i) {
    const double x = uniform(random);
    all.push_back(is_float(type.dtype) ? x : x > 0 ? 1 : 0);
  }
  return Tensor::from_f64(type.dtype, type.shape, all);
}

Tensor mask_of(DType type, std::vector<double> mask = kMask) {
  const auto texts = static_cast<std::int64_t>(mask.size() / 4);
  return Tensor::from_f64(type, {texts, 4}, mask);
}

std::vector<Tensor> tokens() { return *evaluate(token_rows_op(), {}, {mask_of(DType::i64)}, 3); }

TEST(TokenRows, FindsTheRowsOfTokens) {
  for (const DType type : {DType::i64, DType::i32, DType::u8, DType::boolean, DType::f32, DType::f64}) {
    const auto found = evaluate(token_rows_op(), {}, {mask_of(type)}, 3);
    ASSERT_OK(found);
    EXPECT_EQ(numbers_in((*found)[0]), kRows);
    EXPECT_EQ(numbers_in((*found)[1]), kPackedPlaces);
    EXPECT_EQ(numbers_in((*found)[2]), std::vector<double>{6});
  }
}

TEST(TokenRows, AMaskMayBeOfPadding) {
  std::vector<double> padding;
  for (const double token : kMask) padding.push_back(1 - token);
  const auto found =
      evaluate(token_rows_op(), {{"inverted", std::int64_t{1}}}, {mask_of(DType::boolean, padding)}, 3);
  ASSERT_OK(found);
  EXPECT_EQ(numbers_in((*found)[1]), kPackedPlaces);
}

TEST(TokenRows, ThereMayBeNone) {
  const auto found = evaluate(token_rows_op(), {}, {mask_of(DType::i64, std::vector<double>(8, 0))}, 3);
  ASSERT_OK(found);
  EXPECT_EQ(numbers_in((*found)[0]), std::vector<double>(8, 8));
  EXPECT_EQ(numbers_in((*found)[2]), std::vector<double>{0});
}

TEST(TokenRows, PackingAndUnpackingBringTokensBackAndZerosAtPadding) {
  std::mt19937 random(1);
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::i64, DType::boolean})
    for (const Shape& rest : {Shape{}, Shape{5}, Shape{2, 3}, Shape{20000}}) {
      Shape shape{3, 4};
      shape.insert(shape.end(), rest.begin(), rest.end());
      const Tensor x = random_tensor({type, shape}, random);
      const std::vector<Tensor> t = tokens();
      const auto packed = evaluate(pack_rows_op(), {}, {x, t[0], t[1], t[2]});
      ASSERT_OK(packed);
      const auto back = evaluate(unpack_rows_op(), {}, {(*packed)[0], t[0], t[1], t[2]});
      ASSERT_OK(back);
      ASSERT_EQ((*back)[0].type(), x.type());
      const std::int64_t each = x.count() / 12;
      for (std::int64_t i = 0; i < x.count(); ++i)
        ASSERT_EQ((*back)[0].at(i), kMask[static_cast<std::size_t>(i / each)] != 0 ? x.at(i) : 0) << i;
      for (std::int64_t i = 0; i < x.count(); ++i) {
        const double from = kRows[static_cast<std::size_t>(i / each)];
        ASSERT_EQ((*packed)[0].at(i), from == 12 ? 0 : x.at(std::int64_t(from) * each + i % each)) << i;
      }
    }
}

// <pack(x), y> = <x, unpack(y)> for all x and y: each is the other's gradient.
TEST(TokenRows, EachIsTheOthersGradient) {
  std::mt19937 random(2);
  const Tensor x = random_tensor({DType::f64, {3, 4, 5}}, random),
               y = random_tensor({DType::f64, {12, 5}}, random);
  const std::vector<Tensor> t = tokens();
  const auto dot = [](const Tensor& a, const Tensor& b) {
    double sum = 0;
    for (std::int64_t i = 0; i < a.count(); ++i) sum += a.at(i) * b.at(i);
    return sum;
  };
  const Tensor packed = (*evaluate(pack_rows_op(), {}, {x, t[0], t[1], t[2]}))[0],
               unpacked = (*evaluate(unpack_rows_op(), {}, {y, t[0], t[1], t[2]}))[0];
  EXPECT_NEAR(dot(packed, y), dot(x, unpacked), 1e-12);
  EXPECT_GT(std::abs(dot(packed, y)), 1e-3);
}

TEST(TokenRows, RowsThatAreNotThereAreZeros) {
  const std::vector<Tensor> t = tokens();
  const Tensor wrong = Tensor::from_f64(DType::i32, {12}, {0, 12, 13, 2000000000, 1, 1, 1, 1, 1, 1, 1, 1});
  const Tensor x = Tensor::from_f64(DType::f32, {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const auto packed = evaluate(pack_rows_op(), {}, {x, wrong, t[1], t[2]});
  ASSERT_OK(packed);
  EXPECT_EQ(numbers_in((*packed)[0]), (std::vector<double>{1, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2}));
}

TEST(TokenRows, OtherShapesAreRefused) {
  const std::vector<Tensor> t = tokens();
  std::mt19937 random(3);
  const auto of = [&](Shape shape) { return random_tensor({DType::f32, std::move(shape)}, random); };
  EXPECT_FALSE(evaluate(token_rows_op(), {}, {of({12})}, 3).ok());
  EXPECT_FALSE(evaluate(pack_rows_op(), {}, {of({4, 3, 5}), t[0], t[1], t[2]}).ok());
  EXPECT_FALSE(evaluate(pack_rows_op(), {}, {of({12}), t[0], t[1], t[2]}).ok());
  EXPECT_FALSE(evaluate(unpack_rows_op(), {}, {of({11, 5}), t[0], t[1], t[2]}).ok());
  EXPECT_FALSE(evaluate(pack_rows_op(), {}, {of({3, 4, 5}), t[1], t[0], t[2]}).ok());
  EXPECT_FALSE(evaluate(pack_rows_op(), {}, {of({3, 4, 5}), of({12}), t[1], t[2]}).ok());
}

}  // namespace
}  // namespace gradloom
