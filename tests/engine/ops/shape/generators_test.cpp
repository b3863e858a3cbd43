// Constant, ConstantOfShape, Shape, Size and Range: contents, counts and errors.
#include <cmath>
#include <limits>

#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

TEST(Constant, ReadsEveryKindOfValue) {
  EXPECT_EQ(run("Constant", {}, {{"value", ints({4, 5})}}), (std::vector<double>{4, 5}));
  EXPECT_EQ(run("Constant", {}, {{"value_float", 0.5}}), (std::vector<double>{0.5}));
  EXPECT_EQ(run("Constant", {}, {{"value_floats", std::vector<double>{1, 2}}}), (std::vector<double>{1, 2}));
  EXPECT_EQ(run("Constant", {}, {{"value_int", std::int64_t{7}}}), (std::vector<double>{7}));
  EXPECT_TRUE(mentions(error_of("Constant", {}), "without a value"));
}

TEST(ConstantOfShape, Fills) {
  EXPECT_EQ(run("ConstantOfShape", {ints({2})}, {{"value", ints({9})}}), (std::vector<double>{9, 9}));
  EXPECT_TRUE(run("ConstantOfShape", {ints({0, 3})}).empty());
  EXPECT_TRUE(mentions(error_of("ConstantOfShape", {ints({-1})}), "-1"));
  EXPECT_TRUE(mentions(error_of("ConstantOfShape", {ints({1})}, {{"value", ints({1, 2})}}), "one element"));
  EXPECT_TRUE(mentions(error_of("ConstantOfShape", {scalar(2)}), "vector"));
  EXPECT_FALSE(is_static(shape_of(infer("ConstantOfShape", {i64({2})}))));
}

TEST(EyeLike, DiagonalsInsideAndOutside) {
  const auto eye = [](std::int64_t rows, std::int64_t cols, std::int64_t k) {
    return run("EyeLike", {Tensor(DType::i32, {rows, cols})}, {{"k", k}});
  };
  EXPECT_EQ(eye(2, 3, 0), (std::vector<double>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(eye(2, 3, 2), (std::vector<double>{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(eye(3, 2, -1), (std::vector<double>{0, 0, 1, 0, 0, 1}));
  const std::int64_t far = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t k : {std::int64_t{3}, std::int64_t{-2}, far, -(far + 1)})
    EXPECT_EQ(eye(2, 3, k), std::vector<double>(6, 0)) << k;
  EXPECT_TRUE(eye(0, 3, 0).empty());
  EXPECT_TRUE(mentions(error_of("EyeLike", {f32({2})}), "matrix"));
}

TEST(Shape, TakesPartsSafely) {
  const auto part = [](std::int64_t start, std::int64_t end) {
    return run("Shape", {Tensor(DType::f32, {2, 3, 4})}, {{"start", start}, {"end", end}});
  };
  EXPECT_EQ(part(1, 3), (std::vector<double>{3, 4}));
  EXPECT_EQ(part(-1, 100), (std::vector<double>{4}));
  EXPECT_EQ(part(-100, 1), (std::vector<double>{2}));
  EXPECT_TRUE(part(2, 1).empty());
  EXPECT_EQ(shape_of(infer("Shape", {f32({-1, 3})})), (Shape{2}))
      << "the rank is known though the dims are not";
}

TEST(Range, CountsLikeNumpy) {
  EXPECT_EQ(run("Range", {scalar(0), scalar(5), scalar(2)}), (std::vector<double>{0, 2, 4}));
  EXPECT_EQ(run("Range", {scalar(5), scalar(0), scalar(-2)}), (std::vector<double>{5, 3, 1}));
  EXPECT_TRUE(run("Range", {scalar(0), scalar(5), scalar(-1)}).empty());
  EXPECT_TRUE(run("Range", {scalar(3), scalar(3), scalar(1)}).empty());
  EXPECT_EQ(shape_of(infer("Range", {scalar(INT64_MIN), scalar(INT64_MAX), scalar(INT64_MAX)})), (Shape{3}));
  EXPECT_TRUE(mentions(error_of("Range", {scalar(0), scalar(5), scalar(0)}), "delta is 0"));
  EXPECT_TRUE(mentions(error_of("Range", {scalar(INT64_MIN), scalar(INT64_MAX), scalar(1)}), "too many"));
  EXPECT_TRUE(mentions(error_of("Range", {tensor({}, {0}), tensor({}, {1}), tensor({}, {0})}), "finite"));
  EXPECT_TRUE(
      mentions(error_of("Range", {tensor({}, {0}), tensor({}, {std::nan("")}), tensor({}, {1})}), "finite"));
  EXPECT_TRUE(mentions(error_of("Range", {scalar(0), tensor({}, {5}), scalar(1)}), "one number type"));
  EXPECT_TRUE(mentions(error_of("Range", {ints({0, 1}), scalar(5), scalar(1)}), "scalars"));
  EXPECT_FALSE(is_static(shape_of(infer("Range", {scalar(0), i64({}), scalar(1)}))));
}

}  // namespace
}  // namespace gradloom
