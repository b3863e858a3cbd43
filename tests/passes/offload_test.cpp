#include "passes/offload.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/ops/transfers.h"
#include "engine/plan/streams.h"
#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

// Layers of a product and two activations, which the backward pass reads: 16 KiB each. With `reshape` it reads them through
// a view.
Graph network(int layers, bool reshape = false) {
  return test::layered_network(layers, [&](GraphBuilder& b, ValueId product, int) {
    ValueId x = b.op("Sigmoid", {product});
    if (reshape) x = b.op("Reshape", {b.op("Reshape", {x, b.i64s({16, 256})}), b.i64s({256, 16})});
    return b.op("Tanh", {x});
  });
}

CompileOptions training(std::vector<std::string> offload = {}, std::int64_t budget = 0) {
  CompileOptions options;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer("sgd{lr=0.1}");
  options.target = kernels::Target::gpu;
  options.memory_budget_bytes = budget;
  options.offload = std::move(offload);
  // Kernels as long as a copy of 16 KiB is, on a link that is fast for them.
  options.kernel_ns = [](const Graph&, const Plan& plan) {
    return std::vector<double>(plan.steps.size(), 50'000.0);
  };
  return options;
}

std::size_t count(const Plan& plan, std::int32_t stream) {
  return static_cast<std::size_t>(std::count_if(plan.steps.begin(), plan.steps.end(),
                                                [&](const PlanStep& s) { return s.stream == stream; }));
}

void expect_valid(const Compiled& compiled) {
  const Status valid = check_plan(compiled.train.graph, compiled.plan);
  EXPECT_TRUE(valid.ok()) << valid.error().message;
}

const PassReport* report_of(const std::vector<PassReport>& reports, const std::string& name) {
  const auto at = std::find_if(reports.begin(), reports.end(), [&](const auto& r) { return r.name == name; });
  return at == reports.end() ? nullptr : &*at;
}

TEST(Offload, WhatIsNamedLeavesAndThePlanIsSmaller) {
  const auto whole = compile(network(12), training());
  const auto compiled = compile(network(12), training({"Sigmoid", "Tanh"}));
  ASSERT_OK(whole);
  ASSERT_OK(compiled);
  const Plan& plan = compiled->plan;
  expect_valid(*compiled);
  EXPECT_GE(count(plan, kDownloadStream), 20u);
  EXPECT_EQ(count(plan, kDownloadStream), count(plan, kUploadStream));
  EXPECT_LT(plan.arena_bytes, whole->plan.arena_bytes / 2);
  EXPECT_GE(plan.host_bytes, 20 * 16384);
  const StepTimes times = predict_times(compiled->train.graph, plan, step_speeds(training()));
  EXPECT_EQ(times.exposed_ns, 0) << "kernels of 50 us hide copies of 11 us";
}

TEST(Offload, TheLogTellsBytesAndTheWaitAndWhyOthersStay) {
  const auto compiled = compile(network(4), training({"*"}));
  ASSERT_OK(compiled);
  const PassReport* report = report_of(compiled->reports, "offload");
  ASSERT_NE(report, nullptr);
  EXPECT_GT(report->matched, 0);
  bool told = false;
  for (const RewriteRecord& record : report->log)
    if (record.matched && record.site == "Sigmoid")
      told = told || record.why == "16.0 KiB, predicted to be back in time";
  EXPECT_TRUE(told);
  EXPECT_NE(test::why_nots(*report).find("nothing after the loss reads it"), std::string::npos)
      << test::why_nots(*report);

  CompileOptions slow = training({"Sigmoid"});
  slow.link_bytes_per_ns = 1e-3;
  const auto late = compile(network(4), slow);
  ASSERT_OK(late);
  const PassReport* waits = report_of(late->reports, "offload");
  ASSERT_NE(waits, nullptr);
  EXPECT_TRUE(std::any_of(waits->log.begin(), waits->log.end(), [](const RewriteRecord& record) {
    return record.why.find("readers are predicted to wait") != std::string::npos;
  }));
  EXPECT_GT(predict_times(late->train.graph, late->plan, step_speeds(slow)).exposed_ns, 1e6);
}

// Bytes of the graph's forward nodes leave in the forward pass and come back in the backward pass.
TEST(Offload, CopiesAreOfThePhasesThatTheyRunIn) {
  const auto compiled = compile(network(4), training({"Sigmoid"}));
  ASSERT_OK(compiled);
  for (const Node& node : compiled->train.graph.nodes) {
    if (!node.alive()) continue;
    EXPECT_TRUE(!copies_to_host(*node.op) || node.origin.phase == Phase::forward);
    EXPECT_TRUE(!copies_from_host(*node.op) || node.origin.phase == Phase::backward);
  }
}

TEST(Offload, ReadersThroughViewsReadWhatCameBack) {
  const auto compiled = compile(network(6, true), training({"Sigmoid"}));
  ASSERT_OK(compiled);
  expect_valid(*compiled);
  EXPECT_EQ(count(compiled->plan, kDownloadStream), 6u);
  const auto whole = compile(network(6, true), training());
  ASSERT_OK(whole);
  EXPECT_LT(compiled->plan.arena_bytes, whole->plan.arena_bytes);
}

TEST(Offload, ViewsOutputsAndWhatNothingReadsStay) {
  Graph graph = network(4, true);
  graph.outputs.push_back(graph.nodes[1].outputs[0]);  // the first Sigmoid
  ASSERT_EQ(std::string(graph.nodes[1].op->name), "Sigmoid");
  CompileOptions options = training({"Sigmoid", "Reshape"});
  options.gradients_only = true;  // training keeps no outputs but the loss
  options.loss_for_gradients = "loss";
  const auto compiled = compile(graph, options);
  ASSERT_OK(compiled);
  const PassReport* report = report_of(compiled->reports, "offload");
  ASSERT_NE(report, nullptr);
  EXPECT_EQ(report->matched, 3);
  const std::string why = test::why_nots(*report);
  EXPECT_NE(why.find("it is kept to the end of the step"), std::string::npos) << why;
  EXPECT_NE(why.find("it is a view"), std::string::npos) << why;
}

TEST(Offload, ParametersAndInputsAreNoForwardNodes) {
  const auto compiled = compile(network(2), training({"Square"}));
  ASSERT_OK(compiled);
  EXPECT_EQ(count(compiled->plan, kDownloadStream), 0u);
  EXPECT_EQ(compiled->notes.size(), 1u);
}

TEST(Offload, ANameThatFitsNothingIsAnErrorWithTheNearest) {
  const auto compiled = compile(network(2), training({"Sigmoidd"}));
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, Errc::usage);
  EXPECT_NE(compiled.error().message.find("--offload"), std::string::npos);
  EXPECT_NE(compiled.error().message.find("Sigmoid"), std::string::npos) << compiled.error().message;
}

TEST(Offload, TheCpuHasNothingToLeave) {
  CompileOptions options = training({"Sigmoid"});
  options.target = kernels::Target::cpu;
  const auto compiled = compile(network(2), options);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, Errc::usage);
  EXPECT_NE(compiled.error().message.find("the CPU's memory is the host's"), std::string::npos);
}

TEST(Offload, ModulesRefuseIt) {
  CompileOptions options = training({"Sigmoid"});
  const auto compiled = compile_module(network(2), options, {});
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, Errc::usage);
  EXPECT_NE(compiled.error().message.find("offload: a module's"), std::string::npos);
}

TEST(Offload, ABudgetIsMetWithoutComputingAgainWhereTheLinkIsFast) {
  const auto whole = compile(network(12), training());
  ASSERT_OK(whole);
  const std::int64_t budget = whole->plan.peak_bytes() - whole->plan.arena_bytes / 3;
  const auto compiled = compile(network(12), training({"auto"}, budget));
  ASSERT_OK(compiled);
  EXPECT_LE(compiled->plan.peak_bytes(), budget);
  expect_valid(*compiled);
  EXPECT_GT(count(compiled->plan, kDownloadStream), 0u);
  EXPECT_EQ(report_of(compiled->reports, "recompute"), nullptr) << "kernels of 50 us again cost more";
  const PassReport* report = report_of(compiled->reports, "offload");
  ASSERT_NE(report, nullptr);
  EXPECT_NE(test::why_nots(*report).find("the budget is kept without it"), std::string::npos);
}

TEST(Offload, ABudgetIsMetByRecomputeWhereTheLinkIsSlow) {
  const auto whole = compile(network(12), training());
  ASSERT_OK(whole);
  const std::int64_t budget = whole->plan.peak_bytes() - whole->plan.arena_bytes / 3;
  CompileOptions options = training({"auto"}, budget);
  options.link_bytes_per_ns = 1e-4;
  const auto compiled = compile(network(12), options);
  ASSERT_OK(compiled);
  EXPECT_LE(compiled->plan.peak_bytes(), budget);
  EXPECT_EQ(count(compiled->plan, kDownloadStream), 0u);
  EXPECT_NE(report_of(compiled->reports, "recompute"), nullptr);
}

// The price is time, and the budget is kept.
TEST(Offload, KernelsWaitForCopiesWhereElseNothingFits) {
  const auto whole = compile(network(12), training());
  ASSERT_OK(whole);
  CompileOptions options = training({"Sigmoid", "Tanh"});
  options.link_bytes_per_ns = 0.05;  // 328 us for 16 KiB, between kernels of 50 us
  const auto named = compile(network(12), options);
  ASSERT_OK(named);
  expect_valid(*named);
  EXPECT_LT(named->plan.arena_bytes, whole->plan.arena_bytes / 2);
  EXPECT_GT(predict_times(named->train.graph, named->plan, step_speeds(options)).exposed_ns, 1e6);
}

TEST(Offload, NothingLeavesWhereTheBudgetIsKeptOrTheWordIsMissing) {
  const auto whole = compile(network(12), training());
  ASSERT_OK(whole);
  const auto roomy = compile(network(12), training({"auto"}, whole->plan.peak_bytes()));
  ASSERT_OK(roomy);
  EXPECT_EQ(roomy->plan.hash, whole->plan.hash);
  const auto without = compile(network(12), training({}, whole->plan.peak_bytes() * 3 / 4));
  ASSERT_OK(without);
  EXPECT_EQ(without->plan.host_bytes, 0);
  const auto no_budget = compile(network(12), training({"auto"}));
  ASSERT_OK(no_budget);
  EXPECT_EQ(no_budget->plan.hash, whole->plan.hash);
}

TEST(Offload, ABudgetThatCannotBeMetSaysWhatCan) {
  const auto compiled = compile(network(12), training({"auto"}, 1024));
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, Errc::device);
  EXPECT_NE(compiled.error().message.find("with recompute and offload at least"), std::string::npos)
      << compiled.error().message;
}

TEST(Offload, WhatIsNamedGoesTogetherWithRecompute) {
  CompileOptions options = training({"Sigmoid"});
  options.recompute = {"Tanh"};
  const auto compiled = compile(network(8), options);
  ASSERT_OK(compiled);
  expect_valid(*compiled);
  EXPECT_GT(count(compiled->plan, kDownloadStream), 0u);
  EXPECT_NE(report_of(compiled->reports, "recompute"), nullptr);
  options.memory_budget_bytes = compiled->plan.peak_bytes() - compiled->plan.arena_bytes / 8;
  const auto fitted = compile(network(8), options);
  if (fitted) {
    EXPECT_LE(fitted->plan.peak_bytes(), options.memory_budget_bytes);
    expect_valid(*fitted);
  }
}

// Without any one wait a plan is wrong, or its waits are more than it needs.
TEST(Offload, EveryWaitOfThePlanIsNeeded) {
  const auto compiled = compile(network(12), training({"Sigmoid", "Tanh"}));
  ASSERT_OK(compiled);
  std::size_t waits = 0, found = 0;
  for (std::size_t i = 0; i < compiled->plan.steps.size(); ++i)
    for (std::size_t w = 0; w < compiled->plan.steps[i].waits.size(); ++w) {
      Plan plan = compiled->plan;
      plan.steps[i].waits.erase(plan.steps[i].waits.begin() + static_cast<std::ptrdiff_t>(w));
      ++waits;
      const bool wrong = !check_plan(compiled->train.graph, plan).ok();
      found += wrong ? 1 : 0;
      // A copy back whose target nothing had before it waits in vain.
      EXPECT_TRUE(wrong || plan.steps[i].stream == kUploadStream) << "step " << i;
    }
  EXPECT_GE(waits, 60u);
  EXPECT_GE(found, waits * 9 / 10);
}

}  // namespace
}  // namespace gradloom
