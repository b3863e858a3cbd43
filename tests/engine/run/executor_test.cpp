#include "engine/run/executor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/ir/builder.h"
#include "engine/ops/op.h"
#include "tests/engine/plan/support.h"

namespace gradloom {
namespace {

// One weight: loss = mean((x * w - t)^2), trained by SGD with lr 0.5; its gradient is mean(2 x (x w - t)).
struct Line {
  TrainGraph train;
  Plan plan;
  std::unique_ptr<Device> device = make_cpu_device();
  std::unique_ptr<Executor> executor;
  ValueId x, t, w;

  explicit Line(std::int64_t accumulate = 1) {
    Graph graph;
    GraphBuilder b(graph);
    x = b.input("x", {DType::f64, {4}});
    w = b.parameter("w", Tensor::from_f64(DType::f64, {1}, {3.0}));
    const ValueId y = b.op("Mul", {x, w});
    graph.values[y].name = "y";
    graph.outputs = {y};
    EXPECT_TRUE(add_loss(graph, "mse:y,t").ok());
    TrainSpec spec;
    spec.optimizer = *parse_optimizer("sgd{lr=0.5}");
    spec.accumulate = accumulate;
    auto made = add_training(std::move(graph), spec);
    EXPECT_TRUE(made.ok());
    train = std::move(made).value();
    t = find_value(train.graph, "t");
    auto planned = make_plan(train.graph, {stack_all, "stack", true});
    EXPECT_TRUE(planned.ok());
    plan = std::move(planned).value();
    EXPECT_TRUE(check_plan(train.graph, plan).ok());
    auto created = Executor::create(train.graph, plan, *device);
    EXPECT_TRUE(created.ok());
    executor = std::move(created).value();
  }
  Status feed(double offset = 0) {
    TRY(executor->feed(x, Tensor::from_f64(DType::f64, {4}, {1 + offset, 2, 3, 4})));
    return executor->feed(t, Tensor::from_f64(DType::f64, {4}, {2, 4, 6, 8}));
  }
  Status step(std::int64_t n, std::int64_t micro_batches = 1, std::vector<KernelSample>* samples = nullptr) {
    StepOptions options;
    options.step = n;
    options.lr = 0.5;
    options.micro_batches = micro_batches;
    options.samples = samples;
    return executor->step(train.names, options, [&](std::int64_t k) { return feed(static_cast<double>(k)); });
  }
};

TEST(Executor, StepComputesLossAndUpdatesInPlace) {
  Line line;
  ASSERT_TRUE(line.step(1).ok());
  EXPECT_DOUBLE_EQ(*line.executor->read_scalar(line.train.names.loss), (1 + 4 + 9 + 16) / 4.0);   // error = x
  EXPECT_DOUBLE_EQ(line.executor->read(line.w)->at(0), 3.0 - 0.5 * 2 * 30 / 4);
}

TEST(Executor, AccumulationAveragesGradientsAndLosses) {
  Line line(2);
  ASSERT_TRUE(line.step(1, 2).ok());
  double gradient = 0, loss = 0;
  for (const double first : {1.0, 2.0}) {
    const double xs[] = {first, 2, 3, 4}, ts[] = {2, 4, 6, 8};
    for (int i = 0; i < 4; ++i) {
      const double error = xs[i] * 3 - ts[i];
      loss += error * error / 4 / 2;
      gradient += 2 * xs[i] * error / 4 / 2;
    }
  }
  EXPECT_NEAR(*line.executor->read_scalar(line.train.names.loss), loss, 1e-12);
  EXPECT_NEAR(line.executor->read(line.w)->at(0), 3.0 - 0.5 * gradient, 1e-12);
}

TEST(Executor, OldMemoryDoesNotMatter) {
  Line clean, poisoned;
  for (int i = 1; i <= 3; ++i) {
    poisoned.executor->poison();
    ASSERT_TRUE(clean.step(i).ok());
    ASSERT_TRUE(poisoned.step(i).ok());
    EXPECT_EQ(clean.executor->read(clean.w)->at(0), poisoned.executor->read(poisoned.w)->at(0));
  }
}

TEST(Executor, ResetBringsInitialStatesBack) {
  Line line;
  ASSERT_TRUE(line.step(1).ok());
  ASSERT_NE(line.executor->read(line.w)->at(0), 3.0);
  ASSERT_TRUE(line.executor->reset().ok());
  EXPECT_EQ(line.executor->read(line.w)->at(0), 3.0);
}

TEST(Executor, FeedChecksTypes) {
  Line line;
  const Status wrong = line.executor->feed(line.x, Tensor(DType::f32, {4}));
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, Errc::bad_input);
  EXPECT_NE(wrong.error().message.find("'x' is f32[4]; expected f64[4]"), std::string::npos) << wrong.error().message;
  EXPECT_FALSE(line.executor->write(line.w, Tensor(DType::f64, {2})).ok());
}

TEST(Executor, SamplesCoverEveryKernelInOrder) {
  Line line(2);
  std::vector<KernelSample> samples;
  ASSERT_TRUE(line.step(1, 2, &samples).ok());
  std::size_t expected = 0;
  for (const PlanStep& s : line.plan.steps) expected += s.micro ? 2 : 1;
  ASSERT_EQ(samples.size(), expected);
  for (std::size_t i = 1; i < samples.size(); ++i)
    EXPECT_GE(samples[i].start_ns, samples[i - 1].start_ns + samples[i - 1].duration_ns);
}

TEST(Executor, TakesExactlyThePlannedMemory) {
  Line line;
  EXPECT_EQ(line.executor->measured_peak_bytes(), line.plan.peak_bytes());
  line.executor.reset();
}

}  // namespace
}  // namespace gradloom
