// Trilu, CumSum, ArgMax and ArgMin: edges and errors.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

TEST(Trilu, EveryDiagonal) {
  const List contents = {1, 2, 3, 4, 5, 6};
  for (const std::int64_t upper : {0, 1})
    for (const std::int64_t k : {INT64_MIN, std::int64_t{-3}, std::int64_t{-1}, std::int64_t{0},
                                 std::int64_t{1}, std::int64_t{3}, INT64_MAX}) {
      std::vector<double> want;
      for (std::int64_t r = 0; r < 2; ++r)
        for (std::int64_t c = 0; c < 3; ++c) {
          const bool kept = upper ? c - r >= k : c - r <= k;
          want.push_back(kept ? static_cast<double>(contents[static_cast<std::size_t>(r * 3 + c)]) : 0);
        }
      EXPECT_EQ(run("Trilu", {ints(contents).reshaped({2, 3}), scalar(k)}, {{"upper", upper}}), want)
          << upper << " " << k;
    }
}

TEST(Trilu, RefusesWrongInputs) {
  EXPECT_TRUE(mentions(error_of("Trilu", {f32({3})}), "two dimensions"));
  EXPECT_TRUE(mentions(error_of("Trilu", {f32({3, 3}), ints({1, 2})}), "one number"));
  EXPECT_TRUE(mentions(error_of("Trilu", {f32({3, 3}), f32({})}), "integer"));
  EXPECT_TRUE(run("Trilu", {tensor({0, 3}, {})}).empty());
}

TEST(CumSum, AxisInAnyForm) {
  const Tensor x = ints({1, 2, 3, 4, 5, 6}).reshaped({2, 3});
  EXPECT_EQ(run("CumSum", {x, scalar(1)}), (std::vector<double>{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(run("CumSum", {x, ints({-2})}), (std::vector<double>{1, 2, 3, 5, 7, 9}));
  EXPECT_EQ(run("CumSum", {x, tensor({}, {1}, DType::i32)},
                {{"exclusive", std::int64_t{1}}, {"reverse", std::int64_t{1}}}),
            (std::vector<double>{5, 3, 0, 11, 6, 0}));
  EXPECT_TRUE(mentions(error_of("CumSum", {f32({3}), scalar(1)}), "out of range"));
  EXPECT_TRUE(mentions(error_of("CumSum", {f32({}), scalar(0)}), "scalar"));
  EXPECT_TRUE(mentions(error_of("CumSum", {f32({3}), f32({})}), "integer"));
}

TEST(CumSum, UnsignedSumsWrap) {
  const Tensor x = tensor({3}, {4294967295.0, 3, 5}, DType::u32);
  EXPECT_EQ(run("CumSum", {x, scalar(0)}), (std::vector<double>{4294967295.0, 2, 7}));
  EXPECT_EQ(run("CumSum", {x.cast(DType::u64), scalar(0)}),
            (std::vector<double>{4294967295.0, 4294967298.0, 4294967303.0}));
}

TEST(CumSum, AxisKnownOnlyWhenRunning) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f64, {2, 2}}), axis = b.input("axis", i64({}));
  const ValueId y = b.op("CumSum", {x, axis});
  auto runner = reference::Runner::create(graph);
  ASSERT_TRUE(runner.ok());
  for (const std::int64_t a : {0, 1, -1}) {
    auto values = runner->run({{x, tensor({2, 2}, {1, 2, 3, 4})}, {axis, scalar(a)}});
    ASSERT_TRUE(values.ok());
    EXPECT_EQ((*values)[y].to_f64(),
              a == 0 ? (std::vector<double>{1, 2, 4, 6}) : (std::vector<double>{1, 3, 3, 7}));
  }
}

TEST(Arg, FirstOrLastOfEqual) {
  const Tensor x = ints({3, 1, 3, 1});
  const Attrs last = {{"select_last_index", std::int64_t{1}}};
  EXPECT_EQ(run("ArgMax", {x}), (std::vector<double>{0}));
  EXPECT_EQ(run("ArgMax", {x}, last), (std::vector<double>{2}));
  EXPECT_EQ(run("ArgMin", {x}), (std::vector<double>{1}));
  EXPECT_EQ(run("ArgMin", {x}, last), (std::vector<double>{3}));
  EXPECT_EQ(
      shape_of(infer("ArgMax", {f32({3, -1})}, {{"axis", std::int64_t{0}}, {"keepdims", std::int64_t{0}}})),
      (Shape{-1}));
  EXPECT_TRUE(mentions(error_of("ArgMax", {f32({0, 3})}), "empty"));
  EXPECT_TRUE(mentions(error_of("ArgMax", {f32({3})}, {{"axis", std::int64_t{1}}}), "out of range"));
}

}  // namespace
}  // namespace gradloom
