// MatMul, Gemm and FusedMatMul against products by definition: element by element through the permutations.
#include "engine/ops/products/matrix_product.h"

#include <algorithm>

#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

// A tensor in doubles with the index arithmetic written out.
struct Array {
  Shape shape;
  std::vector<double> values;
};

std::int64_t flat(const Shape& shape, const Shape& index) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) at = at * shape[i] + index[i];
  return at;
}

Shape unflat(const Shape& shape, std::int64_t at) {
  Shape index(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; at /= shape[i]) index[i] = at % shape[i];
  return index;
}

Array transposed(const Array& a, const Perm& perm) {
  if (perm.empty()) return a;
  Array result;
  for (std::int64_t p : perm) result.shape.push_back(a.shape[static_cast<std::size_t>(p)]);
  for (std::int64_t i = 0; i < element_count(result.shape); ++i) {
    const Shape index = unflat(result.shape, i);
    Shape source(index.size());
    for (std::size_t d = 0; d < index.size(); ++d) source[static_cast<std::size_t>(perm[d])] = index[d];
    result.values.push_back(a.values[static_cast<std::size_t>(flat(a.shape, source))]);
  }
  return result;
}

// Rank >= 2 operands, batch dims broadcast.
Array product(const Array& a, const Array& b) {
  const std::size_t rank = std::max(a.shape.size(), b.shape.size());
  const auto batch_dim = [&](const Shape& s, std::size_t d) {
    return d + s.size() < rank ? std::int64_t{1} : s[d + s.size() - rank];
  };
  Array y;
  for (std::size_t d = 0; d + 2 < rank; ++d)
    y.shape.push_back(std::max(batch_dim(a.shape, d), batch_dim(b.shape, d)));
  y.shape.push_back(a.shape[a.shape.size() - 2]);
  y.shape.push_back(b.shape.back());
  const auto element = [&](const Array& x, const Shape& index, std::int64_t row, std::int64_t col) {
    Shape own(x.shape.size());
    for (std::size_t d = 0; d + 2 < own.size(); ++d)
      own[d] = x.shape[d] == 1 ? 0 : index[d + rank - own.size()];
    own[own.size() - 2] = row;
    own[own.size() - 1] = col;
    return x.values[static_cast<std::size_t>(flat(x.shape, own))];
  };
  for (std::int64_t i = 0; i < element_count(y.shape); ++i) {
    const Shape index = unflat(y.shape, i);
    double sum = 0;
    for (std::int64_t k = 0; k < a.shape.back(); ++k)
      sum += element(a, index, index[rank - 2], k) * element(b, index, k, index[rank - 1]);
    y.values.push_back(sum);
  }
  return y;
}

Array array(const Tensor& t) { return {t.shape(), t.to_f64()}; }

struct Case {
  Shape a{}, b{};
  Perm perm_a{}, perm_b{}, perm_y{};
  double alpha = 1;
  bool bias = false, relu = false;
};

TEST(FusedMatMul, MatchesTheDefinitionThroughPermutations) {
  const std::vector<Case> cases = {
      {.a = {3, 5}, .b = {5, 4}},
      {.a = {5, 3},
       .b = {4, 5},
       .perm_a = {1, 0},
       .perm_b = {1, 0},
       .perm_y = {1, 0},
       .alpha = 0.5,
       .bias = true},
      {.a = {2, 7, 5}, .b = {5, 4}, .bias = true, .relu = true},
      {.a = {2, 3, 4, 5}, .b = {2, 3, 4, 5}, .perm_a = {0, 2, 1, 3}, .perm_b = {0, 2, 3, 1}, .alpha = 0.125},
      {.a = {2, 4, 3, 3}, .b = {2, 3, 4, 5}, .perm_b = {0, 2, 1, 3}, .perm_y = {0, 2, 1, 3}},
      {.a = {2, 3, 5}, .b = {5, 4}, .perm_y = {2, 0, 1}, .bias = true},
      {.a = {4, 5}, .b = {3, 2, 5}, .perm_b = {1, 2, 0}},
      {.a = {2, 1, 3, 5}, .b = {4, 5, 2}, .relu = true},
      {.a = {1, 1, 9}, .b = {6, 9, 1}},
      {.a = {3, 2, 2, 4}, .b = {4, 6}, .perm_a = {1, 0, 2, 3}},
  };
  for (DType dtype : {DType::f32, DType::f64}) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      const Tensor a = numbers(dtype, c.a, 1), b = numbers(dtype, c.b, 2);
      Array p = product(transposed(array(a), c.perm_a), transposed(array(b), c.perm_b));
      const std::int64_t n = p.shape.back();
      const Tensor bias = numbers(dtype, {n}, 3);
      for (std::size_t j = 0; j < p.values.size(); ++j) {
        double& v = p.values[j];
        v *= c.alpha;
        if (c.bias) v += bias.at(static_cast<std::int64_t>(j) % n);
        if (c.relu) v = std::max(v, 0.0);
      }
      const Array y = transposed(p, c.perm_y);
      Attrs attrs{{"alpha", c.alpha}, {"activation", std::string(c.relu ? "relu" : "none")}};
      if (!c.perm_a.empty()) attrs.set("perm_a", c.perm_a);
      if (!c.perm_b.empty()) attrs.set("perm_b", c.perm_b);
      if (!c.perm_y.empty()) attrs.set("perm_y", c.perm_y);
      std::vector<Tensor> inputs{a, b};
      if (c.bias) inputs.push_back(bias);
      const auto got = run("FusedMatMul", attrs, inputs);
      expect_near(got[0], y.shape, y.values, tolerance(dtype), "case " + std::to_string(i));
    }
  }
}

TEST(MatMul, FollowsNumPysRulesForVectors) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor v = numbers(dtype, {5}, 1), m = numbers(dtype, {2, 5, 3}, 2), w = numbers(dtype, {4, 5}, 3);
    const Array row = product(array(v.reshaped({1, 5})), array(m));
    expect_near(run("MatMul", {}, {v, m})[0], {2, 3}, row.values, tolerance(dtype), "vector x batch");
    const Array column = product(array(w), array(v.reshaped({5, 1})));
    expect_near(run("MatMul", {}, {w, v})[0], {4}, column.values, tolerance(dtype), "matrix x vector");
    const Array dot = product(array(v.reshaped({1, 5})), array(v.reshaped({5, 1})));
    expect_near(run("MatMul", {}, {v, v})[0], {}, dot.values, tolerance(dtype), "dot");
  }
}

TEST(Gemm, AddsAnyBroadcastMatrixWithBeta) {
  const std::vector<Shape> shapes = {{}, {1}, {4}, {1, 4}, {3, 1}, {3, 4}, {1, 1}};
  for (DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& shape : shapes) {
      for (double beta : {1.0, 0.5, 0.0}) {
        const Tensor a = numbers(dtype, {5, 3}, 1), b = numbers(dtype, {4, 5}, 2),
                     c = numbers(dtype, shape, 3);
        Array y = product(transposed(array(a), {1, 0}), transposed(array(b), {1, 0}));
        const std::int64_t cols = shape.empty() ? 1 : shape.back(), rows = shape.size() < 2 ? 1 : shape[0];
        for (std::int64_t i = 0; i < 12; ++i) {
          const std::int64_t at = (rows == 1 ? 0 : i / 4) * cols + (cols == 1 ? 0 : i % 4);
          y.values[static_cast<std::size_t>(i)] =
              0.25 * y.values[static_cast<std::size_t>(i)] + beta * c.at(at);
        }
        const Attrs attrs{
            {"transA", std::int64_t{1}}, {"transB", std::int64_t{1}}, {"alpha", 0.25}, {"beta", beta}};
        expect_near(run("Gemm", attrs, {a, b, c})[0], {3, 4}, y.values, tolerance(dtype), to_string(shape));
      }
    }
  }
}

// Exact where f64 is not, and modulo 2^32 or 2^64.
template <class T>
void expect_whole_products(DType type, T large) {
  SCOPED_TRACE(dtype_name(type));
  const auto of = [&](Shape shape, const std::vector<T>& values) {
    Tensor t(type, std::move(shape));
    std::copy(values.begin(), values.end(), t.mutable_as<T>());
    return t;
  };
  const auto product = [&](const char* name, const std::vector<Tensor>& inputs, const Attrs& attrs = {}) {
    const auto y = evaluate(op_by_name(name), attrs, inputs, 1);
    EXPECT_TRUE(y.ok()) << (y.ok() ? "" : y.error().message);
    if (!y.ok()) return std::vector<T>{};
    const T* values = (*y)[0].template as<T>();
    return std::vector<T>(values, values + (*y)[0].count());
  };
  const auto at = [&](auto f) {
    std::vector<T> values;
    for (unsigned i = 0; i < 2; ++i)
      for (unsigned j = 0; j < 2; ++j) values.push_back(static_cast<T>(f(i, j)));
    return values;
  };
  const std::vector<T> a = {large, 1, 2, large, 3, 4}, b = {5, 6, 7, large, 8, 9};
  using U = std::make_unsigned_t<T>;
  const auto sum = [&](unsigned i, unsigned j) {
    U total = 0;
    for (unsigned k = 0; k < 3; ++k) total += static_cast<U>(a[i * 3 + k]) * static_cast<U>(b[k * 2 + j]);
    return total;
  };
  const Tensor left = of({2, 3}, a), right = of({3, 2}, b);
  EXPECT_EQ(product("MatMul", {left, right}), at(sum));
  EXPECT_EQ(product("Gemm", {left, right, of({2}, {10, 20})}, {{"alpha", 3.0}, {"beta", 2.0}}),
            at([&](unsigned i, unsigned j) { return U{3} * sum(i, j) + U{20} * (j + 1); }));
  EXPECT_EQ(product("Gemm", {left, right, of({2}, {10, 20})}),
            at([&](unsigned i, unsigned j) { return sum(i, j) + U{10} * (j + 1); }));
  // Two matrices at once, the second operand for both, and as a view from the other side.
  const Tensor twice = of({2, 1, 3}, a);
  EXPECT_EQ(product("MatMul", {twice, right}), at(sum));
  EXPECT_EQ(product("FusedMatMul", {left, of({2, 3}, {5, 7, 8, 6, large, 9})}, {{"perm_b", Perm{1, 0}}}),
            at(sum));
}

TEST(Products, IntegersAreExact) {
  expect_whole_products<std::int64_t>(DType::i64, (std::int64_t{1} << 62) + 1);
  expect_whole_products<std::uint64_t>(DType::u64, ~std::uint64_t{0} - 6);
  expect_whole_products<std::int32_t>(DType::i32, (1 << 30) + 1);
  expect_whole_products<std::uint32_t>(DType::u32, ~0u - 6);
  const Tensor one = Tensor::from_i64({1}).reshaped({1, 1});
  const auto half = evaluate(op_by_name("Gemm"), {{"alpha", 0.5}}, {one, one}, 1);
  EXPECT_TRUE(!half.ok() && half.error().message.find("fraction") != std::string::npos);
}

TEST(Products, OfNothingAreZero) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor a(dtype, {2, 3, 0}), b(dtype, {0, 4}), bias = numbers(dtype, {4});
    expect_near(run("MatMul", {}, {a, b})[0], {2, 3, 4}, std::vector<double>(24, 0.0), 0, "inner dim 0");
    const Attrs attrs{{"perm_y", Perm{0, 2, 1}}, {"activation", std::string("relu")}};
    const Tensor y = run("FusedMatMul", attrs, {a, b, bias})[0];
    ASSERT_EQ(y.shape(), (Shape{2, 4, 3}));
    for (std::int64_t i = 0; i < 24; ++i) EXPECT_EQ(y.at(i), std::max(0.0, bias.at(i / 3 % 4)));
    EXPECT_EQ(run("MatMul", {}, {Tensor(dtype, {0, 3}), Tensor(dtype, {3, 4})})[0].count(), 0);
    Differentiated inner = differentiate(op_by_name("MatMul"), {}, {a, b}, numbers(dtype, {2, 3, 4}), {0, 1});
    EXPECT_EQ(inner.grad(0).shape(), a.shape());
    EXPECT_EQ(inner.grad(1).shape(), b.shape());
    const Tensor rows = numbers(dtype, {2, 3, 4});
    Differentiated columns = differentiate(op_by_name("MatMul"), {}, {rows, Tensor(dtype, {4, 0})},
                                           Tensor(dtype, {2, 3, 0}), {0, 1});
    expect_near(columns.grad(0), {2, 3, 4}, std::vector<double>(24, 0.0), 0, "no columns");
    EXPECT_EQ(columns.grad(1).shape(), (Shape{4, 0}));
  }
}

TEST(Products, InferenceNamesWhatDoesNotFit) {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  EXPECT_EQ(inference_error("MatMul", {}, {f32({2, 3}), f32({4, 5})}),
            "inner dims differ: 3 columns in [2, 3], 4 rows in [4, 5]");
  EXPECT_EQ(inference_error("MatMul", {}, {f32({2, 3, 4}), f32({3, 4, 5})}),
            "batch dims of [2, 3, 4] and [3, 4, 5] do not broadcast");
  EXPECT_EQ(inference_error("MatMul", {}, {f32({}), f32({4, 5})}), "operands must have at least one dim");
  EXPECT_EQ(inference_error("MatMul", {}, {f32({2, 3}), {DType::f64, {3, 5}}}),
            "operands have types f32 and f64");
  EXPECT_EQ(inference_error("Gemm", {}, {f32({2, 3}), f32({3, 5}), f32({2})}),
            "C of shape [2] does not broadcast to [2, 5]");
  EXPECT_EQ(inference_error("FusedMatMul", {{"perm_a", Perm{0, 0}}}, {f32({2, 3}), f32({3, 5})}),
            "perm_a is not a permutation of 2 axes");
  EXPECT_EQ(inference_error("FusedMatMul", {{"activation", std::string("gelu")}}, {f32({2, 3}), f32({3, 5})}),
            "activation 'gelu' is unknown");
}

TEST(Products, SymbolicDimsPropagate) {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  EXPECT_EQ(inferred("MatMul", {}, {f32({-1, -2, 5}), f32({5, 4})})[0].shape, (Shape{-1, -2, 4}));
  EXPECT_EQ(inferred("MatMul", {}, {f32({-1, 3, -2}), f32({-1, 7, 4})})[0].shape, (Shape{-1, 3, 4}));
  EXPECT_EQ(
      inferred("Gemm", {{"transA", std::int64_t{1}}}, {f32({-1, -2}), f32({-1, 4}), f32({-3})})[0].shape,
      (Shape{-2, 4}));
}

TEST(Products, WeightGradientContractsAllRowsAtOnce) {
  const Tensor x = numbers(DType::f64, {2, 3, 5}, 1), w = numbers(DType::f64, {5, 4}, 2);
  const Tensor seed = numbers(DType::f64, {2, 3, 4}, 3);
  Differentiated d = differentiate(op_by_name("MatMul"), {}, {x, w}, seed, {0, 1});
  const Array flat_x = array(x.reshaped({6, 5})), flat_dy = array(seed.reshaped({6, 4}));
  const Array dw = product(transposed(flat_x, {1, 0}), flat_dy);
  const Array dx = product(flat_dy, transposed(array(w), {1, 0}));
  expect_near(d.grad(1), {5, 4}, dw.values, 1e-13, "dw");
  expect_near(d.grad(0), {2, 3, 5}, dx.values, 1e-13, "dx");
  // No Transpose and no sum over a batch of products: the permutations and rows are part of the products.
  for (const std::string& name : d.backward_ops()) {
    EXPECT_NE(name, "Transpose");
    EXPECT_NE(name, "ReduceSum");
  }
}

TEST(Products, CostCountsTwoFlopsPerMultiplyAdd) {
  NodeTypes types;
  types.inputs = {{DType::f32, {2, 3, 4, 5}}, {DType::f32, {5, 7}}};
  types.input_present = {true, true};
  types.outputs = {{DType::f32, {2, 3, 4, 7}}};
  types.output_present = {true};
  types.constants = {nullptr, nullptr};
  const Cost cost = op_by_name("MatMul").cost(types);
  EXPECT_EQ(cost.flops, 2.0 * 24 * 7 * 5);
  EXPECT_EQ(cost.bytes_read, 4.0 * (120 + 35));
  EXPECT_EQ(cost.bytes_written, 4.0 * 168);
}

}  // namespace
}  // namespace gradloom
