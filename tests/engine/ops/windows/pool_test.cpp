// MaxPool, AveragePool, GlobalAveragePool against the definition; numbering of Indices; windows of ceil_mode.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

TEST(MaxPool, NumbersIndicesInTheWholeTensor) {
  // Plane 0 rises along the rows, plane 1 falls.
  std::vector<double> values;
  for (int i = 0; i < 12; ++i) values.push_back(i);
  for (int i = 0; i < 12; ++i) values.push_back(-i);
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = Tensor::from_f64(dtype, {1, 2, 3, 4}, values);
    const Attrs rows{{"kernel_shape", Ints{2, 2}}};
    auto y = run("MaxPool", rows, {x}, 3);
    expect_near(y[0], {1, 2, 2, 3}, {5, 6, 7, 9, 10, 11, 0, -1, -2, -4, -5, -6}, 0);
    EXPECT_EQ(y[1].to_i64(), (Ints{5, 6, 7, 9, 10, 11, 12, 13, 14, 16, 17, 18}));
    EXPECT_EQ(y[2].to_i64(), (Ints{5, 6, 7, 9, 10, 11, 0, 1, 2, 4, 5, 6}));
    // Column-major within a plane of 3 rows: row r, column c has number c * 3 + r.
    y = run("MaxPool", {{"kernel_shape", Ints{2, 2}}, {"storage_order", std::int64_t{1}}}, {x}, 2);
    EXPECT_EQ(y[1].to_i64(), (Ints{4, 7, 10, 5, 8, 11, 12, 15, 18, 13, 16, 19}));
  }
}

TEST(MaxPool, PaddingNeverWins) {
  const Tensor x = Tensor::from_f64(DType::f32, {1, 1, 2, 2}, {-5, -6, -7, -8});
  const auto y = run("MaxPool", {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}}, {x}, 2);
  expect_near(y[0], {1, 1, 2, 2}, {-5, -5, -5, -5}, 0);
  EXPECT_EQ(y[1].to_i64(), (Ints{0, 0, 0, 0}));
}

// A window of padding alone has no maximum and no mean.
TEST(Pooling, RefusesPadsOfAWholeWindow) {
  const Tensor x(DType::f32, {1, 1, 4, 4});
  for (const char* op : {"MaxPool", "AveragePool", "LpPool"}) {
    const auto pooled = [&](const Ints& pads, std::int64_t dilation) {
      return evaluate(op_by_name(op),
                      {{"kernel_shape", Ints{2, 2}}, {"pads", pads}, {"dilations", Ints{1, dilation}}}, {x});
    };
    for (const Ints& pads : {Ints{2, 0, 0, 0}, Ints{0, 0, 0, 2}}) {
      const auto refused = pooled(pads, 1);
      ASSERT_FALSE(refused.ok()) << op;
      EXPECT_NE(refused.error().message.find("pads of 2 hold a whole window of 2"), std::string::npos);
    }
    EXPECT_TRUE(pooled({1, 1, 1, 1}, 1).ok()) << op;
    EXPECT_TRUE(pooled({0, 2, 0, 2}, 2).ok()) << op;  // its window spans 3
  }
}

TEST(MaxPool, GradientGoesToTheMaximum) {
  const Tensor x = Tensor::from_f64(DType::f64, {1, 1, 2, 3}, {1, 5, 2, 3, 4, 0});
  const Tensor dy = Tensor::from_f64(DType::f64, {1, 1, 2, 2}, {10, 20, 30, 40});
  Differentiated d = differentiate(op_by_name("MaxPool"), {{"kernel_shape", Ints{1, 2}}}, {x}, dy, {0});
  expect_near(d.grad(0), {1, 1, 2, 3}, {0, 30, 0, 0, 70, 0}, 0);
}

TEST(Pool, CeilModeKeepsPartialWindowsAndDropsEmptyOnes) {
  const auto shape = [](std::int64_t in, std::int64_t k, std::int64_t stride, std::int64_t pad, bool ceil) {
    const Attrs attrs{{"kernel_shape", Ints{k}},
                      {"strides", Ints{stride}},
                      {"pads", Ints{pad, pad}},
                      {"ceil_mode", std::int64_t{ceil}}};
    return inferred("MaxPool", attrs, {{DType::f32, {1, 1, in}}})[0].shape[2];
  };
  EXPECT_EQ(shape(6, 3, 2, 0, false), 2);
  EXPECT_EQ(shape(6, 3, 2, 0, true), 3);
  EXPECT_EQ(shape(7, 3, 2, 0, true), 3);
  EXPECT_EQ(shape(4, 1, 3, 0, true), 2);
  EXPECT_EQ(shape(3, 2, 3, 1, true), 2);  // a third window would start beyond the input
  const Tensor x = Tensor::from_f64(DType::f32, {1, 1, 4}, {1, 2, 3, 4});
  const Attrs attrs{{"kernel_shape", Ints{3}}, {"strides", Ints{2}}, {"ceil_mode", std::int64_t{1}}};
  expect_near(run("AveragePool", attrs, {x})[0], {1, 1, 2}, {2, 3.5}, 0);
}

TEST(AveragePool, DividesByWhatItCounts) {
  const Tensor x = Tensor::from_f64(DType::f64, {1, 1, 2, 2}, {1, 2, 3, 4});
  Attrs attrs{{"kernel_shape", Ints{2, 2}}, {"pads", Ints{1, 1, 0, 0}}};
  expect_near(run("AveragePool", attrs, {x})[0], {1, 1, 2, 2}, {1, 1.5, 2, 2.5}, 1e-15);
  attrs.set("count_include_pad", std::int64_t{1});
  expect_near(run("AveragePool", attrs, {x})[0], {1, 1, 2, 2}, {0.25, 0.75, 1, 2.5}, 1e-15);
  const Tensor dy = Tensor::from_f64(DType::f64, {1, 1, 2, 2}, {4, 8, 12, 16});
  Differentiated d = differentiate(op_by_name("AveragePool"), attrs, {x}, dy, {0});
  expect_near(d.grad(0), {1, 1, 2, 2}, {10, 6, 7, 4}, 1e-15);
}

// [pad 1 2 3 4 5] in windows of 3, step 2: the last one is [4 5 beyond] and covers two
// elements of the padded row.
TEST(AveragePool, WindowsBeyondThePaddingCountWhatTheyCover) {
  const Tensor x = Tensor::from_f64(DType::f64, {1, 1, 5}, {1, 2, 3, 4, 5});
  Attrs attrs{{"kernel_shape", Ints{3}},
              {"strides", Ints{2}},
              {"pads", Ints{1, 0}},
              {"ceil_mode", std::int64_t{1}},
              {"count_include_pad", std::int64_t{1}}};
  expect_near(run("AveragePool", attrs, {x})[0], {1, 1, 3}, {1, 3, 4.5}, 1e-15);
  attrs.set("pads", Ints{0, 0});
  const Tensor six = Tensor::from_f64(DType::f64, {1, 1, 6}, {1, 2, 3, 4, 5, 6});
  expect_near(run("AveragePool", attrs, {six})[0], {1, 1, 3}, {2, 4, 5.5}, 1e-15);
  const Tensor dy = Tensor::from_f64(DType::f64, {1, 1, 3}, {3, 6, 8});
  Differentiated d = differentiate(op_by_name("AveragePool"), attrs, {six}, dy, {0});
  expect_near(d.grad(0), {1, 1, 6}, {1, 1, 3, 2, 6, 4}, 1e-15);
}

TEST(AveragePool, Dilations) {
  const Tensor x = Tensor::from_f64(DType::f64, {1, 1, 6}, {1, 2, 3, 4, 5, 6});
  Attrs attrs{{"kernel_shape", Ints{2}}, {"dilations", Ints{3}}, {"pads", Ints{1, 0}}};
  expect_near(run("AveragePool", attrs, {x})[0], {1, 1, 4}, {3, 2.5, 3.5, 4.5}, 1e-15);
  attrs.set("count_include_pad", std::int64_t{1});
  expect_near(run("AveragePool", attrs, {x})[0], {1, 1, 4}, {1.5, 2.5, 3.5, 4.5}, 1e-15);
}

TEST(GlobalAveragePool, IsTheMeanAndItsGradientSpreads) {
  const Tensor x = Tensor::from_f64(DType::f64, {1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 12});
  expect_near(run("GlobalAveragePool", {}, {x})[0], {1, 2, 1, 1}, {2.5, 7.5}, 1e-15);
  const Tensor dy = Tensor::from_f64(DType::f64, {1, 2, 1, 1}, {4, 8});
  Differentiated d = differentiate(op_by_name("GlobalAveragePool"), {}, {x}, dy, {0});
  expect_near(d.grad(0), {1, 2, 2, 2}, {1, 1, 1, 1, 2, 2, 2, 2}, 1e-15);
}

TEST(Pool, ErrorsAndLimits) {
  EXPECT_EQ(inference_error("MaxPool", {}, {{DType::f32, {1, 1, 4, 4}}}),
            "attribute kernel_shape is missing");
  EXPECT_EQ(inference_error("MaxPool", {{"kernel_shape", Ints{2, 2}}}, {{DType::f32, {4, 4}}}),
            "input [4, 4] must have 3 or more dims");
  EXPECT_EQ(inference_error("AveragePool", {{"kernel_shape", Ints{2}}, {"auto_pad", std::string("SOME")}},
                            {{DType::f32, {1, 1, 4}}}),
            "auto_pad 'SOME' is unknown");
  // Inference knows 4-d windows; the CPU kernel does not and says so.
  const Tensor x(DType::f32, {1, 1, 4, 4, 4, 4});
  auto result = evaluate(op_by_name("MaxPool"), {{"kernel_shape", Ints{2, 2, 2, 2}}}, {x});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::device);
  EXPECT_NE(result.error().message.find("no kernel for 4-d windows"), std::string::npos);
  EXPECT_EQ(inferred("GlobalAveragePool", {}, {{DType::f32, {-1, 3, -2, -3}}})[0].shape,
            (Shape{-1, 3, 1, 1}));
}

}  // namespace
}  // namespace gradloom
