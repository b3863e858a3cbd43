// Axis tables: what they are, transposed, and what the row Resample refuses.
#include "engine/ops/resampling/resample.h"

#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

resampling::AxisTable table(std::int64_t in,
                            const std::vector<std::vector<std::pair<std::int64_t, double>>>& rows) {
  resampling::AxisTable t;
  t.in = in;
  for (const auto& row : rows) {
    for (const auto& [at, w] : row) t.add(at, w);
    t.end_row();
  }
  return t;
}

TEST(AxisTable, TellsSelections) {
  EXPECT_TRUE(table(2, {{{0, 1}}, {{1, 1}}}).identity());
  EXPECT_TRUE(table(2, {{{1, 1}}, {{1, 1}}}).selects());
  EXPECT_FALSE(table(2, {{{1, 1}}, {{1, 1}}}).identity());
  EXPECT_FALSE(table(2, {{{0, 1}}}).identity());
  EXPECT_FALSE(table(2, {{{0, 0.5}, {1, 0.5}}}).selects());
  EXPECT_FALSE(table(2, {{}, {{0, 1}}}).selects());
  EXPECT_FALSE(table(2, {{{0, 2}}}).selects());
}

TEST(AxisTable, TransposesRowsAndColumns) {
  const auto t = table(3, {{{0, 2}, {2, 5}}, {}, {{0, 7}}, {{2, 1}}});
  const auto back = t.transposed();
  EXPECT_EQ(back.in, 4);
  EXPECT_EQ(back.out(), 3);
  EXPECT_EQ(back.begin, (std::vector<std::int32_t>{0, 2, 2, 4}));
  EXPECT_EQ(back.index, (std::vector<std::int32_t>{0, 2, 0, 3}));
  EXPECT_EQ(back.weight, (std::vector<double>{2, 7, 5, 1}));
  const auto again = back.transposed();
  EXPECT_EQ(again.index, t.index);
  EXPECT_EQ(again.weight, t.weight);
}

TEST(Resample, RefusesTablesThatReachOutside) {
  const auto i32s = [](const std::vector<double>& v) {
    return tensor({static_cast<std::int64_t>(v.size())}, v, DType::i32);
  };
  const Tensor weight = tensor({2}, {1, 1});
  EXPECT_EQ(shape_of(infer("Resample", {f32({3}), i32s({0, 1, 2}), i32s({0, 2}), weight})), (Shape{2}));
  EXPECT_TRUE(
      mentions(error_of("Resample", {f32({3}), i32s({0, 1, 2}), i32s({0, 3}), weight}), "out of range"));
  EXPECT_TRUE(
      mentions(error_of("Resample", {f32({3}), i32s({0, 1, 2}), i32s({-1, 0}), weight}), "out of range"));
  EXPECT_TRUE(
      mentions(error_of("Resample", {f32({3}), i32s({0, 2, 1}), i32s({0, 2}), weight}), "out of order"));
  EXPECT_TRUE(
      mentions(error_of("Resample", {f32({3}), i32s({0, 1, 3}), i32s({0, 2}), weight}), "out of order"));
  EXPECT_TRUE(
      mentions(error_of("Resample", {f32({3}), i32s({0, 1, 2}), i32s({0}), weight}), "begin and index"));
  EXPECT_TRUE(mentions(error_of("Resample", {f32({3}), i32s({0}), Type{DType::i32, {0}}, weight}),
                       "known before running"));
}

}  // namespace
}  // namespace gradloom
