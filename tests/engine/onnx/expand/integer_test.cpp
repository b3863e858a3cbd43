// Operators on quantized numbers as bodies.
#include "engine/onnx/expand/expansion.h"

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

Tensor bytes_of(DType type, Shape shape, const Array& values) {
  return Tensor::from_f64(type, std::move(shape), values);
}

TEST(ExpandInteger, ProductsOfDifferences) {
  const Expanded e = expanded(
      "g (uint8[2, 2] a, int8[2, 2] b, uint8[2] za, int8 zb) => (int32[2, 2] y)"
      "{ y = MatMulInteger(a, b, za, zb) }",
      17,
      {{"a", bytes_of(DType::u8, {2, 2}, {255, 1, 0, 200})},
       {"b", bytes_of(DType::i8, {2, 2}, {-128, 3, 127, -4})},
       {"za", bytes_of(DType::u8, {2}, {5, 100})},
       {"zb", bytes_of(DType::i8, {}, {2})}});
  expect_near(e.model.graph.value(e.model.graph.outputs[0]).data.to_f64(),
              {250 * -130 - 4 * 125, 250 * 1 + 4 * 6, -100 * -130 + 100 * 125, -100 * 1 + 100 * -6});
}

TEST(ExpandInteger, RoundsToEvenAndSaturates) {
  const auto product = [](const Array& a) {
    const Expanded e = expanded(
        "g (int8[1, 1] a, float sa, int8 za, int8[1, 1] b, float sb, int8 zb, float sy, int8 zy) => (int8[1, "
        "1] y)"
        "{ y = QLinearMatMul(a, sa, za, b, sb, zb, sy, zy) }",
        17,
        {{"a", bytes_of(DType::i8, {1, 1}, a)},
         {"sa", Tensor::scalar(DType::f64, 0.5)},
         {"za", bytes_of(DType::i8, {}, {0})},
         {"b", bytes_of(DType::i8, {1, 1}, {3})},
         {"sb", Tensor::scalar(DType::f64, 0.5)},
         {"zb", bytes_of(DType::i8, {}, {1})},
         {"sy", Tensor::scalar(DType::f64, 1)},
         {"zy", bytes_of(DType::i8, {}, {10})}});
    return e.model.graph.value(e.model.graph.outputs[0]).data.to_f64()[0];
  };
  EXPECT_EQ(product({5}), 12) << "2.5 + 10";
  EXPECT_EQ(product({7}), 14) << "3.5 + 10";
  EXPECT_EQ(product({127}), 74) << "63.5 + 10";
  EXPECT_EQ(product({-128}), -54);
}

// 3 times 2.5 as float8e4m3fn, with scales.
TEST(ExpandInteger, ProductsOfFloatsOfEightBits) {
  const auto product = [](double scale) {
    ImportOptions options;
    options.known_inputs = {{"ua", bytes_of(DType::u8, {1, 1}, {0x44})},
                            {"sa", Tensor::scalar(DType::f32, 0.5)},
                            {"ub", bytes_of(DType::u8, {1, 1}, {0x42})},
                            {"sy", Tensor::scalar(DType::f32, scale)},
                            {"uz", bytes_of(DType::u8, {}, {0})}};
    const Graph graph =
        imported_or_fail(
            model_from_text(
                "g (uint8[1, 1] ua, float sa, uint8[1, 1] ub, float sy, uint8 uz) => (float[1, 1] y) {"
                "a = BitCast<to = 17>(ua) b = BitCast<to = 17>(ub) z = BitCast<to = 17>(uz) "
                "q = QLinearMatMul(a, sa, z, b, sa, z, sy, z) y = Cast<to = 1>(q) }",
                26),
            options)
            .graph;
    return graph.value(graph.outputs[0]).data.to_f64()[0];
  };
  EXPECT_EQ(product(1), 1.875);
  EXPECT_EQ(product(1.1), 1.75) << "1.7045 is between 1.625 and 1.75";
  EXPECT_EQ(product(0.001), 448);
}

}  // namespace
}  // namespace gradloom::expand_test
