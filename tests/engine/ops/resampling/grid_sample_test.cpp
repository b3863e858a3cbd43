// GridSample: identity grids, errors; kernels and references are in tests/kernels.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

TEST(GridSample, CornersOfAnImage) {
  const Tensor x = tensor({1, 1, 2, 2}, {1, 2, 3, 4}),
               grid = tensor({1, 1, 4, 2}, {-1, -1, 1, -1, -1, 1, 0, 0});
  for (const char* mode : {"linear", "bilinear", "cubic"})
    EXPECT_EQ(run("GridSample", {x, grid},
                  {{"mode", std::string(mode)},
                   {"align_corners", std::int64_t{1}},
                   {"padding_mode", std::string("border")}}),
              (std::vector<double>{1, 2, 3, 2.5}));
  EXPECT_EQ(run("GridSample", {x, grid}),
            (std::vector<double>{0.25, 0.5, 0.75, 2.5}));  // corners are a quarter inside
}

// A transformer that begins with the identity: at the border, or beyond it, the place has no gradient.
TEST(GridSample, TheBorderHoldsTheGrid) {
  const Tensor x = tensor({1, 1, 3, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8}),
               grid = tensor({1, 1, 3, 2}, {-1, -1, 1, 1, 0.5, 1.5});
  for (const char* padding : {"border", "reflection"}) {
    const Attrs attrs{{"align_corners", std::int64_t{1}}, {"padding_mode", std::string(padding)}};
    const std::vector<double> dgrid = gradient("GridSample", {x, grid}, 1, attrs);
    ASSERT_EQ(dgrid.size(), 6u);
    EXPECT_EQ(std::vector<double>(dgrid.begin(), dgrid.begin() + 4), (std::vector<double>{0, 0, 0, 0}))
        << padding;
    EXPECT_EQ(dgrid[4], 1) << padding;
    EXPECT_EQ(dgrid[5], padding == std::string("border") ? 0 : -3) << padding;
  }
}

TEST(GridSample, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(mentions(error_of("GridSample", {f32({1, 2, 3}), f32({1, 2, 1})}), "x must be"));
  EXPECT_TRUE(mentions(error_of("GridSample", {f32({1, 2, 3, 3}), f32({1, 2, 2, 3})}), "does not fit"));
  EXPECT_TRUE(mentions(error_of("GridSample", {f32({1, 2, 3, 3}), f32({2, 2, 2, 2})}), "does not fit"));
  EXPECT_TRUE(mentions(error_of("GridSample", {f32({1, 2, 0, 3}), f32({1, 2, 2, 2})}), "no pixels"));
  EXPECT_TRUE(mentions(
      error_of("GridSample", {f32({1, 2, 3, 3}), f32({1, 2, 2, 2})}, {{"mode", std::string("area")}}),
      "area"));
  EXPECT_TRUE(mentions(
      error_of("GridSample", {f32({1, 2, 3, 3}), f32({1, 2, 2, 2})}, {{"padding_mode", std::string("wrap")}}),
      "wrap"));
}

}  // namespace
}  // namespace gradloom
