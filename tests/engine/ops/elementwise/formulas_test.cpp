// Elementwise rows beyond the generic suite: mixed types, documented subgradients at
// kinks, special values, errors.
#include <cmath>
#include <limits>

#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Elementwise, RefusesWrongTypes) {
  EXPECT_TRUE(mentions(error_of("Add", {f32({2}), i64({2})}), "does not take"));
  EXPECT_TRUE(mentions(error_of("Exp", {i64({2})}), "does not take"));
  EXPECT_TRUE(mentions(error_of("And", {f32({2}), f32({2})}), "does not take"));
  EXPECT_TRUE(mentions(error_of("Where", {f32({2}), f32({2}), f32({2})}), "does not take"));
  EXPECT_TRUE(mentions(error_of("Add", {f32({2}), f32({3})}), "broadcast"));
  EXPECT_TRUE(mentions(error_of("Add", {f32({2}), {}}), "missing"));
  EXPECT_TRUE(mentions(error_of("Add", {f32({2})}), "missing"));
  EXPECT_TRUE(mentions(error_of("Cast", {f32({2})}, {{"to", std::int64_t{8}}}), "type string"));
  EXPECT_TRUE(
      mentions(error_of("Cast", {f32({2})}, {{"to", std::int64_t{27}}}), "type float6e2m3 is not supported"));
  for (const DType small : {DType::i4, DType::u2, DType::f8e4m3fn, DType::f8e8m0}) {
    const Type x{small, {2}};
    for (const char* op : {"Add", "Equal", "Pow", "Less"}) {
      EXPECT_TRUE(mentions(error_of(op, {x, x}), "does not take")) << op;
    }
    EXPECT_TRUE(mentions(error_of("Neg", {x}), "does not take"));
    EXPECT_TRUE(mentions(error_of("Clip", {x}), "Clip does not take"));
    EXPECT_TRUE(mentions(error_of("ReduceSum", {x}), "does not reduce"));
  }
  EXPECT_TRUE(mentions(
      error_of("Cast", {f32({2})}, {{"to", std::int64_t{24}}, {"round_mode", std::string("sideways")}}),
      "round_mode is 'sideways'"));
  EXPECT_TRUE(mentions(error_of("Cast", {f32({2})}, {{"to", std::int64_t{99}}}), "type 99 is unknown"));
  EXPECT_TRUE(mentions(error_of("Cast", {f32({2})}), "type 0"));
}

TEST(Elementwise, KeepsSymbolicDims) {
  EXPECT_EQ(shape_of(infer("Add", {f32({-1, 4}), f32({4})})), (Shape{-1, 4}));
  EXPECT_EQ(shape_of(infer("Mul", {f32({-1, -2}), f32({-1, 1})})), (Shape{-1, -2}));
}

TEST(Pow, TakesMixedTypes) {
  const Tensor x = tensor({3}, {1.5, 2, 3}, DType::f32);
  EXPECT_EQ(run("Pow", {x, ints({2})}), (std::vector<double>{2.25, 4, 9}));
  EXPECT_EQ(run("Pow", {x, ints({0, 1, 2})}), (std::vector<double>{1, 2, 9}));
  EXPECT_EQ(run("Pow", {ints({2, 3}), ints({10, 4})}), (std::vector<double>{1024, 81}));
  EXPECT_EQ(run("Pow", {ints({4}), tensor({1}, {0.5}, DType::f32)}), (std::vector<double>{2}));
}

TEST(Pow, GradientAtZero) {
  EXPECT_EQ(gradient("Pow", {tensor({2}, {0, 0}), tensor({2}, {2, 0})}, 0), (std::vector<double>{0, 0}));
  EXPECT_EQ(gradient("Pow", {tensor({2}, {0, 1}), tensor({2}, {2, 3})}, 1), (std::vector<double>{0, 0}));
}

TEST(Pow, GradientOfAnExponentOfAnotherFloatType) {
  const auto db = gradient("Pow", {tensor({2}, {2, 3}), tensor({1}, {2}, DType::f32)}, 1);
  ASSERT_EQ(db.size(), 1u);
  EXPECT_NEAR(db[0], 4 * std::log(2.0) + 9 * std::log(3.0), 1e-5);
}

TEST(Subgradients, AtKinks) {
  EXPECT_EQ(gradient("Relu", {tensor({3}, {-1, 0, 1})}, 0), (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(gradient("Abs", {tensor({3}, {-1, 0, 1})}, 0), (std::vector<double>{-1, 0, 1}));
  const Tensor a = tensor({3}, {1, 2, 3}), b = tensor({3}, {3, 2, 1});
  EXPECT_EQ(gradient("Max", {a, b}, 0), (std::vector<double>{0, 0.5, 1}));
  EXPECT_EQ(gradient("Max", {a, b}, 1), (std::vector<double>{1, 0.5, 0}));
  EXPECT_EQ(gradient("Min", {a, b}, 0), (std::vector<double>{1, 0.5, 0}));
  const Tensor low = tensor({}, {-1}), high = tensor({}, {1}), x = tensor({5}, {-2, -1, 0, 1, 2});
  EXPECT_EQ(gradient("Clip", {x, low, high}, 0), (std::vector<double>{0, 0, 1, 0, 0}));  // as relu6, hardtanh
  EXPECT_EQ(gradient("Clip", {x, low, high}, 1), (std::vector<double>{1}));
  EXPECT_EQ(gradient("Clip", {x, low, high}, 2), (std::vector<double>{1}));
  EXPECT_EQ(gradient("ReduceMax", {tensor({4}, {1, 3, 3, 2})}, 0), (std::vector<double>{0, 0.5, 0.5, 0}));
  EXPECT_EQ(gradient("ReduceL2", {tensor({2}, {0, 0})}, 0), (std::vector<double>{0, 0}));
}

TEST(Clip, BoundsThatCross) {
  // ONNX: min(max(x, low), high), so high wins; then only high has a gradient.
  const Tensor x = tensor({3}, {0, 5, 10}), low = tensor({}, {8}), high = tensor({}, {2});
  EXPECT_EQ(run("Clip", {x, low, high}), (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(gradient("Clip", {x, low, high}, 0), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(gradient("Clip", {x, low, high}, 1), (std::vector<double>{0}));
  EXPECT_EQ(gradient("Clip", {x, low, high}, 2), (std::vector<double>{3}));
}

TEST(Elementwise, OneTensorOnBothSides) {
  // d (x * x) = 2 x through two inputs of one node: accumulation.
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f64, {3}});
  const ValueId loss = b.op("ReduceSum", {b.op("Mul", {x, x})}, {{"keepdims", std::int64_t{0}}});
  auto grads = add_gradients(graph, loss, {x});
  ASSERT_TRUE(grads.ok());
  auto values = reference::Runner::create(graph)->run({{x, tensor({3}, {1, -2, 3})}});
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[grads->at(x)].to_f64(), (std::vector<double>{2, -4, 6}));
}

TEST(Elementwise, SpecialValues) {
  const Tensor x = tensor({5}, {kInf, -kInf, std::nan(""), 0, -1});
  const auto relu = run("Relu", {x});
  EXPECT_EQ(relu[0], kInf);
  EXPECT_EQ(relu[1], 0);
  EXPECT_TRUE(std::isnan(relu[2]));
  EXPECT_EQ(run("Log", {tensor({2}, {0, kInf})}), (std::vector<double>{-kInf, kInf}));
  EXPECT_TRUE(std::isnan(run("Log", {tensor({1}, {-1})})[0]));
  EXPECT_EQ(run("Exp", {tensor({3}, {-kInf, kInf, 1000})}), (std::vector<double>{0, kInf, kInf}));
  EXPECT_EQ(run("Sigmoid", {tensor({2}, {-kInf, kInf})}), (std::vector<double>{0, 1}));
  EXPECT_EQ(run("Softplus", {tensor({2}, {-1000, 1000})}), (std::vector<double>{0, 1000}));
  EXPECT_EQ(run("Equal", {x, x}), (std::vector<double>{1, 1, 0, 1, 1})) << "NaN equals nothing";
  // A NaN that is not selected must not come through, forward or backward.
  const Tensor pick = tensor({2}, {1, 0}, DType::boolean);
  EXPECT_EQ(run("Where", {pick, tensor({2}, {1, std::nan("")}), tensor({2}, {std::nan(""), 2})}),
            (std::vector<double>{1, 2}));
}

// log(1 + exp(x)) is exp(x) far below 0, not 0.
TEST(Elementwise, SoftplusKeepsItsDigits) {
  for (const double x : {-60.0, -30.0, -8.0, -1e-3, 0.0, 3.0, 50.0}) {
    const double expected = std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    EXPECT_NEAR(run("Softplus", {tensor({}, {x})})[0], expected, 4e-15 * expected) << x;
    EXPECT_NEAR(run("Softplus", {tensor({}, {x}, DType::f32)})[0], expected, 1e-6 * expected) << x;
  }
}

TEST(Cast, SaturatesAndTruncates) {
  const Attrs to_i32 = {{"to", std::int64_t{6}}}, to_bool = {{"to", std::int64_t{9}}};
  EXPECT_EQ(run("Cast", {tensor({5}, {2.9, -2.9, 1e300, -1e300, std::nan("")})}, to_i32),
            (std::vector<double>{2, -2, 2147483647, -2147483648.0, 0}));
  EXPECT_EQ(run("Cast", {tensor({3}, {0.25, 0, -1})}, to_bool), (std::vector<double>{1, 0, 1}));
}

TEST(Cast, HalvesAndIntegers) {
  const auto to = [](DType t) {
    return Attrs{{"to", std::int64_t{t == DType::f16 ? 10 : t == DType::bf16 ? 16 : t == DType::u8 ? 2 : 5}}};
  };
  const Tensor x = tensor({4}, {1.0009765625, 65520, -0.1, 300}, DType::f32);
  EXPECT_EQ(run("Cast", {x}, to(DType::f16)),
            (std::vector<double>{1.0009765625, kInf, -0.0999755859375, 300}));
  EXPECT_EQ(run("Cast", {x}, to(DType::bf16)), (std::vector<double>{1, 65536, -0.10009765625, 300}));
  EXPECT_EQ(run("Cast", {x}, to(DType::u8)), (std::vector<double>{1, 255, 0, 255}));
  EXPECT_EQ(run("Cast", {tensor({2}, {-3, 70000}, DType::i32)}, to(DType::i16)),
            (std::vector<double>{-3, 4464}));
  for (const std::int64_t f6 : {27, 28})
    EXPECT_TRUE(mentions(error_of("Cast", {f32({2})}, {{"to", f6}}), "not supported")) << f6;
}

Attrs cast_to_code(std::int64_t to, std::int64_t saturate = 1, const std::string& round_mode = "up") {
  return {{"to", to}, {"saturate", saturate}, {"round_mode", round_mode}};
}

// ONNX's own numbers: backend/test/case/node/cast.py.
TEST(Cast, SmallTypes) {
  const Tensor x = tensor({6}, {0.47892547, 0.8191054, 1e6, -1e6, kInf, 1e-7}, DType::f32);
  EXPECT_EQ(run("Cast", {x}, cast_to_code(17)), (std::vector<double>{0.46875, 0.8125, 448, -448, 448, 0}));
  EXPECT_EQ(run("Cast", {x}, cast_to_code(18)), (std::vector<double>{0.46875, 0.8125, 240, -240, 240, 0}));
  EXPECT_EQ(run("Cast", {x}, cast_to_code(19)), (std::vector<double>{0.5, 0.875, 57344, -57344, 57344, 0}));
  EXPECT_EQ(run("Cast", {x}, cast_to_code(19, 0)), (std::vector<double>{0.5, 0.875, kInf, -kInf, kInf, 0}));
  EXPECT_TRUE(std::isnan(run("Cast", {x}, cast_to_code(17, 0))[2]));
  EXPECT_EQ(run("Cast", {tensor({6}, {0.48, 0.25, 1.05, -3.5, -8, 9}, DType::f32)}, cast_to_code(23)),
            (std::vector<double>{0.5, 0, 1, -4, -6, 6}));
  EXPECT_EQ(run("Cast", {tensor({4}, {-9, 15, 7.9, -0.5}, DType::f32)}, cast_to_code(22)),
            (std::vector<double>{7, -1, 7, 0}));
  EXPECT_EQ(run("Cast", {tensor({3}, {-3, 200, 5}, DType::i32)}, cast_to_code(25)),
            (std::vector<double>{1, 0, 1}));
}

TEST(Cast, RoundModes) {
  const Tensor x = tensor({4}, {0.124, 1.1, 1.5, 6}, DType::f32);
  EXPECT_EQ(run("Cast", {x}, cast_to_code(24)), (std::vector<double>{0.125, 2, 2, 8}));
  EXPECT_EQ(run("Cast", {x}, cast_to_code(24, 1, "down")), (std::vector<double>{0.0625, 1, 1, 4}));
  EXPECT_EQ(run("Cast", {x}, cast_to_code(24, 1, "nearest")), (std::vector<double>{0.125, 1, 2, 8}));
}

// As between other floats: the rounding has the gradient 1, there and back.
TEST(Cast, GradientsPassThroughSmallFloats) {
  for (const DType small : {DType::f8e4m3fn, DType::f8e5m2fnuz, DType::f4e2m1}) {
    Graph graph;
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f64, {3}}), w = b.constant(tensor({3}, {1, 2, 3}));
    const ValueId q = b.op("Cast", {x}, {{"to", onnx_from_dtype(small)}});
    const ValueId y = b.op("Cast", {q}, {{"to", onnx_from_dtype(DType::f64)}});
    const ValueId loss = b.op("ReduceSum", {b.op("Mul", {y, w})}, {{"keepdims", std::int64_t{0}}});
    const auto grads = add_gradients(graph, loss, {x});
    ASSERT_TRUE(grads.ok()) << grads.error().message;
    const auto values = reference::Runner::create(graph)->run({{x, tensor({3}, {0.3, -1.1, 5})}});
    ASSERT_TRUE(values.ok());
    EXPECT_EQ((*values)[grads->at(x)].to_f64(), (std::vector<double>{1, 2, 3})) << dtype_name(small);
  }
}

// Computed in f32, rounded after each operator.
TEST(Elementwise, HalvesOnTheCpu) {
  const Tensor a = tensor({3}, {1, 2048, -3}, DType::f16), b = tensor({3}, {0.0009765625, 1, 2}, DType::f16);
  EXPECT_EQ(run("Add", {a, b}), (std::vector<double>{1.0009765625, 2048, -1}));
  EXPECT_EQ(run("Max", {a, b}), (std::vector<double>{1, 2048, 2}));
  EXPECT_EQ(run("Greater", {a, b}), (std::vector<double>{1, 1, 0}));
  EXPECT_EQ(run("Where", {tensor({3}, {1, 0, 1}, DType::boolean), a, b}), (std::vector<double>{1, 1, -3}));
  EXPECT_EQ(run("IsNaN", {a}), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(run("Mul", {tensor({1}, {1.0078125}, DType::bf16), tensor({1}, {1.0078125}, DType::bf16)}),
            (std::vector<double>{1.015625}));
}

TEST(Mod, TakesTheSignOfOneOperand) {
  const Tensor a = ints({7, -7, 7, -7, 5}), b = ints({3, 3, -3, -3, 0});
  const Attrs fmod = {{"fmod", std::int64_t{1}}};
  EXPECT_EQ(run("Mod", {a, b}), (std::vector<double>{1, 2, -2, -1, 0}));
  EXPECT_EQ(run("Mod", {a, b}, fmod), (std::vector<double>{1, -1, 1, -1, 0}));
  EXPECT_EQ(run("Mod", {tensor({2}, {-4.5, 5}), tensor({1}, {2})}, fmod), (std::vector<double>{-0.5, 1}));
  EXPECT_EQ(gradient("Mod", {tensor({2}, {-4.5, 5}), tensor({2}, {2, 2})}, 1, fmod),
            (std::vector<double>{2, -2}));
  const Tensor c = tensor({4}, {-4.5, 5, 4.5, -4}), d = tensor({4}, {2, -2, 2, 2});
  EXPECT_EQ(run("Mod", {c, d}), (std::vector<double>{1.5, -1, 0.5, 0}));
  EXPECT_EQ(gradient("Mod", {c, d}, 1), (std::vector<double>{3, 3, -2, 2}));
  EXPECT_TRUE(mentions(error_of("Mod", {f32({2}), i64({2})}), "one number type"));
}

TEST(BitShift, NeedsADirectionAndIntegers) {
  const Tensor a = tensor({3}, {16, 4, 255}, DType::u8), b = tensor({3}, {1, 2, 8}, DType::u8);
  EXPECT_EQ(run("BitShift", {a, b}, {{"direction", std::string("LEFT")}}), (std::vector<double>{32, 16, 0}));
  EXPECT_EQ(run("BitShift", {a, b}, {{"direction", std::string("RIGHT")}}), (std::vector<double>{8, 1, 0}));
  EXPECT_TRUE(mentions(error_of("BitShift", {a, b}), "direction"));
  const Tensor c = tensor({5}, {-16, 100, -3, -1, 7}, DType::i8),
               d = tensor({5}, {2, 1, 8, -1, -1}, DType::i8);
  EXPECT_EQ(run("BitShift", {c, d}, {{"direction", std::string("RIGHT")}}),
            (std::vector<double>{-4, 50, -1, -1, 0}));
  EXPECT_EQ(run("BitShift", {c, d}, {{"direction", std::string("LEFT")}}),
            (std::vector<double>{-64, -56, 0, 0, 0}));
  EXPECT_TRUE(
      mentions(error_of("BitShift", {f32({1}), f32({1})}, {{"direction", std::string("LEFT")}}), "integer"));
  EXPECT_TRUE(mentions(error_of("BitwiseAnd", {f32({1}), f32({1})}), "does not take"));
}

TEST(Gelu, OnnxTwentyChoosesTheForm) {
  const OpDef* gelu = find_op("Gelu", "", 20);
  const Tensor x = tensor({3}, {-1, 0.5, 2});
  const auto exact = evaluate(*gelu, {}, {x}),
             approximate = evaluate(*gelu, {{"approximate", std::string("tanh")}}, {x});
  EXPECT_EQ((*exact)[0].to_f64(), run("Gelu", {x}));
  EXPECT_EQ((*approximate)[0].to_f64(), run("GeluTanh", {x}));
  EXPECT_FALSE(evaluate(*gelu, {{"approximate", std::string("sigmoid")}}, {x}).ok());
}

TEST(Sum, AddsManyInputs) {
  const Tensor one = tensor({2}, {1, 2}, DType::f32);
  EXPECT_EQ(run("Sum", std::vector<Tensor>(20, one)), (std::vector<double>{20, 40}));
  EXPECT_EQ(run("Mean", std::vector<Tensor>(20, one)), (std::vector<double>{1, 2}));
  EXPECT_TRUE(mentions(error_of("Sum", {f32({2}), i64({2})}), "one floating point type"));
}

}  // namespace
}  // namespace gradloom
