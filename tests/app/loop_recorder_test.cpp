// Recorded loops of this test's own: steps, spans, plans and kernels of watched modules in the session.
#include "app/loop_recorder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "engine/base/text.h"
#include "tests/folder.h"
#include "tests/paths.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom {
namespace {

using test::error_of;

// An open module with zeros for all that a call needs.
class Net {
 public:
  Net() {
    module =
        std::move(ModelModule::open(GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx", {"--dim", "batch=4"}))
            .value();
    for (const ModuleKind kind :
         {ModuleKind::input, ModuleKind::output, ModuleKind::parameter, ModuleKind::statistic})
      for (const ModuleValue& v : module->values(kind)) {
        values_[static_cast<std::size_t>(kind)].push_back(memory(byte_size(v.type)));
        gradients_[static_cast<std::size_t>(kind)].push_back(memory(byte_size(v.type)));
      }
  }
  void forward(void* arena, bool no_grad = false) {
    const Status done = module->forward(call(arena, no_grad));
    EXPECT_TRUE(done.ok()) << error_of(done);
  }
  void backward(void* arena) {
    const Status done = module->backward(call(arena, false));
    EXPECT_TRUE(done.ok()) << error_of(done);
  }
  void* arena() { return memory(static_cast<std::size_t>(module->arena_bytes(false).value())); }
  std::unique_ptr<ModelModule> module;

 private:
  void* memory(std::size_t bytes) {
    held_.emplace_back(bytes + 128);
    const auto at = reinterpret_cast<std::uintptr_t>(held_.back().data());
    return held_.back().data() + (64 - at % 64) % 64;
  }
  ModuleCall call(void* arena, bool no_grad) {
    ModuleCall c;
    c.no_grad = no_grad;
    c.inputs = values_[0].data();
    c.outputs = values_[1].data();
    c.parameters = values_[2].data();
    c.statistics = values_[3].data();
    c.arena = arena;
    c.input_gradients = gradients_[0].data();
    c.output_gradients = gradients_[1].data();
    c.parameter_gradients = gradients_[2].data();
    return c;
  }
  std::vector<std::vector<unsigned char>> held_;
  std::vector<void*> values_[4], gradients_[4];
};

class LoopRecorderTest : public ::testing::Test {
 protected:
  std::shared_ptr<LoopRecorder> open(const std::vector<std::string>& words) {
    auto recorder = LoopRecorder::open(path_, words);
    EXPECT_TRUE(recorder.ok()) << error_of(recorder);
    return std::move(recorder).value();
  }
  RunRecord run() {
    auto store = Store::open(path_, StoreMode::read);
    EXPECT_TRUE(store.ok()) << error_of(store);
    auto record = (*store)->load_run(1);
    EXPECT_TRUE(record.ok()) << error_of(record);
    return std::move(record).value();
  }
  TraceDocument trace() { return std::move((*Store::open(path_, StoreMode::read))->load_trace(1)).value(); }
  TemporaryFolder folder_;
  std::string path_ = folder_ / "s.db";
};

TEST_F(LoopRecorderTest, StepsSpansAndKernelsAreThere) {
  Net net;
  void* const arena = net.arena();
  const auto recorder = open({"--profile", "all", "--name", "mine", "--steps", "5", "--command", "./a"});
  ASSERT_TRUE(recorder->watch(*net.module, "net").ok());
  for (int step = 1; step <= 5; ++step) {
    const std::int64_t begin = monotonic_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_TRUE(recorder->add_span("data", "set", begin, monotonic_ns()).ok());
    net.forward(arena);
    net.backward(arena);
    EXPECT_TRUE(recorder->end_step(monotonic_ns(), 0.5 * step, 0.25).ok());
  }
  EXPECT_TRUE(recorder->tell("optimizer", "mine").ok());
  ASSERT_TRUE(recorder->close("").ok());
  const RunRecord record = run();
  EXPECT_EQ(record.summary.status, "done");
  EXPECT_EQ(record.summary.name, "mine");
  EXPECT_EQ(record.summary.command, "./a");
  EXPECT_EQ(record.summary.planned_steps, 5);
  EXPECT_EQ(record.environment.at("loop.optimizer"), "mine");
  ASSERT_EQ(record.steps.size(), 5u);
  EXPECT_DOUBLE_EQ(record.steps[3].loss, 2);
  EXPECT_DOUBLE_EQ(record.steps[3].lr, 0.25);
  ASSERT_TRUE(record.loop.has_value());
  EXPECT_GT(record.loop->ns_of("data"), 2e6);
  EXPECT_GT(record.loop->kernel_ns, 0);
  EXPECT_LE(record.loop->kernel_ns, record.loop->ns_of("engine"));
  for (const KernelRow& kernel : record.kernels) {
    EXPECT_EQ(kernel.samples, 2) << "of steps 4 and 5: " << kernel.info.node;
    EXPECT_EQ(kernel.info.node.rfind("net/", 0), 0u) << kernel.info.node;
  }
  const TraceDocument document = trace();
  EXPECT_EQ(document.rows.size(), 5 * record.kernels.size());
  for (const TraceRow& row : document.rows) {
    bool inside = false;
    for (const HostSpan& s : document.host)
      inside = inside || (s.kind == "engine" && s.step == row.step && row.start_ns >= s.start_ns &&
                          row.start_ns + row.duration_ns <= s.start_ns + s.duration_ns);
    EXPECT_TRUE(inside);
  }
}

TEST_F(LoopRecorderTest, ForwardsThatWaitKeepTheirNumbers) {
  Net net;
  void *const first = net.arena(), *const second = net.arena();
  const auto recorder = open({"--profile", "all"});
  ASSERT_TRUE(recorder->watch(*net.module, "net").ok());
  net.forward(first);
  net.forward(second);
  net.backward(first);
  net.backward(second);
  EXPECT_TRUE(recorder->end_step(monotonic_ns(), NAN, NAN).ok());
  ASSERT_TRUE(recorder->close("").ok());
  const TraceDocument document = trace();
  std::vector<int> forward, backward;
  for (const TraceRow& row : document.rows) {
    std::vector<int>& of =
        document.kernels[static_cast<std::size_t>(row.plan_step)].phase == "backward" ? backward : forward;
    if (of.empty() || of.back() != row.micro) of.push_back(row.micro);
  }
  EXPECT_EQ(forward, (std::vector<int>{0, 1}));
  EXPECT_EQ(backward, (std::vector<int>{0, 1}));
  EXPECT_TRUE(std::isnan(run().steps[0].loss));
}

TEST_F(LoopRecorderTest, PlansAndModulesHaveNamesOfTheirOwn) {
  Net one, two;
  void* const arena = one.arena();
  const auto recorder = open({});
  for (const Net* net : {&one, &two}) ASSERT_TRUE(recorder->watch(*net->module, "net").ok());
  one.forward(arena);
  two.forward(two.arena());
  one.forward(arena, true);
  EXPECT_TRUE(recorder->end_step(monotonic_ns(), 1, 1).ok());
  ASSERT_TRUE(recorder->close("").ok());
  std::vector<std::string> modules;
  for (const KernelRow& kernel : run().kernels) {
    const std::string module = kernel.info.node.substr(0, kernel.info.node.find('/'));
    if (modules.empty() || modules.back() != module) modules.push_back(module);
  }
  EXPECT_EQ(modules, (std::vector<std::string>{"net", "net#2", "net#3"}));
}

TEST_F(LoopRecorderTest, WhatBelongsToNoStepIsNotKept) {
  Net net;
  void* const arena = net.arena();
  const auto recorder = open({"--profile", "all"});
  ASSERT_TRUE(recorder->watch(*net.module, "net").ok());
  net.forward(arena);  // before the first step
  const std::int64_t begin = monotonic_ns();
  EXPECT_TRUE(recorder->begin_step(begin).ok());
  const std::int64_t end = monotonic_ns();
  EXPECT_TRUE(recorder->end_step(end, 1, 1).ok());
  std::thread([&] {  // another thread's
    net.forward(arena);
    EXPECT_TRUE(recorder->add_span("data", "", end, monotonic_ns()).ok());
  })
      .join();
  EXPECT_TRUE(recorder->end_step(monotonic_ns(), 1, 1).ok());
  net.forward(arena);  // a step that has not ended
  ASSERT_TRUE(recorder->close("it broke").ok());
  net.forward(arena);  // the module goes on
  const RunRecord record = run();
  EXPECT_EQ(record.summary.status, "failed");
  EXPECT_EQ(record.summary.message, "it broke");
  ASSERT_EQ(record.steps.size(), 2u);
  EXPECT_EQ(record.steps[0].step_ns, end - begin);
  for (const LoopPart& part : record.loop->parts)
    EXPECT_TRUE(part.kind == "step" || part.kind == "record") << part.kind;
}

}  // namespace
}  // namespace gradloom
