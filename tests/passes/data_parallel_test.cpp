#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/plan/streams.h"
#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::why_nots;

Compiled trained(const char* passes, std::int64_t ranks = 2, std::int64_t accumulate = 1,
                 kernels::Target target = kernels::Target::cpu) {
  CompileOptions options;
  options.target = target;
  if (target == kernels::Target::gpu) options.train.clip_norm = 1;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer("adamw");
  options.train.ranks = ranks;
  options.train.accumulate = accumulate;
  options.pipeline = *parse_pipeline(passes);
  auto compiled = compile(test::four_layers(), options);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  const Status valid = check_plan(compiled->train.graph, compiled->plan);
  EXPECT_TRUE(valid.ok()) << valid.error().message;
  return std::move(compiled).value();
}

// The places in the plan of nodes of an operator.
std::vector<std::size_t> steps_of(const Compiled& c, const OpDef& op) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < c.plan.steps.size(); ++i)
    if (c.train.graph.nodes[c.plan.steps[i].node].op == &op) places.push_back(i);
  return places;
}

TEST(DataParallel, WithoutItEveryGradientIsExchangedByItself) {
  const Compiled c = trained("none");
  EXPECT_EQ(steps_of(c, all_reduce_op()).size(), 5u) << "four gradients and the loss";
  EXPECT_TRUE(steps_of(c, all_reduce_begin_op()).empty());
}

TEST(DataParallel, OneRankExchangesNothing) {
  const Compiled alone = trained("default", 1), without = trained("default,-data-parallel", 1);
  EXPECT_EQ(alone.plan.hash, without.plan.hash);
  EXPECT_TRUE(steps_of(alone, all_reduce_op()).empty());
}

// A piece for each gradient: each begins before the next gradient is made, and is waited for after the next has begun.
TEST(DataParallel, ExchangesBeginWhileTheBackwardPassGoesOn) {
  const Compiled c = trained("default,data-parallel{bucket_mb=0}");
  const auto begins = steps_of(c, all_reduce_begin_op()), waits = steps_of(c, all_reduce_wait_op());
  ASSERT_EQ(begins.size(), 5u);
  ASSERT_EQ(waits.size(), 5u);
  const auto works_between = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i)
      if (c.train.graph.nodes[c.plan.steps[i].node].origin.phase == Phase::backward) return true;
    return false;
  };
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    EXPECT_GT(waits[i], begins[i + 1]);
    EXPECT_TRUE(works_between(begins[i], begins[i + 1]));
  }
  const auto report = std::find_if(c.reports.begin(), c.reports.end(),
                                   [](const PassReport& r) { return r.name == "memory-order"; });
  ASSERT_NE(report, c.reports.end());
  EXPECT_NE(why_nots(*report).find("the order is theirs"), std::string::npos);
}

// On a GPU what is begun runs beside the kernels, and each side waits for the other.
TEST(DataParallel, OnGpusExchangesRunOneAfterAnotherOnAStreamOfTheirOwn) {
  for (const char* passes : {"default,data-parallel{bucket_mb=0}", "default,zero,data-parallel{bucket_mb=0}",
                             "default,zero{stage=2},data-parallel{bucket_mb=0}", "none"})
    for (const std::int64_t accumulate : {1, 4}) {
      SCOPED_TRACE(passes);
      const Compiled c = trained(passes, 2, accumulate, kernels::Target::gpu);
      const std::string name = passes;
      const OpDef& begin =
          name.find("stage=2") != std::string::npos ? reduce_gradients_op() : all_reduce_begin_op();
      const std::vector<std::size_t> begins = steps_of(c, begin);
      EXPECT_EQ(begins.empty(), name == "none");
      for (std::size_t i = 0; i < c.plan.steps.size(); ++i) {
        const PlanStep& step = c.plan.steps[i];
        const bool begun = c.train.graph.nodes[step.node].op->begins_exchange();
        EXPECT_EQ(step.stream, begun ? kExchangeStream : kComputeStream) << "step " << i;
        EXPECT_TRUE(begun || step.waits.empty() ||
                    c.plan.steps[static_cast<std::size_t>(step.waits[0])].stream == kExchangeStream);
      }
      const auto valid_without_waits_of = [&](std::int32_t stream) {
        Plan plan = c.plan;
        for (PlanStep& step : plan.steps)
          if (step.stream == stream) step.waits.clear();
        return check_plan(c.train.graph, plan).ok();
      };
      EXPECT_EQ(valid_without_waits_of(kComputeStream), begins.empty());
      // What was accumulated is there when the steps begin that run once.
      EXPECT_EQ(valid_without_waits_of(kExchangeStream), begins.empty() || accumulate > 1);
    }
}

TEST(DataParallel, OnlyWhatBeginsAnExchangeMayRunOnTheirStream) {
  const Compiled c = trained("default,data-parallel{bucket_mb=0}", 2, 1, kernels::Target::gpu);
  const std::vector<std::size_t> waits = steps_of(c, all_reduce_wait_op());
  ASSERT_FALSE(waits.empty());
  Plan plan = c.plan;
  plan.steps[waits.back()].stream = kExchangeStream;
  const Status checked = check_plan(c.train.graph, plan);
  ASSERT_FALSE(checked.ok());
  EXPECT_NE(checked.error().message.find("stream"), std::string::npos) << checked.error().message;
}

TEST(DataParallel, PiecesAreAsLargeAsAsked) {
  const Compiled whole = trained("default,data-parallel{bucket_mb=1000}");
  EXPECT_EQ(steps_of(whole, all_reduce_begin_op()).size(), 1u);
  const Compiled apart = trained("default,data-parallel{bucket_mb=1000,overlap=false}");
  EXPECT_TRUE(steps_of(apart, all_reduce_begin_op()).empty());
  EXPECT_EQ(steps_of(apart, all_reduce_op()).size(), 1u);
}

// Whether an earlier wait of its stream makes that of step `i` for `waited` needless, or the next one makes up for it before anything touches what
// was exchanged.
bool made_up_for(const Compiled& c, std::size_t i, std::int32_t waited) {
  const Graph& graph = c.train.graph;
  const auto node = [&](std::size_t step) -> const Node& { return graph.nodes[c.plan.steps[step].node]; };
  for (std::size_t step = 0; step < i; ++step)
    for (const std::int32_t other : c.plan.steps[step].waits)
      if (other >= waited && c.plan.steps[step].stream == c.plan.steps[i].stream) return true;
  if (node(i).op->exchange != RankExchange::wait) return false;
  std::vector<std::int32_t> buffers;
  for (const auto* values :
       {&node(static_cast<std::size_t>(waited)).inputs, &node(static_cast<std::size_t>(waited)).outputs})
    for (const ValueId value : *values) buffers.push_back(c.plan.buffer_of[value]);
  for (std::size_t step = i; step < c.plan.steps.size(); ++step) {
    for (const std::int32_t other : c.plan.steps[step].waits)
      if (step > i && other > waited && c.plan.steps[step].stream == kComputeStream) return true;
    if (c.plan.steps[step].stream != kComputeStream || node(step).op->exchange == RankExchange::wait)
      continue;
    for (const auto* values : {&node(step).inputs, &node(step).outputs})
      for (const ValueId value : *values)
        if (value != kNone && std::count(buffers.begin(), buffers.end(), c.plan.buffer_of[value]) > 0)
          return false;
  }
  return false;
}

// Each wait taken away, and each result of a kernel laid over what an exchange reads, writes or works in.
TEST(DataParallel, RacesWithExchangesAreFound) {
  std::size_t waits = 0, overlays = 0;
  for (const char* passes :
       {"default,data-parallel{bucket_mb=0}", "default,data-parallel{bucket_mb=0,dtype=bf16}",
        "default,zero,data-parallel{bucket_mb=0}", "default,zero{stage=2},data-parallel{bucket_mb=0}"}) {
    SCOPED_TRACE(passes);
    const Compiled c = trained(passes, 2, 1, kernels::Target::gpu);
    const Graph& graph = c.train.graph;
    const auto expect_found = [&](const Plan& plan, const std::string& what) {
      EXPECT_FALSE(check_plan(graph, plan).ok()) << what;
    };
    std::size_t last_begun = 0;
    for (std::size_t i = 0; i < c.plan.steps.size(); ++i) {
      const PlanStep& step = c.plan.steps[i];
      if (step.stream == kExchangeStream) last_begun = i;
      for (std::size_t k = 0; k < step.waits.size(); ++k) {
        if (step.stream == kComputeStream && made_up_for(c, i, step.waits[k])) continue;
        ++waits;
        Plan plan = c.plan;
        plan.steps[i].waits.erase(plan.steps[i].waits.begin() + static_cast<std::ptrdiff_t>(k));
        expect_found(plan,
                     "step " + std::to_string(i) + " without its wait for " + std::to_string(step.waits[k]));
      }
      // A kernel that runs beside the last exchange that was begun.
      const bool beside = step.stream == kComputeStream && step.waits.empty() && last_begun > 0 &&
                          graph.nodes[step.node].op->exchange == RankExchange::none;
      const ValueId made = beside ? graph.nodes[step.node].outputs[0] : kNone;
      const std::int32_t buffer = made == kNone ? -1 : c.plan.buffer_of[made];
      if (buffer < 0 || c.plan.buffers[static_cast<std::size_t>(buffer)].place != Place::arena) continue;
      const Node& begin = graph.nodes[c.plan.steps[last_begun].node];
      for (const std::vector<ValueId>* const values : {&begin.inputs, &begin.outputs})
        for (const ValueId value : *values) {
          const std::int32_t other = c.plan.buffer_of[value];
          if (other < 0 || other == buffer) continue;
          const Buffer& there = c.plan.buffers[static_cast<std::size_t>(other)];
          if (there.place != Place::arena || there.last_step < static_cast<std::int32_t>(i)) continue;
          Plan plan = c.plan;
          plan.buffers[static_cast<std::size_t>(buffer)].offset = there.offset;
          expect_found(plan, "step " + std::to_string(i) + " over '" + graph.values[value].name + "'");
          ++overlays;
        }
    }
  }
  EXPECT_GE(waits, 20u);
  EXPECT_GE(overlays, 20u);
}

// Gradients alone are rounded, once, before they go, and are of their type again where they are read.
TEST(DataParallel, GradientsAreExchangedInBf16) {
  for (const std::string more : {"", ",zero", ",zero{stage=2}"})
    for (const std::string how : {"bucket_mb=0", "bucket_mb=1000", "overlap=false"})
      for (const std::int64_t accumulate : {1, 4}) {
        SCOPED_TRACE(more + " " + how + " " + std::to_string(accumulate));
        const Compiled full =
                           trained(("default" + more + ",data-parallel{" + how + "}").c_str(), 2, accumulate),
                       half = trained(("default" + more + ",data-parallel{dtype=bf16," + how + "}").c_str(),
                                      2, accumulate);
        const auto exchanged = [&](const Compiled& c, DType type) {
          std::size_t bytes = 0;
          const Graph& graph = c.train.graph;
          for (const PlanStep& step : c.plan.steps) {
            const Node& node = graph.nodes[step.node];
            const bool means = node.op->exchanges() && node.op->exchange != RankExchange::share;
            for (const ValueId in : node.inputs)
              if (means && graph.type(in).dtype == type) bytes += byte_size(graph.type(in));
            EXPECT_FALSE(means && step.micro && accumulate > 1);
          }
          return bytes;
        };
        const std::size_t gradients = 4u * 256 * 256;
        EXPECT_EQ(exchanged(full, DType::f32), 4 * gradients + 4);
        EXPECT_EQ(exchanged(full, DType::bf16), 0u);
        EXPECT_EQ(exchanged(half, DType::f32), 4u) << "the loss";
        EXPECT_EQ(exchanged(half, DType::bf16), 2 * gradients);
        const Graph& graph = half.train.graph;
        for (const PlanStep& step : half.plan.steps) {
          const Node& node = graph.nodes[step.node];
          for (const ValueId in : node.inputs)
            if (is_op(node, "Optimizer") && in != kNone) {
              EXPECT_NE(graph.type(in).dtype, DType::bf16);
            }
          if (node.op->begins_exchange()) {
            EXPECT_LE(byte_size(graph.type(node.outputs.back())),
                      std::max<std::size_t>(gradients * 2, 16384));
          }
        }
      }
}

TEST(DataParallel, AccumulatedGradientsAreExchangedOnce) {
  const Compiled c = trained("default", 2, 4);
  const auto begins = steps_of(c, all_reduce_begin_op());
  ASSERT_EQ(begins.size(), 1u);
  EXPECT_FALSE(c.plan.steps[begins[0]].micro);
}

}  // namespace
}  // namespace gradloom
