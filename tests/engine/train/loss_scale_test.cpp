// Loss scaling in whole steps. A scale that is a power of two changes no bit of what is trained: the backward
// pass is linear in the loss's gradient. A step that overflows leaves parameters and optimizer states alone.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"
#include "engine/run/executor.h"
#include "engine/train/train_graph.h"
#include "tests/engine/plan/support.h"

namespace gradloom {
namespace {

Tensor numbers(const Shape& shape, double factor) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < element_count(shape); ++i)
    values.push_back(factor * std::sin(static_cast<double>(1 + 7 * i)));
  return Tensor::from_f64(DType::f32, shape, values);
}

struct Training {
  TrainGraph train;
  Plan plan;
  std::unique_ptr<Device> device = make_cpu_device();
  std::unique_ptr<Executor> executor;

  explicit Training(const TrainSpec& spec) {
    Graph graph;
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f32, {4, 3}}), w = b.parameter("w", numbers({3, 5}, 0.5)),
                  bias = b.parameter("bias", numbers({5}, 0.1));
    const ValueId logits = b.op("Add", {b.op("MatMul", {x, w}), bias});
    graph.values[logits].name = "logits";
    graph.outputs = {logits};
    EXPECT_TRUE(add_loss(graph, "ce:logits,labels").ok());
    auto made = add_training(std::move(graph), spec);
    EXPECT_TRUE(made.ok()) << made.error().message;
    train = std::move(made).value();
    EXPECT_TRUE(verify(train.graph).ok());
    auto planned = make_plan(train.graph, {stack_all, "stack", true});
    EXPECT_TRUE(planned.ok());
    plan = std::move(planned).value();
    EXPECT_TRUE(check_plan(train.graph, plan).ok());
    executor = std::move(Executor::create(train.graph, plan, *device)).value();
    executor->poison();
  }
  StepOutcome step(std::int64_t n, std::int64_t micro_batches, double factor = 1) {
    StepOptions options;
    options.step = n;
    options.lr = 0.1;
    options.micro_batches = micro_batches;
    auto outcome = executor->step(train.names, options, [&](std::int64_t k) -> Status {
      TRY(executor->feed(find_value(train.graph, "x"), numbers({4, 3}, factor * static_cast<double>(k + 1))));
      return executor->feed(find_value(train.graph, "labels"),
                            Tensor::from_f64(DType::i64, {4}, {0, 3, 1, 4}));
    });
    EXPECT_TRUE(outcome.ok());
    return outcome.ok() ? *outcome : StepOutcome();
  }
  // Parameters and optimizer states, without the states of the scaling itself.
  std::map<std::string, Tensor> states() const {
    std::map<std::string, Tensor> all;
    for (const Update& u : train.graph.updates) {
      const std::string& name = train.graph.values[u.state].name;
      if (name.rfind("gradloom/", 0) != 0 && name.find("/acc") == std::string::npos)
        all[name] = *executor->read(u.state);
    }
    return all;
  }
};

void expect_same_bits(const Training& a, const Training& b, const std::string& what) {
  const auto want = a.states(), got = b.states();
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [name, tensor] : want) EXPECT_TRUE(bit_equal(got.at(name), tensor)) << what << " " << name;
}

std::vector<TrainSpec> specs() {
  std::vector<TrainSpec> all;
  for (const char* optimizer : {"sgd{momentum=0.9,dampening=0.5}", "adam", "adamw", "lamb", "adagrad", "lion",
                                "adamw_hf", "adafactor{beta1=0.9}", "adam{amsgrad=true}",
                                "rmsprop{momentum=0.9,centered=true}", "nadam", "radam", "adadelta"}) {
    for (const double clip : {0.0, 0.05}) {
      for (const std::int64_t accumulate : {1, 2}) {
        TrainSpec spec;
        spec.optimizer = *parse_optimizer(optimizer);
        spec.clip_norm = clip;
        spec.accumulate = accumulate;
        all.push_back(spec);
      }
    }
  }
  return all;
}

std::string text(const TrainSpec& spec) {
  return print_optimizer(spec.optimizer) + " clip " + std::to_string(spec.clip_norm) + " accumulate " +
         std::to_string(spec.accumulate);
}

TEST(LossScaling, APowerOfTwoChangesNoBit) {
  for (TrainSpec spec : specs()) {
    Training plain(spec);
    spec.loss_scale = LossScaleSpec{.initial = 65536, .interval = 2};
    Training scaled(spec);
    for (std::int64_t n = 1; n <= 5; ++n) {
      const StepOutcome want = plain.step(n, spec.accumulate), got = scaled.step(n, spec.accumulate);
      EXPECT_EQ(got.loss, want.loss) << text(spec);
      EXPECT_EQ(got.skipped, 0);
      EXPECT_EQ(got.loss_scale, std::ldexp(65536, static_cast<int>(n / 2))) << "doubled every two steps";
      EXPECT_GT(got.grad_norm, 0);
      if (spec.clip_norm > 0) {
        EXPECT_EQ(got.grad_norm, want.grad_norm) << text(spec);
      }
      EXPECT_EQ(want.loss_scale, 0) << "not computed";
    }
    expect_same_bits(plain, scaled, text(spec));
  }
}

// Bias corrections count the steps that were made.
TEST(LossScaling, StepsThatOverflowAreAsIfTheyHadNotBeen) {
  for (TrainSpec spec : specs()) {
    Training plain(spec);
    spec.loss_scale = LossScaleSpec{.initial = std::ldexp(1, 68)};
    Training scaled(spec);
    const auto before = scaled.states();
    double scale = spec.loss_scale->initial;
    std::int64_t n = 1, skipped = 0;
    for (;; ++n) {
      const StepOutcome got = scaled.step(n, spec.accumulate);
      if (got.skipped == 0) break;
      ASSERT_EQ(got.skipped, static_cast<double>(++skipped)) << text(spec);
      ASSERT_EQ(got.loss_scale, scale /= 2);
      ASSERT_LT(skipped, 20);
      for (const auto& [name, tensor] : scaled.states())
        ASSERT_TRUE(bit_equal(tensor, before.at(name))) << text(spec) << " " << name;
    }
    EXPECT_GT(skipped, 1) << text(spec);
    for (std::int64_t i = 1; i <= 4; ++i) (void)plain.step(i, spec.accumulate);
    for (std::int64_t i = 1; i <= 3; ++i) EXPECT_EQ(scaled.step(n + i, spec.accumulate).skipped, 0);
    expect_same_bits(plain, scaled, text(spec));
    // Data that overflows once, in the middle of training.
    const auto kept = scaled.states();
    const StepOutcome outlier = scaled.step(n + 4, spec.accumulate, 1e37);
    EXPECT_EQ(outlier.skipped, 1) << text(spec);
    for (const auto& [name, tensor] : scaled.states())
      EXPECT_TRUE(bit_equal(tensor, kept.at(name))) << text(spec) << " " << name;
  }
}

TEST(LossScaling, HysteresisWaitsAndBoundsHold) {
  TrainSpec spec = specs()[0];
  const double huge = std::ldexp(1, 100);
  spec.loss_scale = LossScaleSpec{.initial = huge, .hysteresis = 3, .least = huge / 4};
  Training falling(spec);
  for (const double want : {huge, huge, huge / 2, huge / 4, huge / 4}) {  // after each step
    const StepOutcome got = falling.step(1, spec.accumulate);
    EXPECT_GT(got.skipped, 0);
    EXPECT_EQ(got.loss_scale, want);
  }
  spec.loss_scale = LossScaleSpec{.initial = 8, .interval = 1, .most = 24};
  Training growing(spec);
  for (const double want : {16, 24, 24}) EXPECT_EQ(growing.step(1, spec.accumulate).loss_scale, want);
  spec.loss_scale = *parse_loss_scale("static{scale=8}");
  Training fixed(spec);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fixed.step(1, spec.accumulate).loss_scale, 8);
}

TEST(LossScaling, OptionsAreThoseOfPyTorch) {
  const auto dynamic = parse_loss_scale("dynamic");
  ASSERT_TRUE(dynamic.ok());
  EXPECT_EQ(print_loss_scale(*dynamic),
            "dynamic{initial=65536,growth=2,backoff=0.5,interval=2000,hysteresis=1,min=0,max=0}");
  const auto fixed = parse_loss_scale("dynamic{initial=128,growth=1,backoff=1}");
  ASSERT_TRUE(fixed.ok());
  EXPECT_EQ(print_loss_scale(*parse_loss_scale(print_loss_scale(*fixed))), print_loss_scale(*fixed));
  const auto constant = parse_loss_scale("static{scale=128}");
  ASSERT_TRUE(constant.ok());
  EXPECT_FALSE(constant->dynamic);
  EXPECT_EQ(constant->initial, 128);
  EXPECT_EQ(constant->growth * constant->backoff, 1);
  EXPECT_EQ(print_loss_scale(*constant), "static{scale=128}");
  for (const char* wrong : {"fixed", "static{initial=2}", "dynamic{initial=0.5}", "dynamic{growth=0.5}",
                            "dynamic{backoff=2}", "dynamic{interval=0}", "dynamic{window=5}",
                            "dynamic{hysteresis=0}", "dynamic{min=4,max=2}", "dynamic{initial=1,min=4}"}) {
    EXPECT_FALSE(parse_loss_scale(wrong).ok()) << wrong;
  }
}

TEST(LossScaling, ALossInF16IsRefused) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId w = b.parameter("w", Tensor(DType::f16, {3}));
  const ValueId loss = b.op("ReduceSum", {w}, {{"keepdims", std::int64_t{0}}});
  graph.values[loss].name = "total";
  graph.outputs = {loss};
  graph.loss = loss;
  TrainSpec spec;
  spec.loss_scale = LossScaleSpec{};
  const auto made = add_training(std::move(graph), spec);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("'total' is computed in f16"), std::string::npos)
      << made.error().message;
}

}  // namespace
}  // namespace gradloom
