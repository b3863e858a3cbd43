// Loading of plugins, and what a failing one does to those who use it: a reason or an Error,
// never an end of the process.
#include "engine/device/plugin.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/device/device.h"
#include "engine/ir/builder.h"
#include "engine/run/executor.h"
#include "tests/engine/plan/support.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

// The environment with one more variable, put back at the end.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (had_)
      setenv(name_, old_.c_str(), 1);
    else
      unsetenv(name_);
  }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

std::string fakes(const char* variant) { return std::string(GRADLOOM_FAKE_PLUGINS) + "/" + variant; }

std::string refusal(const std::string& folder) {
  const Variable plugins("GRADLOOM_PLUGINS", folder);
  const auto device = open_device("cuda:0");
  EXPECT_FALSE(device.ok());
  if (device.ok()) return "";
  EXPECT_EQ(device.error().code, Errc::device);
  for (const DeviceInfo& d : list_devices()) {
    if (d.id == "cuda:0") {
      EXPECT_FALSE(d.available);
      EXPECT_FALSE(d.why_not.empty());
    }
  }
  return device.error().message;
}

TEST(Plugin, AMissingForeignOrOldOneIsAReason) {
  EXPECT_NE(refusal("/nowhere").find("libgradloom_cuda.so is not beside the program"), std::string::npos);
  const fs::path text = fs::temp_directory_path() / "gradloom-not-a-library";
  fs::create_directories(text);
  std::ofstream(text / "libgradloom_cuda.so") << "this is no library";
  EXPECT_NE(refusal(text.string()).find("cannot load the plugin"), std::string::npos);
  fs::remove_all(text);
  EXPECT_NE(refusal(fakes("no_entry")).find("is not a Gradloom plugin"), std::string::npos);
  EXPECT_NE(refusal(fakes("version"))
                .find("has plugin version 999, this program needs " + std::to_string(GRADLOOM_GPU_VERSION)),
            std::string::npos);
  EXPECT_NE(refusal(fakes("abi")).find("was built from another version of the kernels"), std::string::npos);
}

TEST(Plugin, WithoutDriverOrDeviceItSaysSo) {
  for (const char* entry : {"device_count=1", "device_count=2", "describe=3", "open=3"}) {
    const Variable fail("GRADLOOM_FAKE", entry);
    const Variable plugins("GRADLOOM_PLUGINS", fakes("good"));
    const auto device = open_device("cuda:0");
    ASSERT_FALSE(device.ok()) << entry;
    EXPECT_NE(device.error().message.find("fake failure"), std::string::npos) << device.error().message;
  }
}

TEST(Plugin, DevicesAreListedAndCounted) {
  const Variable plugins("GRADLOOM_PLUGINS", fakes("good"));
  std::vector<std::string> ids;
  for (const DeviceInfo& d : list_devices())
    if (d.available && d.id != "cpu") ids.push_back(d.id + " " + d.name);
  EXPECT_EQ(ids, (std::vector<std::string>{"cuda:0 Fake GPU, fake_10", "cuda:1 Fake GPU two, fake_10"}));
  EXPECT_TRUE(open_device("cuda:1").ok());
  EXPECT_NE(open_device("cuda:2").error().message.find("there are 2 devices"), std::string::npos);
  EXPECT_EQ(open_device("cuda:x").error().code, Errc::usage);
}

TEST(Plugin, PlansLeaveRoomForALibraryThatIsThere) {
  const Variable nowhere("GRADLOOM_PLUGINS", "/nowhere");
  for (const char* id : {"cpu", "hip:0", "host-gpu", "tpu"}) EXPECT_FALSE(device_has_dnn_library(id)) << id;
  EXPECT_TRUE(device_has_dnn_library("cuda:0")) << "of another machine";
  const Variable plugins("GRADLOOM_PLUGINS", fakes("good"));
  EXPECT_FALSE(device_has_dnn_library("cuda:0"));
  const Variable found("GRADLOOM_FAKE", "has_dnn_library=1");
  EXPECT_TRUE(device_has_dnn_library("cuda:1"));
  const Variable unwanted("GRADLOOM_CUDNN", "0");
  EXPECT_FALSE(device_has_dnn_library("cuda:1"));
}

// y = exp(x), loss = sum(y * w): a generated kernel, a reduction, an optimizer update.
struct Job {
  TrainGraph train;
  Plan plan;

  Job() {
    Graph graph;
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f32, {4}}),
                  w = b.parameter("w", Tensor::from_f64(DType::f32, {4}, {1, 2, 3, 4}));
    const ValueId loss =
        b.op("ReduceSum", {b.op("Mul", {b.op("Exp", {x}), w})}, {{"keepdims", std::int64_t{0}}});
    graph.values[loss].name = "loss";
    graph.outputs = {loss};
    EXPECT_TRUE(add_loss(graph, "loss").ok());
    train = std::move(add_training(std::move(graph), TrainSpec{}).value());
    plan = std::move(make_plan(train.graph, {stack_all, "stack", true, kernels::Target::gpu}).value());
  }

  Status run(bool timed) const {
    auto device = TRY(open_device("cuda:0"));
    const auto executor = TRY(Executor::create(train.graph, plan, *device));
    StepOptions options;
    options.timed = timed;
    for (options.step = 1; options.step <= 4; ++options.step) {
      TRY(executor->submit(train.names, options, [&](std::int64_t) {
        return executor->feed(train.graph.inputs[0], Tensor(DType::f32, {4}));
      }));
      if (executor->pending() > executor->depth()) TRY(executor->collect());
    }
    while (executor->pending() > 0) TRY(executor->collect());
    return {};
  }
};

TEST(Plugin, AFailureOfAnyEntryIsOneErrorThatNamesTheDevice) {
  const Variable plugins("GRADLOOM_PLUGINS", fakes("good"));
  const Job job;
  ASSERT_TRUE(job.run(false).ok());
  ASSERT_TRUE(job.run(true).ok());
  int failures = 0;
  for (const char* entry :
       {"allocate", "copy", "compile", "run", "run_program", "mark", "record_event", "wait_event",
        "synchronize_event", "begin_capture", "end_capture", "run_graph", "set_trace", "read_trace"}) {
    for (const int status : {GPU_OUT_OF_MEMORY, GPU_LAUNCH_FAILED, GPU_DEVICE_LOST, GPU_FAILED}) {
      for (const int call : {1, 2, 3}) {
        const bool tracing = std::string(entry).find("trace") != std::string::npos;
        Status result;
        {
          const Variable fail("GRADLOOM_FAKE",
                              std::string(entry) + "@" + std::to_string(call) + "=" + std::to_string(status));
          result = job.run(tracing);
        }
        (void)open_device("cuda:0");  // a call without failures: counting starts again
        if (std::string(entry) == "set_trace" && status != GPU_DEVICE_LOST) {
          EXPECT_TRUE(result.ok()) << "events time its steps";
          continue;
        }
        if (result.ok()) {
          EXPECT_GT(call, 1) << entry;  // it was not called that often
          continue;
        }
        ++failures;
        EXPECT_EQ(result.error().code, Errc::device);
        EXPECT_NE(result.error().message.find("cuda:0: "), std::string::npos)
            << entry << ": " << result.error().message;
        EXPECT_NE(result.error().message.find(std::string("fake failure of ") + entry), std::string::npos)
            << result.error().message;
        EXPECT_EQ(result.error().message.find("device lost") != std::string::npos, status == GPU_DEVICE_LOST)
            << result.error().message;
      }
    }
  }
  EXPECT_GE(failures, 14 * 4 * 2);
}

// Through the C interface and back: what a session keeps is what the plugin gets.
TEST(Plugin, AlgorithmsGoInAndOut) {
  const Variable plugins("GRADLOOM_PLUGINS", fakes("good"));
  const Job job;
  auto device = open_device("cuda:0");
  ASSERT_TRUE(device.ok());
  auto executor = Executor::create(job.train.graph, job.plan, **device);
  ASSERT_TRUE(executor.ok());
  EXPECT_TRUE((*device)->algorithms()->empty());
  ASSERT_TRUE((*executor)->tune(4).ok());
  const auto found = (*device)->algorithms();
  ASSERT_TRUE(found.ok());
  ASSERT_FALSE(found->empty());
  for (const auto& [problem, algorithm] : *found) {
    EXPECT_EQ(problem.rfind("kernel ", 0), 0u);
    EXPECT_EQ(algorithm.bytes, "07");
    EXPECT_EQ(algorithm.time_ns, 5);
  }
  Algorithms known;
  for (const auto& [problem, algorithm] : *found) known[problem] = {"c0ffee", 12};
  known["of another library"] = {"01", 0};
  known["no hexadecimal"] = {"zz", 0};
  known["too long"] = {std::string(2 * (GPU_ALGORITHM_BYTES + 1), '0'), 0};
  known[std::string(4096, 'x')] = {"01", 0};
  ASSERT_TRUE((*device)->set_algorithms(known).ok());
  ASSERT_TRUE((*executor)->tune(4).ok());
  const auto confirmed = (*device)->algorithms();
  ASSERT_TRUE(confirmed.ok());
  EXPECT_EQ(confirmed->size(), found->size());
  for (const auto& [problem, algorithm] : *confirmed) EXPECT_EQ(algorithm.bytes, "c0ffee") << problem;
  for (const char* entry : {"tune", "set_algorithm", "algorithms"}) {
    const Variable fail("GRADLOOM_FAKE", std::string(entry) + "=" + std::to_string(GPU_LAUNCH_FAILED));
    const bool ok =
        (*executor)->tune(4).ok() && (*device)->set_algorithms(known).ok() && (*device)->algorithms().ok();
    EXPECT_FALSE(ok) << entry;
  }
}

TEST(Plugin, APlanThatDoesNotFitIsRefusedWithItsLargestTensors) {
  const Job job;
  const Status fits = check_fits(job.train.graph, job.plan, "cuda:0", job.plan.peak_bytes());
  EXPECT_TRUE(fits.ok());
  const Status refused = check_fits(job.train.graph, job.plan, "cuda:0", job.plan.peak_bytes() - 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::device);
  for (const char* part : {"the plan needs ", "largest at the peak: ", "would help: "})
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  Plan batches = job.plan;
  batches.input_bytes += std::int64_t{1} << 40;
  const Status large = check_fits(job.train.graph, batches, "cuda:0", job.plan.peak_bytes());
  EXPECT_NE(large.error().message.find("would help: a smaller batch"), std::string::npos)
      << large.error().message;
}

}  // namespace
}  // namespace gradloom
