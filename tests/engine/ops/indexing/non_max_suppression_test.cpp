// NonMaxSuppression: order, thresholds, corners and centers, sizes that are open, errors, and a bound of the
// work. ONNX's node tests hold the rest.
#include <cmath>

#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

using Numbers = std::vector<double>;

Tensor number(double v) { return tensor({1}, {v}, DType::f32); }

std::vector<double> kept(const Numbers& boxes, const Numbers& scores, std::int64_t most, double overlap,
                         double least, const Attrs& attrs = {}) {
  const auto count = static_cast<std::int64_t>(scores.size());
  return run("NonMaxSuppression",
             {tensor({1, count, 4}, boxes, DType::f32), tensor({1, 1, count}, scores, DType::f32),
              ints({most}), number(overlap), number(least)},
             attrs);
}

TEST(NonMaxSuppression, TakesTheBestThatOverlapLittle) {
  // The second overlaps the first by 1 / 3, the third lies apart; corners in any order.
  const Numbers boxes = {0, 0, 2, 2, 0, 3, 2, 1, 9, 9, 8, 8};
  EXPECT_EQ(kept(boxes, {0.5, 0.9, 0.7}, 9, 0.3, 0), (Numbers{0, 0, 1, 0, 0, 2}));
  EXPECT_EQ(kept(boxes, {0.5, 0.9, 0.7}, 9, 0.4, 0), (Numbers{0, 0, 1, 0, 0, 2, 0, 0, 0}));
  EXPECT_EQ(kept(boxes, {0.5, 0.9, 0.7}, 9, 0.4, 0.5), (Numbers{0, 0, 1, 0, 0, 2}));  // above, not at
  EXPECT_EQ(kept(boxes, {0.5, 0.9, 0.7}, 1, 0.4, 0), (Numbers{0, 0, 1}));
  EXPECT_EQ(kept(boxes, {0.5, 0.5, 0.5}, 9, 0.3, 0), (Numbers{0, 0, 0, 0, 0, 2}));  // equal ones by index
  EXPECT_EQ(kept(boxes, {NAN, 0.5, NAN}, 9, 0.3, -1), (Numbers{0, 0, 1}));
}

TEST(NonMaxSuppression, Centers) {
  const Numbers boxes = {1, 1, 2, 2, 2, 1, 2, 2};  // overlap by 1 / 3
  const Attrs centers{{"center_point_box", std::int64_t{1}}};
  EXPECT_EQ(kept(boxes, {0.5, 0.9}, 9, 0.3, 0, centers), (Numbers{0, 0, 1}));
  EXPECT_EQ(kept(boxes, {0.5, 0.9}, 9, 0.4, 0, centers), (Numbers{0, 0, 1, 0, 0, 0}));
}

TEST(NonMaxSuppression, SizesAreOpenWithoutTheContents) {
  const Shape open = shape_of(infer("NonMaxSuppression", {f32({1, 5, 4}), f32({1, 2, 5}), ints({3})}));
  EXPECT_LT(open[0], 0);
  EXPECT_EQ(open[1], 3);
}

TEST(NonMaxSuppression, RefusesWhatItCannotMean) {
  EXPECT_TRUE(
      mentions(error_of("NonMaxSuppression", {f32({1, 5, 3}), f32({1, 2, 5})}), "must be [n, boxes, 4]"));
  EXPECT_TRUE(
      mentions(error_of("NonMaxSuppression", {f32({1, 5, 4}), f32({1, 2, 6})}), "must be [n, boxes, 4]"));
  EXPECT_TRUE(mentions(error_of("NonMaxSuppression", {f32({1, 5, 4}), i64({1, 2, 5})}), "is i64"));
  EXPECT_TRUE(mentions(error_of("NonMaxSuppression", {f32({1, 5, 4}), f32({1, 2, 5})},
                                {{"center_point_box", std::int64_t{2}}}),
                       "is 2"));
  const std::int64_t many = 20000;  // all apart: 2e8 comparisons
  Numbers boxes, scores(static_cast<std::size_t>(many), 1);
  for (std::int64_t i = 0; i < many; ++i)
    for (const double edge : {0.0, 0.0, 1.0, 1.0}) boxes.push_back(edge + 2 * static_cast<double>(i));
  EXPECT_TRUE(
      mentions(error_of("NonMaxSuppression", {tensor({1, many, 4}, boxes, DType::f32),
                                              tensor({1, 1, many}, scores, DType::f32), ints({many})}),
               "too many"));
}

}  // namespace
}  // namespace gradloom
