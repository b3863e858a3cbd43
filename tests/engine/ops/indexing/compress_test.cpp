// Compress, NonZero, Unique: sizes that depend on contents are known when the
// contents are, and open otherwise.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

Tensor truths(const std::vector<double>& values) {
  return tensor({static_cast<std::int64_t>(values.size())}, values, DType::boolean);
}

TEST(Compress, SizesAreOpenWithoutTheCondition) {
  EXPECT_EQ(shape_of(infer("Compress", {f32({4, 3}), truths({1, 0, 1})}, {{"axis", std::int64_t{0}}})),
            (Shape{2, 3}));
  const Shape open =
      shape_of(infer("Compress", {f32({4, 3}), Type{DType::boolean, {3}}}, {{"axis", std::int64_t{0}}}));
  EXPECT_LT(open[0], 0);
  EXPECT_EQ(open[1], 3);
  EXPECT_TRUE(mentions(error_of("Compress", {f32({2}), truths({1, 0, 1})}), "condition of 3"));
}

TEST(NonZero, RowMajorIndices) {
  EXPECT_EQ(run("NonZero", {tensor({2, 2}, {1, 0, 3, 4})}), (std::vector<double>{0, 1, 1, 0, 0, 1}));
  EXPECT_LT(shape_of(infer("NonZero", {f32({2, 2})}))[1], 0);
}

TEST(Unique, PartsAlongAnAxis) {
  const Tensor x = tensor({3, 2}, {1, 0, 1, 0, 2, 3});
  const auto sorted = evaluate(op_by_name("Unique"), {{"axis", std::int64_t{0}}}, {x}, 4);
  ASSERT_TRUE(sorted.ok());
  EXPECT_EQ((*sorted)[0].to_f64(), (std::vector<double>{1, 0, 2, 3}));
  EXPECT_EQ((*sorted)[1].to_i64(), (List{0, 2}));
  EXPECT_EQ((*sorted)[2].to_i64(), (List{0, 0, 1}));
  EXPECT_EQ((*sorted)[3].to_i64(), (List{2, 1}));
}

TEST(Unique, UnsortedKeepsTheFirstOnesPlaces) {
  EXPECT_EQ(run("Unique", {ints({5, 1, 5, 3})}, {{"sorted", std::int64_t{0}}}, 4),
            (std::vector<double>{5, 1, 3}));
  EXPECT_EQ(run("Unique", {ints({INT64_MAX, INT64_MAX - 1})}, {}, 4).size(),
            2u);  // told apart beyond 53 bits
}

}  // namespace
}  // namespace gradloom
