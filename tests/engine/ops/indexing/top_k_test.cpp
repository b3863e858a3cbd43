// TopK: order of equal elements, the number from an attribute or an input, outputs left out, errors.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

TEST(TopK, EqualElementsComeByIndex) {
  const auto found = evaluate(op_by_name("TopK"), {}, {tensor({6}, {3, 1, 3, 2, 3, 2}), ints({5})}, 2);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ((*found)[0].to_f64(), (std::vector<double>{3, 3, 3, 2, 2}));
  EXPECT_EQ((*found)[1].to_i64(), (List{0, 2, 4, 3, 5}));
}

TEST(TopK, NumberFromAnAttribute) {
  EXPECT_EQ(shape_of(infer("TopK", {f32({3, 7})}, {{"k", std::int64_t{4}}}, 2)), (Shape{3, 4}));
  EXPECT_EQ(shape_of(infer("TopK", {f32({3, 7}), ints({2})}, {{"axis", std::int64_t{0}}}, 2)), (Shape{2, 7}));
  const auto unknown = shape_of(infer("TopK", {f32({3, 7}), i64({1})}, {}, 2));
  EXPECT_EQ(unknown[0], 3);
  EXPECT_LT(unknown[1], 0);
}

TEST(TopK, RefusesNumbersThatDoNotFit) {
  EXPECT_TRUE(mentions(error_of("TopK", {f32({3}), ints({4})}, {}, 2), "k is 4"));
  EXPECT_TRUE(mentions(error_of("TopK", {f32({3}), ints({-1})}, {}, 2), "k is -1"));
  EXPECT_TRUE(mentions(error_of("TopK", {f32({3}), ints({1, 2})}, {}, 2), "one number"));
  EXPECT_TRUE(mentions(error_of("TopK", {f32({3})}, {}, 2), "missing"));
}

}  // namespace
}  // namespace gradloom
