// Optimizer, GlobalNorm, ClipScale, Accumulate. Expected parameters after three steps come from
// torch.optim 1.13 in doubles: p = [0.5, -1.25, 2], gradient at step t = [0.1 t, -0.4, 0.3 / t], lr 0.1.
// LAMB: the formula of the paper, written out. 100 steps of every optimizer: tests/app/parity_test.cpp.
#include <cmath>

#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "engine/train/state_ranges.h"
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

Tensor vector3(DType dtype, double a, double b, double c) { return Tensor::from_f64(dtype, {3}, {a, b, c}); }

Tensor gradient(DType dtype, int step) { return vector3(dtype, 0.1 * step, -0.4, 0.3 / step); }

// Runs three steps with n equal parameters in one launch and returns them.
std::vector<Tensor> three_steps(DType dtype, Attrs attrs, std::size_t states, std::size_t n = 1,
                                double scale = 1) {
  attrs.set("n", static_cast<std::int64_t>(n));
  std::vector<Tensor> p(n, vector3(dtype, 0.5, -1.25, 2)), s(states * n, Tensor(dtype, {3}));
  for (int step = 1; step <= 3; ++step) {
    std::vector<Tensor> inputs{Tensor::scalar(DType::f64, 0.1), Tensor::scalar(DType::i64, step),
                               scale == 1 ? Tensor() : Tensor::scalar(dtype, scale), Tensor()};
    inputs.insert(inputs.end(), p.begin(), p.end());
    Tensor g = gradient(dtype, step);
    for (int i = 0; i < 3; ++i)
      if (dtype == DType::f64) g.mutable_as<double>()[i] /= scale;
    for (std::size_t i = 0; i < n; ++i) inputs.push_back(g);
    inputs.insert(inputs.end(), s.begin(), s.end());
    const auto next = run("Optimizer", attrs, inputs, static_cast<int>((1 + states) * n));
    p.assign(next.begin(), next.begin() + static_cast<std::ptrdiff_t>(n));
    s.assign(next.begin() + static_cast<std::ptrdiff_t>(n), next.end());
  }
  return p;
}

struct Case {
  const char* name;
  Attrs attrs;
  std::size_t states;
  std::vector<double> expected;
};

std::vector<Case> torch_cases() {
  const std::string sgd = "sgd", adam = "adam", adamw = "adamw";
  const std::int64_t on = 1;
  return {
      {"sgd",
       {{"kind", sgd}, {"weight_decay", 0.01}},
       0,
       {0.4385414895, -1.1263737087499999, 1.9390809679999998}},
      {"momentum",
       {{"kind", sgd}, {"momentum", 0.9}, {"dampening", 0.1}, {"weight_decay", 0.01}},
       1,
       {0.40909250649499995, -1.0307244540875, 1.8735331840799998}},
      {"nesterov",
       {{"kind", sgd}, {"momentum", 0.9}, {"nesterov", on}},
       1,
       {0.35440999999999995, -0.9280399999999999, 1.83718}},
      {"maximize", {{"kind", sgd}, {"maximize", on}}, 0, {0.56, -1.37, 2.0549999999999997}},
      {"adam",
       {{"kind", adam}, {"weight_decay", 0.01}},
       2,
       {0.20707367323594328, -0.9500234795676114, 1.7170830850310692}},
      {"adamw",
       {{"kind", adamw}, {"weight_decay", 0.05}},
       2,
       {0.20169922392748632, -0.9328411012125629, 1.6910795346381466}},
      {"adagrad",
       {{"kind", std::string("adagrad")}, {"weight_decay", 0.01}, {"lr_decay", 0.2}, {"initial_sum", 0.5}},
       1,
       {0.4352790376811016, -1.1328829604508885, 1.9303651466857688}},
      {"adagrad-maximize",
       {{"kind", std::string("adagrad")}, {"epsilon", 1e-10}, {"maximize", on}},
       1,
       {0.7696210915122904, -1.478445704991784, 2.1732927880665946}},
  };
}

TEST(Optimizer, MatchesTorch) {
  for (const Case& c : torch_cases()) {
    expect_near(three_steps(DType::f64, c.attrs, c.states)[0], {3}, c.expected, 1e-9, c.name);
    expect_near(three_steps(DType::f32, c.attrs, c.states)[0], {3}, c.expected, 2e-6, c.name);
  }
}

TEST(Optimizer, ManyTensorsInOneLaunchAreTheSameAsOne) {
  for (const Case& c : torch_cases()) {
    const Tensor one = three_steps(DType::f32, c.attrs, c.states)[0];
    for (const Tensor& p : three_steps(DType::f32, c.attrs, c.states, 3))
      EXPECT_TRUE(bit_equal(p, one)) << c.name;
  }
}

TEST(Optimizer, ScalesGradients) {
  for (const Case& c : torch_cases())
    expect_near(three_steps(DType::f64, c.attrs, c.states, 1, 0.25)[0], {3}, c.expected, 1e-9, c.name);
}

TEST(Optimizer, LambFollowsThePaper) {
  const double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, decay = 0.01, lr = 0.1;
  double p[3] = {0.5, -1.25, 2}, m[3] = {}, v[3] = {};
  for (int step = 1; step <= 3; ++step) {
    double u[3], p_norm = 0, u_norm = 0;
    const double g[3] = {0.1 * step, -0.4, 0.3 / step};
    for (int i = 0; i < 3; ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      u[i] = m[i] / (1 - std::pow(beta1, step)) / (std::sqrt(v[i] / (1 - std::pow(beta2, step))) + epsilon) +
             decay * p[i];
      p_norm += p[i] * p[i];
      u_norm += u[i] * u[i];
    }
    for (int i = 0; i < 3; ++i) p[i] -= lr * std::sqrt(p_norm) / std::sqrt(u_norm) * u[i];
  }
  const Attrs attrs{{"kind", std::string("lamb")}, {"weight_decay", decay}, {"epsilon", epsilon}};
  expect_near(three_steps(DType::f64, attrs, 2)[0], {3}, {p[0], p[1], p[2]}, 1e-12);
  expect_near(three_steps(DType::f32, attrs, 2)[0], {3}, {p[0], p[1], p[2]}, 2e-6);
}

// Also for the kinds whose kernels are not those of the others: every element of the gradient is scaled, then clipped, and
// lr_factor is the learning rate's.
TEST(Optimizer, ClipsByValueAndScalesTheRate) {
  for (Case& c : torch_cases()) {
    c.attrs.set("clip_value", 1e30);
    expect_near(three_steps(DType::f64, c.attrs, c.states, 1, 0.25)[0], {3}, c.expected, 1e-9, c.name);
  }
  const Attrs clipped{{"kind", std::string("sgd")}, {"clip_value", 0.25}, {"lr_factor", 10.0}};
  const auto next =
      run("Optimizer", clipped,
          {Tensor::scalar(DType::f64, 0.1), Tensor::scalar(DType::i64, 1), Tensor::scalar(DType::f64, 0.5),
           Tensor(), vector3(DType::f64, 1, 1, 1), vector3(DType::f64, 0.25, -2, NAN)},
          1);
  EXPECT_EQ(next[0].at(0), 1 - 0.125);
  EXPECT_EQ(next[0].at(1), 1 + 0.25);
  EXPECT_TRUE(std::isnan(next[0].at(2)));
}

TEST(Optimizer, AliasesEveryOutputWithTheTensorItUpdates) {
  Node node;
  node.attrs = {{"kind", std::string("adam")}, {"n", std::int64_t{2}}};
  node.outputs.resize(6);
  const std::vector<std::pair<int, int>> expected{{0, 4}, {1, 5}, {2, 8}, {3, 9}, {4, 10}, {5, 11}};
  EXPECT_EQ(op_by_name("Optimizer").aliases(node), expected);
}

TEST(Optimizer, InferenceNamesWhatDoesNotFit) {
  const Type lr{DType::f64, {}}, step{DType::i64, {}}, scale{DType::f32, {}}, apply{DType::boolean, {}},
      p{DType::f32, {3}};
  const Attrs adam{{"kind", std::string("adam")}};
  EXPECT_EQ(inference_error("Optimizer", adam, {lr, step, scale, apply, p, p}, 3), "6 inputs, expected 8");
  EXPECT_EQ(inference_error("Optimizer", adam, {lr, step, scale, apply, p, {DType::f32, {4}}, p, p}, 3),
            "input 5 is f32[4], its parameter f32[3]");
  EXPECT_EQ(inference_error("Optimizer", adam, {lr, step, scale, step, p, p, p, p}, 3), "apply is i64[]");
  EXPECT_EQ(inference_error("Optimizer", {{"kind", std::string("rprop")}}, {lr, step, scale, apply, p, p}),
            "kind 'rprop' is unknown");
  EXPECT_EQ(inferred("Optimizer", adam, {lr, step, scale, apply, p, p, p, p}, 3)[2], p);
  const Type matrix{DType::f32, {4, 3}}, row{DType::f32, {4}}, column{DType::f32, {3}};
  const Attrs factored{{"kind", std::string("adafactor")}, {"factored", std::int64_t{1}}};
  EXPECT_EQ(inferred("Optimizer", factored, {lr, step, scale, apply, matrix, matrix, row, column}, 3)[2],
            column);
  EXPECT_EQ(inference_error("Optimizer", factored, {lr, step, scale, apply, matrix, matrix, column, row}, 3),
            "input 6 is f32[3], its parameter f32[4, 3]");
  EXPECT_EQ(inference_error("Optimizer", factored, {lr, step, scale, apply, p, p, p, p}, 3),
            "a parameter f32[3] cannot be factored");
  const Attrs encoded{{"kind", std::string("rmsprop")}, {"eight_bit_states", std::int64_t{1}}};
  EXPECT_EQ(inference_error("Optimizer", encoded, {lr, step, scale, apply, p, p, {DType::u8, {12}}}, 2),
            "states of rmsprop are not of 8 bits");
}

// A step that is not applied leaves everything, whatever the gradients are; one that is applied is as ever.
TEST(Optimizer, AStepThatIsNotAppliedChangesNothing) {
  const Tensor p = Tensor::from_f64(DType::f32, {3}, {0.5, -1.25, 2}),
               g = Tensor::from_f64(DType::f32, {3}, {HUGE_VAL, -HUGE_VAL, NAN}),
               v = Tensor::from_f64(DType::f32, {3}, {0.1, 0.2, 0.3});
  for (const char* kind : {"sgd", "adam", "adamw", "lamb", "adagrad", "lion", "adamw_hf", "rmsprop", "nadam",
                           "radam", "adadelta"}) {
    Attrs attrs{{"kind", std::string(kind)}, {"weight_decay", 0.1}, {"momentum", 0.9}};
    std::vector<Tensor> inputs{Tensor::scalar(DType::f64, 0.1),
                               Tensor::scalar(DType::i64, 3),
                               Tensor::scalar(DType::f32, 0.5),
                               Tensor::scalar(DType::boolean, 0),
                               p,
                               g,
                               v};
    const std::string name = kind;
    const int outputs = name == "sgd" || name == "adagrad" || name == "lion" ? 2 : 3;
    if (outputs == 3) inputs.push_back(v);
    const auto kept = run("Optimizer", attrs, inputs, outputs);
    EXPECT_TRUE(bit_equal(kept[0], p)) << kind;
    for (std::size_t i = 1; i < kept.size(); ++i) EXPECT_TRUE(bit_equal(kept[i], v)) << kind;
    inputs[5] = v;
    inputs[3] = Tensor::scalar(DType::boolean, 1);
    const auto made = run("Optimizer", attrs, inputs, outputs);
    inputs[3] = Tensor();
    const auto plain = run("Optimizer", attrs, inputs, outputs);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(bit_equal(made[i], plain[i])) << kind;
    EXPECT_FALSE(bit_equal(made[0], p)) << kind;
  }
}

// The rule of torch.cuda.amp.GradScaler (1.13), written down from _amp_update_scale_cpu_kernel.
struct TorchScaler {
  float scale;
  double growth, backoff;
  std::int64_t interval, tracker = 0, skipped = 0, steps = 0;
  void update(bool overflow) {
    if (overflow) {
      scale = static_cast<float>(scale * backoff);
      tracker = 0;
      ++skipped;
      return;
    }
    ++steps;
    skipped = 0;
    if (++tracker != interval) return;
    const auto grown = static_cast<float>(scale * growth);
    if (std::isfinite(grown)) scale = grown;
    tracker = 0;
  }
};

TEST(LossScale, FollowsTheRuleOfPyTorch) {
  for (const std::int64_t interval : {1, 3}) {
    TorchScaler want{1e36F, 4, 0.5, interval};
    const Attrs attrs{{"growth", want.growth}, {"backoff", want.backoff}, {"interval", interval}};
    std::vector<Tensor> state{Tensor::scalar(DType::f32, want.scale), Tensor::scalar(DType::i64, 0),
                              Tensor::scalar(DType::i64, 0), Tensor::scalar(DType::i64, 0)};
    const double norms[] = {1, 2, HUGE_VAL, 3, 4, 5, NAN, NAN, 6, 7, 8, 9, 10, 11, 12, 13, -0.0, 15};
    for (const double norm : norms) {
      const double scale = state[0].at(0);
      const auto got = run("LossScale", attrs,
                           {Tensor::scalar(DType::f32, norm), state[0], state[1], state[2], state[3]}, 7);
      const bool overflow = !std::isfinite(norm);
      want.update(overflow);
      EXPECT_EQ(got[0].at(0), overflow ? 0 : 1) << norm;
      EXPECT_FLOAT_EQ(static_cast<float>(got[1].at(0)), static_cast<float>(1 / scale));
      if (!overflow) {
        EXPECT_FLOAT_EQ(static_cast<float>(got[2].at(0)), static_cast<float>(norm / scale));
      }
      EXPECT_EQ(got[3].at(0), want.scale) << norm;
      EXPECT_EQ(got[4].at(0), static_cast<double>(want.tracker)) << norm;
      EXPECT_EQ(got[5].at(0), static_cast<double>(want.skipped)) << norm;
      EXPECT_EQ(got[6].at(0), static_cast<double>(want.steps)) << norm;
      state.assign(got.begin() + 3, got.end());
    }
    EXPECT_GT(state[0].at(0), 1e37) << "it grew as far as f32 goes";
  }
}

TEST(LossScale, ClipsTheTrueGradient) {
  const auto factor = [](double norm) {
    return run("LossScale", {{"interval", std::int64_t{9}}, {"max_norm", 2.0}},
               {Tensor::scalar(DType::f64, norm), Tensor::scalar(DType::f64, 16),
                Tensor::scalar(DType::i64, 0), Tensor::scalar(DType::i64, 0), Tensor::scalar(DType::i64, 0)},
               7)[1]
        .at(0);
  };
  EXPECT_DOUBLE_EQ(factor(16 * 8), 2 / (8 + 1e-6) / 16);
  EXPECT_DOUBLE_EQ(factor(16 * 1.5), 1.0 / 16);
}

TEST(GlobalNorm, IsTheNormOfAllTensorsTogether) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor a = Tensor::from_f64(dtype, {2, 2}, {1, 2, 2, 4}), b = Tensor::from_f64(dtype, {}, {12});
    expect_near(run("GlobalNorm", {}, {a, b})[0], {}, {13}, 0);
  }
}

TEST(ClipScale, ShrinksOnlyLargeNorms) {
  const Attrs attrs{{"max_norm", 2.0}};
  expect_near(run("ClipScale", attrs, {Tensor::scalar(DType::f64, 8)})[0], {}, {2 / (8 + 1e-6)}, 1e-15);
  expect_near(run("ClipScale", attrs, {Tensor::scalar(DType::f64, 1.5)})[0], {}, {1}, 0);
  expect_near(run("ClipScale", attrs, {Tensor::scalar(DType::f64, 0)})[0], {}, {1}, 0);
  EXPECT_EQ(inference_error("ClipScale", {}, {{DType::f32, {}}}), "max_norm must be positive");
}

TEST(Accumulate, StartsOverAtTheFirstMicroBatch) {
  const Attrs attrs{{"count", std::int64_t{4}}};
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor acc = vector3(dtype, 1, std::nan(""), 3), g = vector3(dtype, 4, 8, -2);
    expect_near(run("Accumulate", attrs, {acc, g, Tensor::scalar(DType::i64, 0)})[0], {3}, {1, 2, -0.5}, 0);
    const Tensor later = vector3(dtype, 1, 2, 3);
    expect_near(run("Accumulate", attrs, {later, g, Tensor::scalar(DType::i64, 1)})[0], {3}, {2, 4, 2.5}, 0);
  }
}

TEST(Accumulate, AddsSeveralInOneNode) {
  const Attrs attrs{{"count", std::int64_t{2}}};
  const Tensor a = vector3(DType::f32, 1, 2, 3), b = Tensor::scalar(DType::f32, 7);
  const auto next = run(
      "Accumulate", attrs,
      {a, b, vector3(DType::f32, 2, 4, 6), Tensor::scalar(DType::f32, 1), Tensor::scalar(DType::i64, 1)}, 2);
  expect_near(next[0], {3}, {2, 4, 6}, 0);
  expect_near(next[1], {}, {7.5}, 0);
  const Type type{DType::f32, {3}}, other{DType::f64, {3}}, micro{DType::i64, {}};
  EXPECT_EQ(inference_error("Accumulate", {}, {type, type, type, micro}),
            "not every accumulator has a gradient");
  EXPECT_EQ(inference_error("Accumulate", {}, {type, other, type, other, micro}),
            "accumulators have different types");
}

Tensor waves_of(Shape shape, double factor, double offset) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < element_count(shape); ++i)
    all.push_back(offset + factor * std::sin(static_cast<double>(i)));
  return Tensor::from_f64(DType::f32, std::move(shape), all);
}
Tensor range_of(const Tensor& whole, std::int64_t begin, std::int64_t count) {
  const auto range = elements_of(whole, {begin, count});
  EXPECT_TRUE(range.ok());
  return *range;
}

// A range of a parameter is updated as among the others, bit for bit, and these stay; the gradient is whole or the range's alone.
TEST(Optimizer, UpdatesARangeAsAmongTheOthers) {
  constexpr std::int64_t kUnit = optimizer_inputs::kRangeUnit, kRows = 3, kAll = kRows * kUnit + 40;
  const Tensor p = waves_of({kAll}, 1, 0.1), g = waves_of({kAll}, 0.3, 0), m = waves_of({kAll}, 0.2, 0),
               v = waves_of({kAll}, 0.1, 0.2), lr = Tensor::scalar(DType::f64, 0.1),
               step = Tensor::scalar(DType::i64, 3), scale = Tensor::scalar(DType::f32, 0.5);
  Attrs attrs{{"kind", std::string("adamw")}, {"weight_decay", 0.01}, {"clip_value", 0.1}};
  const auto whole = run("Optimizer", attrs, {lr, step, scale, Tensor(), p, g, m, v}, 3);
  for (const auto& [begin, count] :
       {std::pair{std::int64_t{0}, kUnit}, {kUnit, kUnit}, {2 * kUnit, kUnit + 40}, {0, kAll}})
    for (const bool own_gradient : {false, true}) {
      SCOPED_TRACE(std::to_string(begin) + " " + std::to_string(count));
      attrs.set("begins", std::vector<std::int64_t>{begin});
      attrs.set("counts", std::vector<std::int64_t>{count});
      const auto ranged = run("Optimizer", attrs,
                              {lr, step, scale, Tensor(), p, own_gradient ? range_of(g, begin, count) : g,
                               range_of(m, begin, count), range_of(v, begin, count)},
                              3);
      ASSERT_EQ(ranged[0].shape(), p.shape());
      for (std::size_t i = 0; i < 3; ++i) {
        const Tensor expected = range_of(whole[i], begin, count);
        EXPECT_TRUE(bit_equal(i == 0 ? range_of(ranged[0], begin, count) : ranged[i], expected)) << i;
      }
      for (std::int64_t i = 0; i < kAll; ++i)
        if (i < begin || i >= begin + count) {
          ASSERT_EQ(ranged[0].at(i), p.at(i)) << i;
        }
    }
}

// A range that is all that there is of a parameter, beside a copy of the whole: the bits of both are those of the update of all.
TEST(Optimizer, UpdatesARangeThatIsKeptAlone) {
  constexpr std::int64_t kUnit = optimizer_inputs::kRangeUnit, kRows = 5, kColumns = 5000,
                         kAll = kRows * kColumns;
  const Shape shape{kRows, kColumns};
  const Tensor p = waves_of(shape, 1, 0.1), g = waves_of(shape, 0.3, 0), m = waves_of(shape, 0.2, 0),
               v = waves_of(shape, 0.1, 0.2), lr = Tensor::scalar(DType::f64, 0.1),
               step = Tensor::scalar(DType::i64, 3);
  for (const DType low : {DType::bf16, DType::f16}) {
    const Tensor copy = p.cast(low);
    Attrs attrs{
        {"kind", std::string("adamw")}, {"weight_decay", 0.01}, {"copies", std::vector<std::int64_t>{0}}};
    const auto whole = run("Optimizer", attrs, {lr, step, Tensor(), Tensor(), p, g, m, v, copy}, 4);
    for (const auto& [begin, count] :
         {std::pair{std::int64_t{0}, kUnit}, {kUnit, kUnit}, {2 * kUnit, kAll - 2 * kUnit}})
      for (const bool own_gradient : {false, true}) {
        SCOPED_TRACE(std::to_string(begin) + " " + std::to_string(count));
        attrs.set("begins", std::vector<std::int64_t>{begin});
        attrs.set("counts", std::vector<std::int64_t>{count});
        const auto ranged = run("Optimizer", attrs,
                                {lr, step, Tensor(), Tensor(), range_of(p, begin, count),
                                 own_gradient ? range_of(g, begin, count) : g, range_of(m, begin, count),
                                 range_of(v, begin, count), copy},
                                4);
        for (std::size_t i = 0; i < 3; ++i)
          EXPECT_TRUE(bit_equal(ranged[i], range_of(whole[i], begin, count))) << i;
        ASSERT_EQ(ranged[3].type(), copy.type());
        EXPECT_TRUE(bit_equal(range_of(ranged[3], begin, count), range_of(whole[3], begin, count)));
        EXPECT_TRUE(bit_equal(range_of(ranged[3], 0, begin), range_of(copy, 0, begin)));
        const std::int64_t end = begin + count;
        EXPECT_TRUE(bit_equal(range_of(ranged[3], end, kAll - end), range_of(copy, end, kAll - end)));
      }
  }
}

TEST(Optimizer, RefusesRangesThatItCannotUpdate) {
  const auto refused = [](Attrs attrs, std::vector<std::int64_t> begins, std::vector<std::int64_t> counts) {
    Graph graph;
    GraphBuilder b(graph);
    const ValueId lr = b.input("lr", {DType::f64, {}}), step = b.input("step", {DType::i64, {}}),
                  p = b.input("p", {DType::f32, {20000}}), g = b.input("g", {DType::f32, {20000}});
    std::vector<ValueId> inputs{lr, step, kNone, kNone, p, g};
    const bool states = attrs.text("kind") != "sgd";
    for (int i = 0; i < (states ? 2 : 0); ++i)
      inputs.push_back(b.input("s" + std::to_string(i), {DType::f32, counts}));
    attrs.set("begins", std::move(begins));
    attrs.set("counts", counts);
    return !b.add(op_by_name("Optimizer"), inputs, attrs, states ? 3 : 1).ok();
  };
  const Attrs sgd{{"kind", std::string("sgd")}}, lamb{{"kind", std::string("lamb")}};
  EXPECT_FALSE(refused(sgd, {8192}, {11808}));
  EXPECT_TRUE(refused(sgd, {8192}, {11809})) << "behind the end";
  EXPECT_TRUE(refused(sgd, {100}, {100})) << "inside of a unit";
  EXPECT_TRUE(refused(sgd, {-8192}, {100}));
  EXPECT_TRUE(refused(sgd, {0, 0}, {100, 100})) << "one parameter";
  EXPECT_TRUE(refused(lamb, {8192}, {8192})) << "it needs the norm of all";
}

TEST(Optimizer, RangesBeginWherePiecesOfTheNormDo) {
  constexpr std::int64_t kUnit = optimizer_inputs::kRangeUnit;
  EXPECT_EQ(square_pieces(kUnit), 1);
  EXPECT_EQ(square_pieces(kUnit + 1), 2);
  EXPECT_EQ(square_pieces(5 * kUnit), 5);
}

}  // namespace
}  // namespace gradloom
