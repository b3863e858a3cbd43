// ReverseSequence: both layouts, lengths beyond the axis, errors.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

TEST(ReverseSequence, BothLayouts) {
  const Tensor x = tensor({3, 2}, {1, 2, 3, 4, 5, 6});
  using Values = std::vector<double>;
  EXPECT_EQ(run("ReverseSequence", {x, ints({3, 2})}), (Values{5, 4, 3, 2, 1, 6}));
  const Attrs batch_first{{"batch_axis", std::int64_t{0}}, {"time_axis", std::int64_t{1}}};
  EXPECT_EQ(run_unknown("ReverseSequence", {x, ints({2, 1, 99})}, batch_first), (Values{2, 1, 3, 4, 6, 5}));
}

TEST(ReverseSequence, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(mentions(error_of("ReverseSequence", {f32({3, 2}), i64({3})}), "[2]"));
  EXPECT_TRUE(mentions(error_of("ReverseSequence", {f32({3}), i64({3})}), "two dimensions"));
  EXPECT_TRUE(
      mentions(error_of("ReverseSequence", {f32({3, 2}), i64({2})}, {{"batch_axis", std::int64_t{2}}}),
               "must be 0 and 1"));
  EXPECT_TRUE(mentions(error_of("ReverseSequence", {f32({3, 2}), {Type{DType::i32, {2}}}}), "64-bit"));
}

}  // namespace
}  // namespace gradloom
