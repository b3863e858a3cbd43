// ScatterElements, Scatter, ScatterND: duplicates, gradients where places meet, errors.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

Attrs reduced(const char* how) { return {{"reduction", std::string(how)}}; }

TEST(ScatterElements, DuplicatesMeetInOrder) {
  const Tensor data = tensor({3}, {10, 20, 30}), indices = ints({1, 1, -1, 1}),
               updates = tensor({4}, {1, 2, 3, 4});
  using Values = std::vector<double>;
  EXPECT_EQ(run("ScatterElements", {data, indices, updates}), (Values{10, 4, 3}));
  EXPECT_EQ(run("ScatterElements", {data, indices, updates}, reduced("add")), (Values{10, 27, 33}));
  EXPECT_EQ(run("ScatterElements", {data, indices, updates}, reduced("mul")), (Values{10, 160, 90}));
  EXPECT_EQ(run("ScatterElements", {data, indices, updates}, reduced("max")), (Values{10, 20, 30}));
  EXPECT_EQ(run("ScatterElements", {data, indices, updates}, reduced("min")), (Values{10, 1, 3}));
}

TEST(ScatterElements, GradientsWherePlacesMeet) {
  const Tensor data = tensor({3}, {10, 20, 30}), indices = ints({1, 1, 2, 1}),
               updates = tensor({4}, {1, 2, 30, 4});
  using Values = std::vector<double>;
  EXPECT_EQ(gradient("ScatterElements", {data, indices, updates}, 0), (Values{1, 0, 0}));
  EXPECT_EQ(gradient("ScatterElements", {data, indices, updates}, 2),
            (Values{0, 0, 1, 1}));  // overwritten: 0
  EXPECT_EQ(gradient("ScatterElements", {data, indices, updates}, 0, reduced("max")), (Values{1, 1, 0.5}));
  EXPECT_EQ(gradient("ScatterElements", {data, indices, updates}, 2, reduced("max")), (Values{0, 0, 0.5, 0}));
  EXPECT_EQ(gradient("ScatterElements", {data, indices, updates}, 0, reduced("mul")), (Values{1, 8, 30}));
  EXPECT_EQ(gradient("ScatterElements", {data, indices, updates}, 2, reduced("mul")),
            (Values{160, 80, 30, 40}));
}

TEST(ScatterElements, OneZeroFactorKeepsItsGradient) {
  const Tensor data = tensor({2}, {0, 0}), indices = ints({0, 1}), updates = tensor({2}, {5, 0});
  EXPECT_EQ(gradient("ScatterElements", {data, indices, updates}, 0, reduced("mul")),
            (std::vector<double>{5, 0}));
  EXPECT_EQ(gradient("ScatterElements", {data, indices, updates}, 2, reduced("mul")),
            (std::vector<double>{0, 0}));
}

TEST(ScatterElements, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(mentions(error_of("ScatterElements", {f32({3}), i64({2}), f32({3})}), "shape of the indices"));
  EXPECT_TRUE(mentions(error_of("ScatterElements", {f32({3, 2}), i64({2}), f32({2})}), "rank"));
  EXPECT_TRUE(mentions(error_of("ScatterElements", {f32({3, 2}), i64({2, 3}), f32({2, 3})}), "beyond"));
  EXPECT_TRUE(mentions(error_of("ScatterElements", {f32({3}), ints({3}), f32({1})}), "out of range"));
  EXPECT_TRUE(mentions(error_of("ScatterElements", {f32({3}), i64({2}), i64({2})}), "type of the data"));
  EXPECT_TRUE(mentions(error_of("ScatterElements", {f32({3}), i64({2}), f32({2})}, reduced("mean")),
                       "not supported"));
}

TEST(ScatterND, RefusesKnownIndicesOutOfRange) {
  const auto refused = [](const List& indices) {
    return error_of("ScatterND", {f32({3, 2}), ints(indices).reshaped({1, 2}), f32({1})});
  };
  EXPECT_TRUE(mentions(refused({3, 0}), "index 3 is out of range for axis 0 of size 3"));
  EXPECT_TRUE(mentions(refused({0, -3}), "index -3 is out of range for axis 1 of size 2"));
  EXPECT_TRUE(infer("ScatterND", {f32({3, 2}), ints({-3, 1}).reshaped({1, 2}), f32({1})}).ok());
  EXPECT_TRUE(infer("ScatterND", {f32({3, 2}), i64({1, 2}), f32({1})}).ok());
}

TEST(ScatterND, WritesBlocksAndNothing) {
  const Tensor data = tensor({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(run("ScatterND", {data, ints({1, 1}).reshaped({2, 1}), tensor({2, 2}, {5, 6, 7, 8})}),
            (std::vector<double>{1, 2, 7, 8}));
  EXPECT_EQ(run("ScatterND", {data, ints({}).reshaped({0, 2}), tensor({0}, {})}),
            (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(run("ScatterND", {data, ints({}).reshaped({1, 0}), tensor({1, 2, 2}, {5, 6, 7, 8})}),
            (std::vector<double>{5, 6, 7, 8}));
}

TEST(ScatterND, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(mentions(error_of("ScatterND", {f32({3, 2}), i64({4, 3}), f32({4})}), "3 indices per item"));
  EXPECT_TRUE(mentions(error_of("ScatterND", {f32({3, 2}), i64({4, 1}), f32({4})}), "not [4, 2]"));
}

TEST(Scatter, IsOfOpsets9And10) {
  EXPECT_EQ(find_op("Scatter", "", 8), nullptr);
  EXPECT_NE(find_op("Scatter", "", 9), nullptr);
  EXPECT_EQ(find_op("Scatter", "", 11), nullptr);
}

}  // namespace
}  // namespace gradloom
