// Resize and Upsample: sizes, constants are kept by interpolation, borders, errors.
// ONNX's node tests hold the references.
#include <cmath>

#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

Tensor f32s(const std::vector<double>& values) {
  return tensor({static_cast<std::int64_t>(values.size())}, values, DType::f32);
}
const Given none{};

TEST(Resize, SizesFromScalesAndSizes) {
  EXPECT_EQ(shape_of(infer("Resize", {f32({1, 2, 4, 5}), none, f32s({1, 1, 0.5, 1.5})})),
            (Shape{1, 2, 2, 7}));
  EXPECT_EQ(shape_of(infer("Resize", {f32({1, 2, 4, 5}), none, none, ints({1, 2, 9, 3})})),
            (Shape{1, 2, 9, 3}));
  EXPECT_EQ(shape_of(infer("Resize", {f32({1, 2, 4, 5}), none, none, ints({8, 8})}, {{"axes", List{-1, 2}}})),
            (Shape{1, 2, 8, 8}));
  for (const char* policy : {"not_larger", "not_smaller"}) {
    const Attrs attrs{{"axes", List{2, 3}}, {"keep_aspect_ratio_policy", std::string(policy)}};
    EXPECT_EQ(shape_of(infer("Resize", {f32({1, 2, 4, 6}), none, none, ints({8, 6})}, attrs)),
              policy == std::string("not_larger") ? (Shape{1, 2, 4, 6}) : (Shape{1, 2, 8, 12}));
  }
  EXPECT_LT(shape_of(infer("Resize", {f32({4}), none, f32({1})}))[0], 0);
}

TEST(Resize, SymbolicDimensionsKeepTheirNameAtScale1) {
  const Shape y = shape_of(infer("Resize", {f32({-1, 2, 4, -2}), none, f32s({1, 1, 2, 2})}));
  EXPECT_EQ(y[0], -1);
  EXPECT_EQ(y[2], 8);
  EXPECT_LT(y[3], 0);
  EXPECT_NE(y[3], -2);
}

TEST(Resize, ConstantsStayConstant) {
  const Tensor x = tensor({1, 1, 4, 5}, std::vector<double>(20, 3));
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* transformation :
         {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"})
      for (const std::int64_t antialias : {0, 1})
        for (const std::int64_t exclude : {0, 1}) {
          const Attrs attrs{{"mode", std::string(mode)},
                            {"coordinate_transformation_mode", std::string(transformation)},
                            {"antialias", antialias},
                            {"exclude_outside", exclude}};
          for (double v : run("Resize", {x, Tensor(), f32s({1, 1, 0.6, 2.3})}, attrs))
            EXPECT_NEAR(v, 3, 1e-12) << mode << transformation;
        }
}

// 18 * 14 / 36 is 7, in doubles and with PyTorch's ratio in f32; 18 / (36 / 14.0) would be below.
TEST(Resize, NearestFindsThePixelAtItsEdge) {
  std::vector<double> pixels;
  for (int i = 0; i < 14; ++i) pixels.push_back(i);
  for (const char* rounding : {"floor", "round_prefer_floor"}) {
    const Attrs attrs{{"mode", std::string("nearest")},
                      {"coordinate_transformation_mode", std::string("asymmetric")},
                      {"nearest_mode", std::string(rounding)}};
    const std::vector<double> y =
        run("Resize", {tensor({14}, pixels), Tensor(), Tensor(), ints({36})}, attrs);
    ASSERT_EQ(y.size(), 36u);
    EXPECT_EQ(y[18], 7) << rounding;
    for (std::size_t j = 0; j < 36 && rounding == std::string("floor"); ++j)
      EXPECT_EQ(y[j], std::floor(static_cast<float>(j) * (14.0f / 36.0f))) << j;
  }
}

TEST(Resize, CropFillsWhatIsOutside) {
  const Attrs attrs{{"mode", std::string("linear")},
                    {"coordinate_transformation_mode", std::string("tf_crop_and_resize")},
                    {"extrapolation_value", 9.0}};
  const std::vector<double> y =
      run("Resize", {tensor({4}, {0, 1, 2, 3}), f32s({-0.5, 1}), Tensor(), ints({4})}, attrs);
  EXPECT_EQ(y, (std::vector<double>{9, 0, 1.5, 3}));
}

// Tables of weights are made when planning: an axis of terabytes, or a kernel as wide as one, is an error.
TEST(Resize, TablesHaveALimit) {
  const auto why = [](std::int64_t in, std::int64_t out, std::int64_t antialias, const char* mode) {
    Graph graph;
    GraphBuilder b(graph);
    const ValueId x = b.input("x", f32({in}));
    const auto y = b.add(op_by_name("Resize"), {x, kNone, kNone, b.i64s({out})},
                         {{"mode", std::string(mode)}, {"antialias", antialias}});
    EXPECT_TRUE(y.ok());
    return missing_kernel(graph, graph.nodes[0], kernels::Target::cpu);
  };
  EXPECT_TRUE(mentions(why(std::int64_t{1} << 40, 4, 1, "linear"), "over the limit"));
  EXPECT_TRUE(mentions(why((std::int64_t{1} << 24) + 1, 4, 0, "nearest"), "over the limit"));
  EXPECT_TRUE(mentions(why(std::int64_t{1} << 24, 4, 1, "linear"), "weights"));
  EXPECT_EQ(why(std::int64_t{1} << 24, 4, 0, "linear"), "");
  EXPECT_EQ(why(1'000'000, 1000, 1, "cubic"), "");
}

TEST(Resize, CoordinatesFarOutsideEnd) {
  const Attrs attrs{{"mode", std::string("linear")},
                    {"coordinate_transformation_mode", std::string("align_corners")}};
  // (in * scale - 1) is 4e-16: the second position lies 1e16 behind the end.
  const std::vector<double> y = run("Resize", {tensor({2}, {1, 3}), Tensor(), f32s({0.5}), Tensor()}, attrs);
  EXPECT_EQ(y.size(), 1u);
  const std::vector<double> roi =
      run("Resize", {tensor({4}, {0, 1, 2, 3}), f32s({-1e30, 1e30}), Tensor(), ints({4})},
          {{"mode", std::string("linear")},
           {"extrapolation_value", 9.0},
           {"coordinate_transformation_mode", std::string("tf_crop_and_resize")}});
  EXPECT_EQ(roi, (std::vector<double>{9, 9, 9, 9}));
}

TEST(Resize, RefusesWhatItCannotMean) {
  EXPECT_TRUE(mentions(error_of("Resize", {f32({4})}), "either scales or sizes"));
  EXPECT_TRUE(mentions(error_of("Resize", {f32({4}), none, f32s({2}), ints({8})}), "either scales or sizes"));
  EXPECT_TRUE(mentions(error_of("Resize", {f32({4}), none, f32s({2, 2})}), "for 1 axes"));
  EXPECT_TRUE(mentions(error_of("Resize", {f32({4}), none, f32s({0})}), "a scale is 0"));
  EXPECT_TRUE(mentions(error_of("Resize", {f32({4}), none, f32s({1e30})}), "too many"));
  EXPECT_TRUE(mentions(error_of("Resize", {f32({4}), none, f32s({1e-45})}),
                       "a scale of 1.4013e-45 leaves nothing of an axis of 4"));
  EXPECT_TRUE(mentions(error_of("Resize", {f32({4}), none, f32s({0.24})}), "leaves nothing"));
  EXPECT_TRUE(infer("Resize", {f32({4}), none, f32s({0.25})}).ok());
  EXPECT_TRUE(mentions(error_of("Resize", {f32({4}), none, none, ints({0})}), "a size is 0"));
  EXPECT_TRUE(mentions(error_of("Resize", {f32({4}), none, f32s({2})}, {{"mode", std::string("lanczos")}}),
                       "lanczos"));
  EXPECT_TRUE(mentions(error_of("Resize", {f32({4}), none, none, ints({8})},
                                {{"coordinate_transformation_mode", std::string("tf_crop_and_resize")}}),
                       "roi"));
}

TEST(Upsample, ScalesFromAttributeOrInput) {
  const OpDef* row = find_op("Upsample", "", 8);
  ASSERT_NE(row, nullptr);
  const Tensor x = tensor({1, 2}, {1, 2});
  for (const auto& result : {evaluate(*row, {{"scales", std::vector<double>{2, 2}}}, {x}),
                             evaluate(*row, {}, {x, f32s({2, 2})})}) {
    ASSERT_TRUE(result.ok());
    EXPECT_EQ((*result)[0].to_f64(), (std::vector<double>{1, 1, 2, 2, 1, 1, 2, 2}));
  }
  EXPECT_EQ(find_op("Upsample", "", 10), nullptr);
}

}  // namespace
}  // namespace gradloom
