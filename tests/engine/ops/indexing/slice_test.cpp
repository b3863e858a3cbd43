// Slice against numpy's rules for every start, end and step of a short axis, its gradient, and errors.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

// Python's slice(start, end, step).indices(size), by walking.
List taken(std::int64_t start, std::int64_t end, std::int64_t step, std::int64_t size) {
  const auto place = [&](std::int64_t p) {
    if (p < 0) p += size;
    if (step > 0) return std::min(std::max<std::int64_t>(p, 0), size);
    return std::min(std::max<std::int64_t>(p, -1), size - 1);
  };
  List list;
  for (std::int64_t i = place(start), last = place(end); step > 0 ? i < last : i > last; i += step)
    list.push_back(i);
  return list;
}

TEST(Slice, AgreesWithPython) {
  for (std::int64_t size = 0; size <= 4; ++size) {
    List contents;
    for (std::int64_t i = 0; i < size; ++i) contents.push_back(i);
    for (std::int64_t start = -6; start <= 6; ++start)
      for (std::int64_t end = -6; end <= 6; ++end)
        for (std::int64_t step : {1, 2, 3, -1, -2, -5}) {
          const auto got = evaluate(op_by_name("Slice"), {},
                                    {ints(contents), ints({start}), ints({end}), ints({0}), ints({step})});
          ASSERT_TRUE(got.ok()) << got.error().message;
          ASSERT_EQ((*got)[0].to_i64(), taken(start, end, step, size))
              << start << ":" << end << ":" << step << " of " << size;
        }
  }
}

TEST(Slice, TakesExtremePositions) {
  const Tensor x = ints({0, 1, 2, 3});
  EXPECT_EQ(run("Slice", {x, ints({INT64_MIN}), ints({INT64_MAX})}), (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(run("Slice", {x, ints({INT64_MAX}), ints({INT64_MIN}), ints({0}), ints({-1})}),
            (std::vector<double>{3, 2, 1, 0}));
  EXPECT_EQ(run("Slice", {x, ints({1}), ints({INT64_MAX}), ints({0}), ints({INT64_MAX})}),
            (std::vector<double>{1}));
  EXPECT_EQ(run("Slice", {x, ints({2}), ints({INT64_MIN}), ints({0}), ints({INT64_MIN})}),
            (std::vector<double>{2}));
}

TEST(Slice, KeepsWholeSymbolicAxes) {
  EXPECT_EQ(shape_of(infer("Slice", {f32({-1, 6}), ints({0, 1}), ints({INT64_MAX, 3})})), (Shape{-1, 2}));
  const Shape cut = shape_of(infer("Slice", {f32({-1, 6}), ints({0}), ints({2}), ints({0})}));
  EXPECT_LT(cut[0], -1);
  EXPECT_EQ(cut[1], 6);
}

TEST(Slice, RefusesWrongArguments) {
  EXPECT_TRUE(mentions(error_of("Slice", {f32({3}), ints({0})}), "ends"));
  EXPECT_TRUE(mentions(error_of("Slice", {f32({3}), ints({0}), ints({1, 2})}), "length"));
  EXPECT_TRUE(mentions(error_of("Slice", {f32({3}), ints({0}), ints({1}), ints({1})}), "out of range"));
  EXPECT_TRUE(
      mentions(error_of("Slice", {f32({3}), ints({0}), ints({1}), ints({0}), ints({0})}), "step is 0"));
  EXPECT_TRUE(
      mentions(error_of("Slice", {f32({-1}), ints({0}), ints({1}), ints({0}), ints({0})}), "step is 0"));
  EXPECT_TRUE(mentions(error_of("Slice", {f32({3, 3}), ints({0, 0}), ints({1, 1}), ints({0, -2})}), "twice"));
}

TEST(SliceGrad, StaysInside) {
  const auto attrs = [](List starts, List steps) {
    return Attrs{{"starts", std::move(starts)}, {"steps", std::move(steps)}};
  };
  EXPECT_EQ(run("SliceGrad", {tensor({2}, {5, 6}), ints({4})}, attrs({3}, {-2})),
            (std::vector<double>{0, 6, 0, 5}));
  EXPECT_TRUE(mentions(error_of("SliceGrad", {f32({2}), ints({4})}, attrs({3}, {1})), "leaves"));
  EXPECT_TRUE(mentions(error_of("SliceGrad", {f32({2}), ints({4})}, attrs({-1}, {1})), "leaves"));
  EXPECT_TRUE(mentions(error_of("SliceGrad", {f32({3}), ints({4})}, attrs({1}, {INT64_MAX})), "leaves"));
  EXPECT_TRUE(mentions(error_of("SliceGrad", {f32({2}), i64({1})}, attrs({0}, {1})), "known"));
  EXPECT_TRUE(mentions(error_of("SliceGrad", {f32({2}), ints({4, 4})}, attrs({0}, {1})), "ranks"));
}

}  // namespace
}  // namespace gradloom
