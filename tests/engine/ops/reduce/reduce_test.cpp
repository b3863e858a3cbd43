// Reductions: axes in attributes and inputs, empty axes, empty tensors, integers, several groups of axes.
#include <cmath>
#include <limits>
#include <map>

#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

const Attrs kDrop = {{"keepdims", std::int64_t{0}}};

TEST(Reduce, ShapesFollowAxesAndKeepdims) {
  EXPECT_EQ(shape_of(infer("ReduceSum", {f32({2, -1, 4}), ints({0, -1})})), (Shape{1, -1, 1}));
  EXPECT_EQ(shape_of(infer("ReduceSum", {f32({2, -1, 4}), ints({0, -1})}, kDrop)), (Shape{-1}));
  EXPECT_EQ(shape_of(infer("ReduceMean", {f32({2, 3})}, {{"axes", List{1}}, {"keepdims", std::int64_t{0}}})),
            (Shape{2}));
  EXPECT_EQ(shape_of(infer("ReduceMax", {f32({2, 3})})), (Shape{1, 1}));
  EXPECT_EQ(
      shape_of(infer("ReduceMax", {f32({2, 3}), ints({})}, {{"noop_with_empty_axes", std::int64_t{1}}})),
      (Shape{2, 3}));
  EXPECT_EQ(shape_of(infer("ReduceSum", {f32({})}, kDrop)), (Shape{}));
}

TEST(Reduce, RefusesWrongAxesAndTypes) {
  EXPECT_TRUE(mentions(error_of("ReduceSum", {f32({2}), ints({1})}), "out of range"));
  EXPECT_TRUE(mentions(error_of("ReduceSum", {f32({2}), ints({0, -1})}), "twice"));
  EXPECT_TRUE(mentions(error_of("ReduceSum", {f32({2}), i64({1})}), "known"));
  EXPECT_TRUE(mentions(error_of("ReduceSum", {Type{DType::boolean, {2}}}), "bool"));
  EXPECT_TRUE(mentions(error_of("ReduceLogSumExp", {Type{DType::boolean, {2}}}), "bool"));
}

// d sum(op(x)) / dx, node by node, since what has no f16 kernel is computed in f32.
std::vector<double> gradient_in_f16(const char* name, const Tensor& x, const Attrs& attrs) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId in = b.input("x", x.type());
  const ValueId sum = b.op("ReduceSum", {b.op(name, {in}, attrs)}, {{"keepdims", std::int64_t{0}}});
  const auto grads = add_gradients(graph, sum, {in});
  EXPECT_TRUE(grads.ok());
  std::map<ValueId, Tensor> made = {{in, x}};
  const auto order = topological_order(graph);
  EXPECT_TRUE(order.ok());
  for (const NodeId id : *order) {
    const Node& node = graph.nodes[id];
    std::vector<Tensor> inputs;
    for (const ValueId i : node.inputs)
      inputs.push_back(i == kNone ? Tensor() : made.count(i) > 0 ? made.at(i) : graph.values[i].data);
    const auto results = evaluate(*node.op, node.attrs, inputs, 1);
    EXPECT_TRUE(results.ok()) << node.op->name;
    if (!results.ok()) return {};
    made[node.outputs[0]] = (*results)[0];
  }
  return made.at(grads->at(in)).to_f64();
}

// 65,536 is no number of f16, in which the gradient would be 0.
TEST(Reduce, CountsBeyondF16) {
  const std::vector<double> zeros(65536), ones(65536, 1);
  const Tensor image = tensor({1, 1, 256, 256}, zeros, DType::f16), flat = tensor({65536}, ones, DType::f16);
  for (const char* name : {"ReduceMean", "ReduceMax"}) {
    const std::vector<double> dx = gradient_in_f16(name, flat, kDrop);
    ASSERT_EQ(dx.size(), 65536u);
    EXPECT_EQ(dx[0], 0x1p-16) << name;
    EXPECT_EQ(dx[65535], 0x1p-16) << name;
  }
  for (const char* name : {"GlobalAveragePool", "GlobalMaxPool"}) {
    const std::vector<double> dx = gradient_in_f16(name, image, {});
    ASSERT_EQ(dx.size(), 65536u);
    EXPECT_EQ(dx[65535], 0x1p-16) << name;
  }
}

TEST(Reduce, EveryOperatorOverSeparateGroups) {
  // [2, 3, 2]: axes 0 and 2 of 1..12 with alternating signs, against sums written out.
  std::vector<double> x;
  for (int i = 1; i <= 12; ++i) x.push_back(i % 3 == 0 ? -i : i);
  const auto at = [&](int i, int j, int k) { return x[static_cast<std::size_t>((i * 3 + j) * 2 + k)]; };
  const struct {
    const char* name;
    double start;
    double (*step)(double, double);
    double (*finish)(double);
  } operators[] = {
      {"ReduceSum", 0, [](double s, double v) { return s + v; }, [](double s) { return s; }},
      {"ReduceMean", 0, [](double s, double v) { return s + v; }, [](double s) { return s / 4; }},
      {"ReduceMax", -1e9, [](double s, double v) { return std::max(s, v); }, [](double s) { return s; }},
      {"ReduceMin", 1e9, [](double s, double v) { return std::min(s, v); }, [](double s) { return s; }},
      {"ReduceProd", 1, [](double s, double v) { return s * v; }, [](double s) { return s; }},
      {"ReduceL1", 0, [](double s, double v) { return s + std::fabs(v); }, [](double s) { return s; }},
      {"ReduceL2", 0, [](double s, double v) { return s + v * v; }, [](double s) { return std::sqrt(s); }},
      {"ReduceSumSquare", 0, [](double s, double v) { return s + v * v; }, [](double s) { return s; }},
      {"ReduceLogSumExp", 0, [](double s, double v) { return s + std::exp(v); },
       [](double s) { return std::log(s); }},
  };
  for (const auto& op : operators) {
    const auto got = run(op.name, {tensor({2, 3, 2}, x), ints({0, 2})}, kDrop);
    ASSERT_EQ(got.size(), 3u);
    for (int j = 0; j < 3; ++j) {
      double s = op.start;
      for (int i = 0; i < 2; ++i)
        for (int k = 0; k < 2; ++k) s = op.step(s, at(i, j, k));
      EXPECT_NEAR(got[static_cast<std::size_t>(j)], op.finish(s), 1e-12 * std::fabs(s))
          << op.name << " " << j;
    }
  }
}

TEST(Reduce, OneElementIsStillReduced) {
  EXPECT_EQ(run("ReduceL2", {tensor({1}, {-3})}), (std::vector<double>{3}));
  EXPECT_EQ(run("ReduceL1", {tensor({}, {-3})}), (std::vector<double>{3}));
  EXPECT_EQ(run("ReduceSumSquare", {tensor({2, 1}, {-3, 2}), ints({1})}), (std::vector<double>{9, 4}));
}

TEST(Reduce, EmptyTensors) {
  EXPECT_EQ(run("ReduceSum", {tensor({0, 2}, {}), ints({0})}), (std::vector<double>{0, 0}));
  EXPECT_EQ(run("ReduceProd", {ints({})}), (std::vector<double>{1}));
  EXPECT_TRUE(run("ReduceSum", {tensor({0, 2}, {}), ints({1})}).empty());
  EXPECT_EQ(run("ReduceMax", {tensor({0}, {})}),
            (std::vector<double>{-std::numeric_limits<double>::infinity()}));
}

TEST(Reduce, Integers) {
  EXPECT_EQ(run("ReduceSum", {ints({1, -2, 4})}), (std::vector<double>{3}));
  EXPECT_EQ(run("ReduceMax", {ints({1, -2, 4})}), (std::vector<double>{4}));
  EXPECT_EQ(run("ReduceMin", {ints({1, -2, 4})}), (std::vector<double>{-2}));
}

// Over axes 0 and 2: 0 + 1 + 1 + 2 is 4 and its mean 1, but the mean of the rounded means 0 and 1 is 0.
TEST(Reduce, MeanOfIntegersIsRoundedOnce) {
  const Tensor x = ints({0, 1, 5, 5, 1, 2, -5, -6}).reshaped({2, 2, 2});
  EXPECT_EQ(run("ReduceMean", {x, ints({0, 2})}, kDrop), (std::vector<double>{1, 0}));
  EXPECT_EQ(run("ReduceMean", {x, ints({1})}, kDrop), (std::vector<double>{2, 3, -2, -2}));
}

TEST(Reduce, TypesWithoutAKernelOfTheirOwn) {
  const Tensor bytes = tensor({2, 3}, {200, 255, 0, 7, 9, 8}, DType::u8),
               truth = tensor({2, 2}, {0, 1, 0, 0}, DType::boolean);
  EXPECT_EQ(run("ReduceMax", {bytes, ints({1})}, kDrop), (std::vector<double>{255, 9}));
  EXPECT_EQ(run("ReduceMin", {bytes, ints({0})}, kDrop), (std::vector<double>{7, 9, 0}));
  EXPECT_EQ(run("ReduceMax", {truth, ints({1})}, kDrop), (std::vector<double>{1, 0}));
  EXPECT_EQ(run("ReduceMin", {truth}, kDrop), (std::vector<double>{0}));
  EXPECT_EQ(run("ReduceSum", {tensor({2}, {4294967295.0, 2}, DType::u32)}), (std::vector<double>{1}))
      << "wraps";
  EXPECT_EQ(run("ReduceMean", {tensor({3}, {1, 2, 6}, DType::f16)}), (std::vector<double>{3}));
  EXPECT_EQ(run("ReduceMax", {tensor({2, 2}, {1, 2, 3, 4}, DType::bf16), ints({-1})}),
            (std::vector<double>{2, 4}));
  EXPECT_TRUE(mentions(error_of("ReduceProd", {Type{DType::boolean, {2}}}), "bool"));
}

// Exact where f64 is not: above 2^53, and modulo 2^64.
TEST(Reduce, UnsignedOfAllBits) {
  using U = std::uint64_t;
  constexpr U kTop = U{1} << 63;
  const auto reduced = [](const char* name, const std::vector<U>& values) {
    Tensor x(DType::u64, {static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), x.mutable_as<U>());
    const auto y = evaluate(op_by_name(name), kDrop, {x}, 1);
    EXPECT_TRUE(y.ok()) << (y.ok() ? "" : y.error().message);
    EXPECT_EQ(y.ok() ? (*y)[0].dtype() : DType::f32, DType::u64);
    return y.ok() ? (*y)[0].as<U>()[0] : 0;
  };
  EXPECT_EQ(reduced("ReduceSum", {kTop, 3, (U{1} << 60) + 1}), kTop + (U{1} << 60) + 4);
  EXPECT_EQ(reduced("ReduceSum", {kTop, kTop, 5}), 5u);
  EXPECT_EQ(reduced("ReduceL1", {kTop, 3}), kTop + 3);
  EXPECT_EQ(reduced("ReduceProd", {(U{1} << 40) + 1, 3, U{1} << 30}), ((U{3} << 40) + 3) << 30);
  EXPECT_EQ(reduced("ReduceSumSquare", {(U{1} << 31) + 1, 2}), (U{1} << 62) + (U{1} << 32) + 5);
  EXPECT_EQ(reduced("ReduceMax", {kTop - 1, kTop + 1, 7}), kTop + 1);
  EXPECT_EQ(reduced("ReduceMin", {kTop, kTop + 1, ~U{0}}), kTop);
  EXPECT_EQ(reduced("ReduceMean", {kTop, 7, 3}), (kTop + 10) / 3);
  EXPECT_EQ(reduced("ReduceL2", {3, 4}), 5u);
  EXPECT_EQ(reduced("ReduceLogSum", {20, 1}), 3u);
  EXPECT_EQ(reduced("ReduceLogSumExp", {2, 3}), 3u);
}

TEST(Reduce, NormsOfIntegersAreCut) {
  const Tensor x = ints({1, -2, 3, 4, 0, -5}).reshaped({2, 3});
  EXPECT_EQ(run("ReduceL2", {x, ints({1})}, kDrop), (std::vector<double>{3, 6}));
  EXPECT_EQ(run("ReduceL2", {x.cast(DType::i32), ints({0})}, kDrop), (std::vector<double>{4, 2, 5}));
  EXPECT_EQ(run("ReduceLogSumExp", {x, ints({1})}, kDrop), (std::vector<double>{3, 4}));
  EXPECT_EQ(run("ReduceLogSum", {tensor({2, 2}, {9, 1, 20, 2}, DType::u32), ints({1})}, kDrop),
            (std::vector<double>{2, 3}));
  EXPECT_EQ(run("ReduceL2", {x, ints({})}, {{"noop_with_empty_axes", std::int64_t{1}}}),
            (std::vector<double>{1, 2, 3, 4, 0, 5}));
  EXPECT_EQ(run("ReduceLogSumExp", {x, ints({})}, {{"noop_with_empty_axes", std::int64_t{1}}}),
            (std::vector<double>{1, -2, 3, 4, 0, -5}));
}

// What an operator does to each element is done without axes too; sums, extrema and products are of one element.
TEST(Reduce, NoAxesLeaveTheStepsOfEachElement) {
  const Attrs none = {{"noop_with_empty_axes", std::int64_t{1}}};
  const std::vector<double> numbers{3, -2, 0.5, -4};
  const struct {
    const char* name;
    std::vector<double> results, slopes;
  } cases[] = {{"ReduceL1", {3, 2, 0.5, 4}, {1, -1, 1, -1}},
               {"ReduceL2", {3, 2, 0.5, 4}, {1, -1, 1, -1}},
               {"ReduceSumSquare", {9, 4, 0.25, 16}, {6, -4, 1, -8}},
               {"ReduceSum", numbers, {1, 1, 1, 1}},
               {"ReduceMean", numbers, {1, 1, 1, 1}},
               {"ReduceMax", numbers, {1, 1, 1, 1}},
               {"ReduceMin", numbers, {1, 1, 1, 1}},
               {"ReduceProd", numbers, {1, 1, 1, 1}},
               {"ReduceLogSumExp", numbers, {1, 1, 1, 1}}};
  for (const auto& c : cases) {
    for (const DType type : {DType::f64, DType::f32, DType::bf16})
      EXPECT_EQ(run(c.name, {tensor({2, 2}, numbers, type)}, none), c.results) << c.name;
    EXPECT_EQ(run(c.name, {tensor({2, 2}, numbers), ints({})}, none), c.results) << c.name;
    EXPECT_EQ(gradient(c.name, {tensor({2, 2}, numbers)}, 0, none), c.slopes) << c.name;
  }
}

TEST(Reduce, LogSum) {
  EXPECT_NEAR(run("ReduceLogSum", {tensor({2}, {1, 2})})[0], std::log(3.0), 1e-15);
  const Attrs none = {{"noop_with_empty_axes", std::int64_t{1}}};
  const auto logs = run("ReduceLogSum", {tensor({2}, {5, 7})}, none),
             slopes = gradient("ReduceLogSum", {tensor({2}, {5, 7})}, 0, none);
  ASSERT_TRUE(logs.size() == 2 && slopes.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(logs[i], std::log(i == 0 ? 5.0 : 7.0), 1e-15);
    EXPECT_NEAR(slopes[i], 1 / (i == 0 ? 5.0 : 7.0), 1e-15);
  }
  EXPECT_TRUE(mentions(error_of("ReduceLogSum", {i64({2})}), "i64"));
}

TEST(Reduce, GradientOfAProductWithZeros) {
  const Tensor x = tensor({3, 3}, {2, -3, 4, 0, 2, 3, 2, 0, 0});
  const std::vector<double> rows{-12, 8, -6, 6, 0, 0, 0, 0, 0};
  EXPECT_EQ(gradient("ReduceProd", {x}, 0, {{"axes", List{1}}}), rows);
  EXPECT_EQ(gradient("ReduceProd", {x}, 0, {{"axes", List{-1}}, {"keepdims", std::int64_t{0}}}), rows);
  EXPECT_EQ(gradient("ReduceProd", {tensor({2, 2}, {2, 3, 5, 7})}, 0),
            (std::vector<double>{105, 70, 42, 30}));
  EXPECT_EQ(gradient("ReduceProd", {tensor({}, {7})}, 0), (std::vector<double>{1}));
  EXPECT_TRUE(gradient("ReduceProd", {tensor({0}, {})}, 0).empty());
}

TEST(Reduce, GradientOfLogSumExpOfNothing) {
  const double none = -std::numeric_limits<double>::infinity();
  const auto dx =
      gradient("ReduceLogSumExp", {tensor({2, 2}, {none, none, 0, none})}, 0, {{"axes", List{1}}});
  EXPECT_EQ(dx, (std::vector<double>{0, 0, 1, 0}));
}

TEST(Reduce, LogSumExpOfLargeNumbers) {
  EXPECT_NEAR(run("ReduceLogSumExp", {tensor({2}, {1000, 1000})})[0], 1000 + std::log(2.0), 1e-10);
}

}  // namespace
}  // namespace gradloom
