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
