// GatherND: batch dimensions, tuples of any length, errors; and the gradient's sums.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

TEST(GatherND, TuplesOfAnyLength) {
  const Tensor data = tensor({2, 2}, {1, 2, 3, 4});
  using Values = std::vector<double>;
  EXPECT_EQ(run("GatherND", {data, ints({0, 0, 1, -1}).reshaped({2, 2})}), (Values{1, 4}));
  EXPECT_EQ(run("GatherND", {data, ints({1, 0}).reshaped({2, 1})}), (Values{3, 4, 1, 2}));
  EXPECT_EQ(run("GatherND", {data, ints({}).reshaped({2, 0})}), (Values{1, 2, 3, 4, 1, 2, 3, 4}));
  EXPECT_EQ(run("GatherND", {data, ints({1, 0}).reshaped({2, 1})}, {{"batch_dims", std::int64_t{1}}}),
            (Values{2, 3}));
}

TEST(GatherND, UnknownIndicesOutOfRangeReadZeros) {
  EXPECT_EQ(run_unknown("GatherND", {tensor({2}, {1, 2}), ints({2, -3, 1}).reshaped({3, 1})}),
            (std::vector<double>{0, 0, 2}));
}

TEST(GatherND, RefusesKnownIndicesOutOfRange) {
  const auto refused = [](const std::vector<std::int64_t>& indices) {
    return error_of("GatherND", {f32({3, 2}), ints(indices).reshaped({2, 2})});
  };
  EXPECT_TRUE(mentions(refused({2, 1, -3, 2}), "index 2 is out of range for axis 1 of size 2"));
  EXPECT_TRUE(mentions(refused({0, 0, -4, 1}), "index -4 is out of range for axis 0 of size 3"));
  EXPECT_TRUE(infer("GatherND", {f32({3, 2}), ints({2, 1, -3, -2}).reshaped({2, 2})}).ok());
}

TEST(GatherND, GradientAddsUp) {
  EXPECT_EQ(gradient("GatherND", {tensor({3}, {1, 2, 3}), ints({2, 0, 2, -1}).reshaped({4, 1})}, 0),
            (std::vector<double>{1, 0, 3}));
}

TEST(GatherND, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(mentions(error_of("GatherND", {f32({3, 2}), i64({4, 3})}), "3 indices per item"));
  EXPECT_TRUE(mentions(error_of("GatherND", {f32({3, 2}), i64({2, 1})}, {{"batch_dims", std::int64_t{1}}}),
                       "batch dimensions"));
  EXPECT_TRUE(mentions(error_of("GatherND", {f32({3}), i64({3})}, {{"batch_dims", std::int64_t{1}}}),
                       "out of range"));
  EXPECT_TRUE(mentions(error_of("GatherND", {f32({3}), f32({3})}), "indices are f32"));
}

}  // namespace
}  // namespace gradloom
