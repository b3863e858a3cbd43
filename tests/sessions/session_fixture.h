// A temporary folder and a small hand-made training step, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/ir/op.h"
#include "sessions/store.h"
#include "tests/folder.h"

namespace gradloom::test {

class SessionTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_ / name; }
  TemporaryFolder folder_;
};

struct TinyStep {
  Graph graph;
  Plan plan;
  std::vector<PassReport> reports;
};

inline PassReport tiny_report(bool fused, std::size_t nodes_after) {
  PassReport report;
  report.name = "fuse-bias-activation";
  report.at = PassPhase::post_gradient;
  report.matched = fused ? 1 : 0;
  report.rejected = fused ? 2 : 3;
  report.nodes_before = 5;
  report.nodes_after = nodes_after;
  report.log.push_back({"matmul-relu",
                        "fc",
                        fused,
                        fused ? "one pass over memory" : "switched off",
                        {"fc", "act"},
                        {"fc+act"},
                        {},
                        {0, 1},
                        "@0123456789ab"});
  report.log.push_back({"matmul-relu", "act", false, "no product before it", {}, {}, {}, {1}});
  report.log.push_back({"matmul-relu", "out", false, "switched off", {}, {}, {}, {2}, "@0123456789ab.2"});
  return report;
}

// Two ONNX nodes (matmul, relu); forward fused into one kernel or not; backward of each; one optimizer node.
inline TinyStep tiny_step(bool fused) {
  static const OpDef matmul{.name = "MatMul"}, relu{.name = "Relu"}, both{.name = "FusedMatMul"},
      sgd{.name = "Optimizer"};
  TinyStep t;
  t.graph.name = "tiny";
  t.graph.sources = {{"/fc/MatMul", "MatMul", "", "fc"}, {"/act/Relu", "Relu", "", "act"}};
  const auto node = [&](const OpDef& op, const char* name, std::vector<std::uint32_t> sources, Phase phase,
                        const char* pass) {
    Value value;
    value.name = std::string(name) + ":0";
    value.type = {DType::f32, {4, 8}};
    value.has_type = true;
    value.producer = static_cast<NodeId>(t.graph.nodes.size());
    Node n;
    n.op = &op;
    n.name = name;
    n.outputs = {static_cast<ValueId>(t.graph.values.size())};
    n.origin = {std::move(sources), phase};
    if (*pass != '\0') {
      n.origin.passes = {static_cast<std::uint32_t>(t.graph.passes.size())};
      t.graph.passes.emplace_back(pass);
    }
    t.graph.values.push_back(value);
    t.graph.nodes.push_back(n);
  };
  if (fused) {
    node(both, "fc+act", {0, 1}, Phase::forward, "fuse-bias-activation");
  } else {
    node(matmul, "fc", {0}, Phase::forward, "");
    node(relu, "act", {1}, Phase::forward, "");
  }
  node(relu, "act/grad", {1}, Phase::backward, "");
  node(matmul, "fc/grad", {0}, Phase::backward, "");
  node(sgd, "update", {}, Phase::optimizer, "");
  const auto count = static_cast<std::int32_t>(t.graph.nodes.size());
  for (std::int32_t i = 0; i < count; ++i) {
    PlanStep step;
    step.node = static_cast<NodeId>(i);
    step.kernel = t.graph.nodes[static_cast<std::size_t>(i)].op->name;
    step.flops = 64;
    step.bytes_read = 256;
    step.bytes_written = 128;
    t.plan.steps.push_back(step);
    t.plan.buffers.push_back({Place::arena, i * 128, 128, i, std::min(i + 1, count - 1)});
    t.plan.buffer_of.push_back(i);
  }
  t.plan.arena_bytes = count * 128;
  t.plan.lower_bound_bytes = 256;
  t.plan.planner = "best-fit";
  t.plan.hash = fused ? "plan-fused" : "plan-plain";
  t.reports.push_back(tiny_report(fused, static_cast<std::size_t>(count)));
  return t;
}

inline RunStart tiny_start(const std::string& name = "tiny") {
  RunStart start;
  start.name = name;
  start.model = "model.onnx";
  start.model_hash = "00112233445566778899aabbccddeeff";
  start.device = "cpu";
  start.precision = "f32";
  start.optimizer = "sgd{lr=0.1}";
  start.loss = "loss";
  start.data = "synthetic";
  start.command = "gradloom train model.onnx";
  start.passes = "none";
  start.planner = "best-fit";
  start.recipe_json = "{}";
  start.seed = 0xfedcba9876543210u;
  start.planned_steps = 10;
  start.graph_hash = "g";
  start.plan_hash = "p";
  start.environment = {{"cpu_model", "test"}, {"threads", "2"}};
  return start;
}

// The samples of one step, `duration_ns` each.
inline std::vector<KernelSample> tiny_samples(const TinyStep& t, std::int64_t step,
                                              std::int64_t duration_ns = 1000) {
  std::vector<KernelSample> samples;
  for (std::size_t i = 0; i < t.plan.steps.size(); ++i) {
    const std::int64_t start = step * 1'000'000 + static_cast<std::int64_t>(i) * 2 * duration_ns;
    samples.push_back({static_cast<std::int32_t>(i), 0, start, duration_ns + static_cast<std::int64_t>(i)});
  }
  return samples;
}

// What a GPU does beside its kernels in one step: a batch goes up, one launch of everything,
// one of the last plan step.
inline std::vector<Activity> tiny_activities(const TinyStep& t, std::int64_t step) {
  const std::int64_t start = step * 1'000'000;
  const auto last = static_cast<std::int32_t>(t.plan.steps.size()) - 1;
  using Kind = Activity::Kind;
  return {{Kind::api, 0, 0, start - 3000, start - 2500, 0, "launch of the recorded step", 0},
          {Kind::api, last, 0, start - 2000, start - 1900, 0, "launch", 0},
          {Kind::copy, -1, 1, start - 5000, start - 3500, 4096, "copy", 0},
          {Kind::copy, -1, 0, start - 1000, start - 600, 4096, "copy", 0}};
}

// Writes a finished run of `steps` steps, every third one timed; the run's id.
// `gpu`: its rows and what its driver told.
inline std::int64_t write_tiny_run(Store& store, const std::string& name, std::int64_t steps,
                                   bool fused = false, const std::map<std::string, std::string>& gpu = {}) {
  const TinyStep t = tiny_step(fused);
  RunStart start = tiny_start(name);
  if (!gpu.empty()) start.device = "cuda:0";
  auto run = store.begin_run(start);
  EXPECT_TRUE(run.ok()) << (run.ok() ? "" : run.error().message);
  EXPECT_TRUE((*run)->write_plan(t.graph, t.plan, t.reports).ok());
  for (std::int64_t i = 1; i <= steps; ++i) {
    StepRow row{i, 5.0 / static_cast<double>(i), 10'000 + i, 0.1, 1.5, i % 3 == 2};
    const auto activities = row.timed && !gpu.empty() ? tiny_activities(t, i) : std::vector<Activity>{};
    EXPECT_TRUE(
        (*run)->add_step(row, row.timed ? tiny_samples(t, i) : std::vector<KernelSample>{}, activities).ok());
  }
  RunFinish finish;
  finish.measured_peak_bytes = 4096;
  finish.overhead = 0.01;
  finish.overhead_low = 0.005;
  finish.overhead_high = 0.02;
  finish.environment = gpu;
  finish.environment["load_after"] = "0.5";
  EXPECT_TRUE((*run)->finish(finish).ok());
  return (*run)->id();
}

// A recorded loop with two plans, steps of 1 ms: data 100 us, the engine 400 us of the package's 450, an optimizer 200 us; kernels of
// 300 us in every third step where `timed`.
inline std::int64_t write_tiny_loop(const std::string& path, std::int64_t steps, bool timed) {
  auto store = Store::open(path, StoreMode::write);
  EXPECT_TRUE(store.ok());
  RunStart start;
  start.device = "cpu";
  start.data = kLoopData;
  start.command = "python3 train.py";
  auto run = std::move((*store)->begin_run(start)).value();
  const TinyStep one = tiny_step(true), two = tiny_step(false);
  EXPECT_TRUE(run->write_plan(one.graph, one.plan, one.reports, "net").ok());
  EXPECT_TRUE(run->write_plan(two.graph, two.plan, two.reports, "net#2").ok());
  const auto first_of_two = static_cast<std::int32_t>(one.plan.steps.size());
  for (std::int64_t step = 1; step <= steps; ++step) {
    const std::int64_t at = step * 1'000'000;
    run->add_host_spans(nested_spans({{"data", "set", at, 100'000},
                                      {"gradloom", "net", at + 200'000, 450'000},
                                      {"engine", "net forward", at + 210'000, 400'000},
                                      {"optimizer", "SGD", at + 700'000, 200'000}},
                                     step, at, at + 1'000'000));
    std::vector<KernelSample> samples;
    const bool kernels = timed && step % 3 == 2;
    if (kernels) samples = {{0, 0, at + 220'000, 100'000}, {first_of_two, 0, at + 350'000, 200'000}};
    EXPECT_TRUE(run->add_step({step, 1.0, 1'000'000, 0.1, -1, kernels}, samples).ok());
  }
  EXPECT_TRUE(run->finish({}).ok());
  return run->id();
}

inline std::string error_of(const Status& status) { return status.ok() ? "" : status.error().message; }
template <class T>
std::string error_of(const Result<T>& result) {
  return result.ok() ? "" : result.error().message;
}

inline std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
inline void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace gradloom::test
