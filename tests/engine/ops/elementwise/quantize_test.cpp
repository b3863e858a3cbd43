// Quantization beyond the generic suite: rounding, saturation, typed errors, straight-through gradients.
#include <cmath>

#include "engine/ops/inference.h"
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

TEST(QuantizeLinear, RoundsToEvenAndSaturates) {
  const Tensor x = tensor({7}, {0, 1, 3, 5, -1000, 1000, std::nan("")}, DType::f32),
               scale = tensor({}, {2}, DType::f32);
  EXPECT_EQ(run("QuantizeLinear", {x, scale, tensor({}, {128}, DType::u8)}),
            (std::vector<double>{128, 128, 130, 130, 0, 255, 0}));
  EXPECT_EQ(run("QuantizeLinear", {x, scale, tensor({}, {0}, DType::i8)}),
            (std::vector<double>{0, 0, 2, 2, -128, 127, 0}));
}

TEST(QuantizeLinear, ScalesPerAxis) {
  const Tensor x = tensor({2, 2, 1}, {10, 10, -10, -10}, DType::f32), scale = tensor({2}, {1, 5}, DType::f32),
               zero = tensor({2}, {1, -1}, DType::i8);
  EXPECT_EQ(run("QuantizeLinear", {x, scale, zero}), (std::vector<double>{11, 1, -9, -3}));
  const Tensor q = tensor({2, 2, 1}, {11, 1, -9, -3}, DType::i8);
  EXPECT_EQ(run("DequantizeLinear", {q, scale, zero}), (std::vector<double>{10, 10, -10, -10}));
  EXPECT_EQ(run("DequantizeLinear", {q, scale, zero}, {{"axis", std::int64_t{0}}}),
            (std::vector<double>{10, 0, -40, -10}));
}

TEST(QuantizeLinear, ScalesPerBlock) {
  const Attrs blocks{{"block_size", std::int64_t{2}}};
  EXPECT_EQ(run("QuantizeLinear",
                {tensor({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), tensor({2, 2}, {1, 2, 0.5, 4}),
                 tensor({2, 2}, {0, 10, 20, 30}, DType::u8)},
                blocks),
            (std::vector<double>{1, 2, 12, 12, 30, 32, 32, 32}));
  EXPECT_EQ(run("DequantizeLinear", {tensor({4, 1}, {3, 4, 5, 6}, DType::i8), tensor({2, 1}, {0.5, 2})},
                {{"block_size", std::int64_t{2}}, {"axis", std::int64_t{0}}}),
            (std::vector<double>{1.5, 2, 10, 12}));
}

TEST(QuantizeLinear, RefusesWhatItLacks) {
  const Type scale = f32({});
  EXPECT_TRUE(mentions(error_of("QuantizeLinear", {f32({4}), f32({3})}, {{"axis", std::int64_t{0}}}),
                       "3 elements for a dimension of 4"));
  EXPECT_TRUE(
      mentions(error_of("QuantizeLinear", {f32({4, 4}), f32({2, 4})}, {{"block_size", std::int64_t{2}}}),
               "no blocks"));
  EXPECT_TRUE(
      mentions(error_of("QuantizeLinear", {f32({4, 4}), f32({4, 2})}, {{"block_size", std::int64_t{3}}}),
               "do not divide"));
  EXPECT_TRUE(
      mentions(error_of("QuantizeLinear", {f32({4, 4}), f32({4, 2})}, {{"block_size", std::int64_t{-2}}}),
               "block_size is -2"));
  EXPECT_TRUE(mentions(error_of("QuantizeLinear", {f32({4, 4}), f32({4, 2})},
                                {{"block_size", std::int64_t{2}}, {"axis", std::int64_t{7}}}),
                       "axis"));
  EXPECT_TRUE(mentions(error_of("QuantizeLinear", {f32({4}), scale}, {{"output_dtype", std::int64_t{27}}}),
                       "type float6e2m3 is not supported"));
  EXPECT_TRUE(mentions(error_of("QuantizeLinear", {f32({4}), scale}, {{"output_dtype", std::int64_t{24}}}),
                       "quantization to f8e8m0 is not supported"));
  EXPECT_TRUE(mentions(error_of("QuantizeLinear", {f32({4}), scale}, {{"precision", std::int64_t{7}}}),
                       "the precision is i64"));
  EXPECT_TRUE(mentions(error_of("DequantizeLinear", {Type{DType::f8e8m0, {4}}, scale}), "cannot dequantize"));
  EXPECT_TRUE(mentions(error_of("DequantizeLinear", {Type{DType::u8, {4}}, Type{DType::f8e5m2, {}}}),
                       "the scale is f8e5m2"));
  EXPECT_TRUE(mentions(error_of("DequantizeLinear", {Type{DType::u8, {4}}, Type{DType::f8e8m0, {}}}),
                       "dequantization to f8e8m0"));
  EXPECT_TRUE(mentions(error_of("QuantizeLinear", {f32({4}), scale, i64({})}), "not supported"));
  EXPECT_TRUE(mentions(error_of("QuantizeLinear", {i64({4}), scale}), "cannot quantize i64"));
  EXPECT_TRUE(mentions(error_of("DequantizeLinear", {f32({4}), scale}), "cannot dequantize f32"));
  EXPECT_TRUE(mentions(error_of("DequantizeLinear", {Type{DType::u8, {4}}, scale, Type{DType::i8, {}}}),
                       "type of the input"));
}

// d sum(w dequantize(quantize(x))) with learnt scale: dx = w inside the range, 0 outside;
// dscale = w (q - zero point) - w x / scale inside, w (q - zero point) outside (Esser et al.,
// Learned step size quantization, 2020).
TEST(QuantizeLinear, GradientsPassStraightThrough) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f64, {4}}), s = b.input("s", {DType::f64, {}});
  const ValueId zero = b.constant(tensor({}, {10}, DType::u8)), w = b.constant(tensor({4}, {1, 2, 3, 4}));
  const ValueId q = b.op("QuantizeLinear", {x, s, zero});
  const ValueId y = b.op("DequantizeLinear", {q, s, zero});
  const ValueId loss = b.op("ReduceSum", {b.op("Mul", {y, w})}, {{"keepdims", std::int64_t{0}}});
  auto grads = add_gradients(graph, loss, {x, s});
  ASSERT_TRUE(grads.ok()) << grads.error().message;
  auto values = reference::Runner::create(graph)->run(
      {{x, tensor({4}, {0.9, -1.3, 1000, -8})}, {s, tensor({}, {0.5})}});
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[q].to_f64(), (std::vector<double>{12, 7, 255, 0}));
  EXPECT_EQ((*values)[grads->at(x)].to_f64(), (std::vector<double>{1, 2, 0, 0}));
  const double expected = 1 * (2 - 1.8) + 2 * (-3 + 2.6) + 3 * 245 + 4 * -10;
  EXPECT_NEAR((*values)[grads->at(s)].at(0), expected, 1e-12 * expected);
}

TEST(QuantizeLinear, SmallTypesSaturate) {
  const auto quantized = [](DType type, const std::vector<double>& x, double scale, double zero) {
    return run("QuantizeLinear", {tensor({static_cast<std::int64_t>(x.size())}, x, DType::f32),
                                  tensor({}, {scale}, DType::f32), tensor({}, {zero}, type)});
  };
  EXPECT_EQ(quantized(DType::i4, {-100, -3, 5, 7, 100}, 2, 1), (std::vector<double>{-8, -1, 3, 5, 7}));
  EXPECT_EQ(quantized(DType::u4, {-100, 3, 100}, 2, 8), (std::vector<double>{0, 10, 15}));
  EXPECT_EQ(quantized(DType::i2, {-9, -1, 0.4, 9}, 1, 0), (std::vector<double>{-2, -1, 0, 1}));
  EXPECT_EQ(quantized(DType::u2, {-9, 1.5, 2.5, 9}, 1, 0), (std::vector<double>{0, 2, 2, 3}));
  EXPECT_EQ(quantized(DType::f8e4m3fn, {0, 1, 2, 1e5, 200}, 2, 0), (std::vector<double>{0, 0.5, 1, 448, 96}));
  EXPECT_EQ(quantized(DType::f4e2m1, {2.5, 8.6, -30}, 2, 0), (std::vector<double>{1, 4, -6}));
}

TEST(QuantizeLinear, ScalesMayBePowersOfTwo) {
  const Tensor scale = tensor({2, 1}, {0.5, 4}, DType::f8e8m0);
  const Attrs blocks = {{"axis", std::int64_t{1}},
                        {"block_size", std::int64_t{2}},
                        {"output_dtype", onnx_from_dtype(DType::f4e2m1)}};
  EXPECT_EQ(run("QuantizeLinear", {tensor({2, 2}, {0.25, -1, 4, 100}, DType::f32), scale}, blocks),
            (std::vector<double>{0.5, -2, 1, 6}));
  const Attrs back = {{"axis", std::int64_t{1}},
                      {"block_size", std::int64_t{2}},
                      {"output_dtype", onnx_from_dtype(DType::f32)}};
  EXPECT_EQ(run("DequantizeLinear", {tensor({2, 2}, {0.5, -2, 1, 6}, DType::f4e2m1), scale}, back),
            (std::vector<double>{0.25, -1, 4, 24}));
}

TEST(QuantizeLinear, ThePrecisionRoundsTheQuotient) {
  const Tensor x = tensor({1}, {3077}, DType::f32), scale = tensor({}, {3}, DType::f32),
               zero = tensor({}, {0}, DType::i16);
  EXPECT_EQ(run("QuantizeLinear", {x, scale, zero}), (std::vector<double>{1026}));
  EXPECT_EQ(run("QuantizeLinear", {x, scale, zero}, {{"precision", onnx_from_dtype(DType::bf16)}}),
            (std::vector<double>{1024}));  // 3072 / 3
}

// Floats of eight bits: no rounding to whole numbers, and 0 beyond the largest.
TEST(QuantizeLinear, GradientsOfSmallFloats) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f64, {3}}), s = b.input("s", {DType::f64, {}});
  const ValueId zero = b.constant(tensor({}, {0}, DType::f8e4m3fn)), w = b.constant(tensor({3}, {1, 2, 3}));
  const ValueId q = b.op("QuantizeLinear", {x, s, zero});
  const ValueId y = b.op("DequantizeLinear", {q, s, zero});
  const ValueId loss = b.op("ReduceSum", {b.op("Mul", {y, w})}, {{"keepdims", std::int64_t{0}}});
  const auto grads = add_gradients(graph, loss, {x, s});
  ASSERT_TRUE(grads.ok()) << grads.error().message;
  const auto values =
      reference::Runner::create(graph)->run({{x, tensor({3}, {1.0625, -2.5, 1e4})}, {s, tensor({}, {2})}});
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[q].to_f64(), (std::vector<double>{0.53125 - 0.03125, -1.25, 448}));
  EXPECT_EQ((*values)[grads->at(x)].to_f64(), (std::vector<double>{1, 2, 0}));
  EXPECT_NEAR((*values)[grads->at(s)].at(0), (0.5 - 0.53125) + 3 * 448, 1e-9);
}

TEST(QuantizeLinear, GradientsPassThroughAnotherOrderAndShape) {
  for (const DType code : {DType::i4, DType::i8, DType::f8e5m2}) {
    Graph graph;
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f64, {2, 3}}), s = b.constant(tensor({}, {0.5}));
    const ValueId zero = b.constant(tensor({}, {0}, code));
    const ValueId w = b.constant(tensor({6}, {1, 2, 3, 4, 5, 6}));
    const ValueId turned = b.op("Transpose", {b.op("QuantizeLinear", {x, s, zero})});
    const ValueId flat = b.op("Reshape", {turned, b.i64s({6})});
    const ValueId y = b.op("DequantizeLinear", {flat, s, zero});
    const ValueId loss = b.op("ReduceSum", {b.op("Mul", {y, w})}, {{"keepdims", std::int64_t{0}}});
    const auto grads = add_gradients(graph, loss, {x});
    ASSERT_TRUE(grads.ok()) << grads.error().message;
    const auto values = reference::Runner::create(graph)->run({{x, tensor({2, 3}, {1, 2, 3, -1, -2, -3})}});
    ASSERT_TRUE(values.ok());
    EXPECT_EQ((*values)[grads->at(x)].to_f64(), (std::vector<double>{1, 3, 5, 2, 4, 6})) << dtype_name(code);
  }
}

TEST(QuantizeLinear, GradientsPerAxis) {
  const Tensor x = tensor({2, 2, 1}, {1.2, 1.7, -1.3, -1e6}), scale = tensor({2}, {0.5, 2});
  Graph graph;
  GraphBuilder b(graph);
  const ValueId in = b.input("x", x.type()), s = b.input("s", scale.type()),
                zero = b.constant(tensor({2}, {0, 0}, DType::i8));
  const ValueId loss =
      b.op("ReduceSum", {b.op("DequantizeLinear", {b.op("QuantizeLinear", {in, s, zero}), s, zero})},
           {{"keepdims", std::int64_t{0}}});
  auto grads = add_gradients(graph, loss, {in, s});
  ASSERT_TRUE(grads.ok()) << grads.error().message;
  auto values = reference::Runner::create(graph)->run({{in, x}, {s, scale}});
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[grads->at(in)].to_f64(), (std::vector<double>{1, 1, 1, 0}));
  const auto ds = (*values)[grads->at(s)].to_f64();
  EXPECT_NEAR(ds[0], (2 - 2.4) + (-3 + 2.6), 1e-12);
  EXPECT_NEAR(ds[1], (1 - 0.85) - 128, 1e-12);
}

TEST(DynamicQuantizeLinear, CoversTheRange) {
  const auto y =
      evaluate(op_by_name("DynamicQuantizeLinear"), {}, {tensor({4}, {-1, 0, 0.5, 1.55}, DType::f32)}, 3);
  ASSERT_TRUE(y.ok());
  EXPECT_NEAR((*y)[1].at(0), 0.01, 1e-8);
  EXPECT_EQ((*y)[2].at(0), 100);
  EXPECT_EQ((*y)[0].to_f64(), (std::vector<double>{0, 100, 150, 255}));
}

}  // namespace
}  // namespace gradloom
