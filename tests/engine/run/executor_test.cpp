#include "engine/run/executor.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <string_view>

#include "engine/base/input_file.h"
#include "engine/ir/builder.h"
#include "engine/ir/op.h"
#include "tests/engine/plan/support.h"
#include "tests/engine/run/queued_device.h"
#include "tests/folder.h"

// Every allocation of this binary through operator new, counted while `counting`: ours, and those that oneDNN
// makes inside its own calls (four to eight per product or convolution, which no caller can avoid).
namespace {
std::atomic<bool> counting{false};
std::atomic<int> our_allocations{0}, library_allocations{0};

void count(const void* caller) {
  Dl_info where;
  const bool library = dladdr(caller, &where) != 0 && where.dli_fname != nullptr &&
                       std::string_view(where.dli_fname).find("libdnnl") != std::string_view::npos;
  ++(library ? library_allocations : our_allocations);
}
}  // namespace

// Not inlined: the compiler would see malloc and free where it looks for pairs of new and delete.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (counting) count(__builtin_return_address(0));
  return std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (counting) count(__builtin_return_address(0));
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

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
  Result<StepOutcome> step(std::int64_t n, std::int64_t micro_batches = 1, bool timed = false) {
    StepOptions options;
    options.step = n;
    options.lr = 0.5;
    options.micro_batches = micro_batches;
    options.timed = timed;
    return executor->step(train.names, options, [&](std::int64_t k) { return feed(static_cast<double>(k)); });
  }
};

TEST(Executor, StepComputesLossAndUpdatesInPlace) {
  Line line;
  ASSERT_TRUE(line.step(1).ok());
  EXPECT_DOUBLE_EQ(*line.executor->read_scalar(line.train.names.loss), (1 + 4 + 9 + 16) / 4.0);  // error = x
  EXPECT_DOUBLE_EQ(line.executor->read(line.w)->at(0), 3.0 - 0.5 * 2 * 30 / 4);
}

// A batch normalization that two nodes share: x, then 2 x. Both average its statistics, in turn and in place.
TEST(Executor, StatesOfTwoNodesAreUpdatedInTurn) {
  Graph graph;
  GraphBuilder b(graph);
  const Type one{DType::f64, {1}};
  const ValueId x = b.input("x", {DType::f64, {2, 1}});
  const ValueId scale = b.parameter("scale", Tensor::from_f64(DType::f64, {1}, {1.0}));
  const ValueId bias = b.constant(Tensor::from_f64(DType::f64, {1}, {0.0}));
  const ValueId mean = b.input("mean", one, Role::state), var = b.input("var", one, Role::state);
  graph.values[mean].data = Tensor::from_f64(DType::f64, {1}, {8.0});
  graph.values[var].data = Tensor::from_f64(DType::f64, {1}, {8.0});
  const OpDef& norm = *find_op("BatchNormalization", "", 15);
  const auto normalized = [&](ValueId of, ValueId with_mean, ValueId with_var) {
    return b.ops(norm, {of, scale, bias, with_mean, with_var},
                 {{"training_mode", std::int64_t{1}}, {"momentum", 0.5}}, 3);
  };
  const auto first = normalized(x, mean, var), second = normalized(b.op("Add", {x, x}), first[1], first[2]);
  graph.updates = {{mean, second[1]}, {var, second[2]}};
  const ValueId y = b.op("Add", {first[0], second[0]});
  graph.values[y].name = "y";
  graph.outputs = {y};
  ASSERT_TRUE(add_loss(graph, "mse:y,t").ok());
  TrainSpec spec;
  spec.optimizer = *parse_optimizer("sgd{lr=0.5}");
  auto train = add_training(std::move(graph), spec);
  ASSERT_TRUE(train.ok()) << train.error().message;
  const auto plan = make_plan(train->graph, {stack_all, "stack", true});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(check_plan(train->graph, *plan).ok());
  const auto device = make_cpu_device();
  auto executor = Executor::create(train->graph, *plan, *device);
  ASSERT_TRUE(executor.ok());
  StepOptions options;
  options.step = 1;
  const auto feed = [&](std::int64_t) -> Status {
    TRY((*executor)->feed(x, Tensor::from_f64(DType::f64, {2, 1}, {1, 3})));
    return (*executor)->feed(find_value(train->graph, "t"), Tensor::from_f64(DType::f64, {2, 1}, {0, 1}));
  };
  ASSERT_TRUE((*executor)->step(train->names, options, feed).ok());
  EXPECT_DOUBLE_EQ((*executor)->read(mean)->at(0), (8.0 / 2 + 2.0 / 2) / 2 + 4.0 / 2);
  EXPECT_DOUBLE_EQ((*executor)->read(var)->at(0), (8.0 / 2 + 1.0 / 2) / 2 + 4.0 / 2);
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
  EXPECT_NE(wrong.error().message.find("'x' is f32[4]; expected f64[4]"), std::string::npos)
      << wrong.error().message;
  EXPECT_FALSE(line.executor->write(line.w, Tensor(DType::f64, {2})).ok());
}

TEST(Executor, SamplesCoverEveryKernelInOrder) {
  Line line(2);
  const auto outcome = line.step(1, 2, true);
  ASSERT_TRUE(outcome.ok());
  const std::vector<KernelSample>& samples = outcome->samples;
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

// A convolution, attention, a normalization, dropout, gathers and a reduction, their gradients and Adam.
TEST(Executor, KernelsAllocateNothing) {
  Graph graph;
  GraphBuilder b(graph);
  const auto parameter = [&](const char* name, Shape shape) {
    const auto n = static_cast<std::size_t>(element_count(shape));
    std::vector<double> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = 0.3 * std::sin(static_cast<double>(i + 1));
    return b.parameter(name, Tensor::from_f64(DType::f32, std::move(shape), values));
  };
  const ValueId image = b.input("image", {DType::f32, {5, 3, 8, 8}}),
                rows = b.input("rows", {DType::i64, {5, 16}});
  ValueId x = b.op("Conv", {image, parameter("filters", {16, 3, 3, 3}), parameter("filter bias", {16})});
  x = b.op("MaxPool", {b.op("Relu", {x})}, {{"kernel_shape", std::vector<std::int64_t>{2, 2}}});
  x = b.op("Reshape", {x, b.i64s({5, 16, 25})});
  x = b.op("LayerNormalization", {x, parameter("scale", {25}), parameter("shift", {25})});
  const ValueId heads = b.op("MatMul", {x, parameter("projection", {25, 12})});
  const ValueId scores =
      b.op("MatMul", {heads, b.op("Transpose", {heads}, {{"perm", std::vector<std::int64_t>{0, 2, 1}}})});
  x = b.op("MatMul", {b.op("Softmax", {scores}), heads});
  x = b.op("Add", {x, b.op("Gather", {parameter("table", {7, 12}), rows})});
  x = b.op("GatherElements", {x, b.constant(Tensor(DType::i64, {5, 9, 12}))}, {{"axis", std::int64_t{1}}});
  x = b.op("Dropout", {x, b.scalar(DType::f32, 0.25), b.constant(Tensor::from_f64(DType::boolean, {}, {1}))});
  x = b.op("Gemm", {b.op("ReduceMean", {x, b.i64s({1})}, {{"keepdims", std::int64_t{0}}}),
                    parameter("head", {12, 4}), parameter("head bias", {4})});
  graph.values[x].name = "y";
  graph.outputs = {x};
  ASSERT_TRUE(add_loss(graph, "ce:y,t").ok());
  TrainSpec spec;
  spec.optimizer = *parse_optimizer("adam");
  spec.clip_norm = 1;
  auto train = add_training(std::move(graph), spec);
  ASSERT_TRUE(train.ok()) << train.error().message;
  auto plan = make_plan(train->graph, {stack_all, "stack", true});
  ASSERT_TRUE(plan.ok());
  const auto device = make_cpu_device();
  auto executor = Executor::create(train->graph, *plan, *device);
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  const ValueId labels = find_value(train->graph, "t");
  ASSERT_TRUE((*executor)->feed(image, Tensor(DType::f32, {5, 3, 8, 8})).ok());
  ASSERT_TRUE((*executor)->feed(rows, Tensor(DType::i64, {5, 16})).ok());
  ASSERT_TRUE((*executor)->feed(labels, Tensor(train->graph.type(labels).dtype, {5})).ok());
  const auto step = [&](std::int64_t n) {
    StepOptions options;
    options.step = n;
    options.lr = 1e-3;
    return (*executor)->step(train->names, options, nullptr).ok();
  };
  ASSERT_TRUE(step(1));  // the first run starts threads
  counting = true;
  const bool good = step(2) && step(3);
  counting = false;
  EXPECT_TRUE(good);
  EXPECT_LE(our_allocations, 2);      // the queue of submitted steps takes a block now and then
  EXPECT_GT(library_allocations, 0);  // or the hook counts nothing
}

// A parameter of several pieces whose contents are in a file.
struct LargeWeight {
  static constexpr std::int64_t kCount = 400'000;
  TemporaryFolder folder;
  std::string path = folder / "weight";
  Graph graph;
  Plan plan;
  ValueId w = kNone, y = kNone;
  std::unique_ptr<Device> device = make_cpu_device();

  LargeWeight() {
    std::vector<float> numbers(kCount);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(numbers.data()), 4 * kCount);
    auto file = InputFile::open(path);
    EXPECT_TRUE(file.ok());
    GraphBuilder b(graph);
    w = b.parameter(
        "w", Tensor::in_file({DType::f32, {kCount}}, std::make_shared<const InputFile>(std::move(*file)), 0));
    y = b.op("Neg", {w});
    graph.outputs = {y};
    auto planned = make_plan(graph, {stack_all, "stack", true});
    EXPECT_TRUE(planned.ok());
    plan = std::move(planned).value();
  }
  Result<std::unique_ptr<Executor>> create() { return Executor::create(graph, plan, *device); }
};

TEST(Executor, InitialContentsComeFromTheirFile) {
  LargeWeight large;
  auto executor = large.create();
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  ASSERT_TRUE((*executor)->run_forward().ok());
  const Result<Tensor> y = (*executor)->read(large.y);
  for (const std::int64_t i : {std::int64_t{0}, std::int64_t{300'000}, LargeWeight::kCount - 1})
    EXPECT_EQ(y->at(i), -static_cast<double>(i));
  EXPECT_FALSE(large.graph.values[large.w].data.in_memory());

  ASSERT_TRUE((*executor)->write(large.w, Tensor(DType::f32, {LargeWeight::kCount})).ok());
  ASSERT_TRUE((*executor)->reset().ok());
  EXPECT_EQ((*executor)->read(large.w)->at(300'000), 300'000);
  std::filesystem::resize_file(large.path, 10);
  const Status lost = (*executor)->reset();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, Errc::io);
  EXPECT_EQ(large.create().error().code, Errc::io);
}

TEST(Executor, ViewsSeeWhatIsWrittenLater) {
  LargeWeight large;
  auto executor = large.create();
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  Result<Tensor> view = (*executor)->view(large.w);
  ASSERT_TRUE(view.ok());
  const Result<Tensor> copy = (*executor)->read(large.w);
  EXPECT_TRUE(bit_equal(*view, *copy));
  ASSERT_TRUE((*executor)->write(large.w, Tensor(DType::f32, {LargeWeight::kCount})).ok());
  EXPECT_EQ(view->at(5), 0);
  EXPECT_EQ(copy->at(5), 5);
  view->mutable_as<float>()[5] = 1;  // of its own from here on
  EXPECT_EQ((*executor)->read(large.w)->at(5), 0);
}

// Steps of SmallPlan, of which every second is timed; what the device was asked for, and the outcomes.
struct QueuedSteps {
  SmallPlan small;
  QueuedDevice device;
  std::vector<StepOutcome> outcomes;

  void run(std::int64_t from, std::int64_t to) {
    if (!executor) executor = std::move(Executor::create(small.graph, small.plan, device)).value();
    for (std::int64_t step = from; step <= to; ++step) {
      StepOptions options;
      options.step = step;
      options.timed = step % 2 == 0;
      auto outcome = executor->step({}, options, {});
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      outcomes.push_back(std::move(outcome).value());
    }
  }
  std::int64_t count(const std::string& note) const {
    return std::count(device.notes.begin(), device.notes.end(), note);
  }

 private:
  std::unique_ptr<Executor> executor;
};

TEST(QueuedExecutor, TimedAndOtherStepsRunOneRecording) {
  QueuedSteps steps;
  steps.device.activities[0].plan_step = 0;
  steps.run(1, 6);
  EXPECT_EQ(steps.count("record"), 1);
  EXPECT_EQ(steps.count("replay"), 5);
  EXPECT_EQ(steps.outcomes[0].times_from, "");
  EXPECT_EQ(steps.outcomes[1].times_from, "trace");
  QueuedSteps late;
  late.device.activities[0].plan_step = 0;
  late.run(3, 3);
  late.run(5, 5);
  late.run(6, 9);
  EXPECT_EQ(late.count("record"), 2) << "the trace knows nothing of what was recorded before it was on";
}

TEST(QueuedExecutor, EventsTimeWhereThereIsNoTrace) {
  QueuedSteps steps;
  steps.device.has_trace = false;
  steps.run(1, 4);
  EXPECT_EQ(steps.count("replay"), 1) << "timed steps are launched one by one";
  const StepOutcome& timed = steps.outcomes[1];
  EXPECT_EQ(timed.times_from, "events: there is none");
  ASSERT_EQ(timed.samples.size(), 2u);
  for (std::int32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(timed.samples[static_cast<std::size_t>(i)].plan_step, i);
    EXPECT_EQ(timed.samples[static_cast<std::size_t>(i)].duration_ns, 5);
  }
}

TEST(QueuedExecutor, EventsTimeAfterATraceOfNoUse) {
  QueuedSteps steps;
  steps.run(1, 4);
  EXPECT_EQ(steps.outcomes[1].times_from, "none: the device's trace knew no kernel of the plan");
  EXPECT_EQ(steps.outcomes[3].times_from, "events: the device's trace knew no kernel of the plan");
  EXPECT_EQ(steps.outcomes[3].samples.size(), 2u);
}

TEST(QueuedExecutor, TunesOnNumbersLikeThoseOfTraining) {
  const SmallPlan small;
  QueuedDevice device;
  const auto executor = Executor::create(small.graph, small.plan, device);
  ASSERT_TRUE(executor.ok());
  (*executor)->poison(0);
  ASSERT_TRUE((*executor)->tune(4).ok());
  ASSERT_EQ(device.tuned_on.size(), 2u);
  const float y = std::fabs(device.tuned_on[1]);  // in the arena
  EXPECT_TRUE(y > 0.005f && y < 2.1f) << y;
}

}  // namespace
}  // namespace gradloom
