#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/collectives/share_parameters.h"
#include "engine/plan/streams.h"
#include "engine/train/state_ranges.h"
#include "engine/train/weight_copies.h"
#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::why_nots;

struct How {
  std::int64_t ranks = 2, accumulate = 1;
  double ema = 0, clip_norm = 1;
  kernels::Target target = kernels::Target::cpu;
};

Compiled compiled_for(const std::string& passes, const How& how = {}) {
  CompileOptions options;
  options.target = how.target;
  options.train.clip_norm = how.clip_norm;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer("adamw");
  options.train.ranks = how.ranks;
  options.train.accumulate = how.accumulate;
  options.train.ema = how.ema;
  options.pipeline = *parse_pipeline(passes);
  auto compiled = compile(test::four_layers(), options);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  const Status valid = check_plan(compiled->train.graph, compiled->plan);
  EXPECT_TRUE(valid.ok()) << valid.error().message;
  return std::move(compiled).value();
}

std::string of_rank(const std::string& passes, int rank, const std::string& zero = "") {
  return passes + ",zero{" + zero + "rank=" + std::to_string(rank) + "},gather-early{bucket_mb=0}";
}

const Node& node_of(const Compiled& c, std::size_t step) {
  return c.train.graph.nodes[c.plan.steps[step].node];
}

std::vector<std::size_t> steps_with(const Compiled& c, const OpDef& op) {
  std::vector<std::size_t> steps;
  for (std::size_t i = 0; i < c.plan.steps.size(); ++i)
    if (node_of(c, i).op == &op) steps.push_back(i);
  return steps;
}

// The step that waits for what a step began.
std::size_t wait_of(const Compiled& c, std::size_t begun) {
  for (std::size_t i = begun; i < c.plan.steps.size(); ++i)
    if (node_of(c, i).op == &all_reduce_wait_op() &&
        node_of(c, i).inputs[0] == node_of(c, begun).outputs.back())
      return i;
  ADD_FAILURE() << "nothing waits";
  return 0;
}

const PassReport& report_on(const Compiled& c, const char* pass) {
  return *std::find_if(c.reports.begin(), c.reports.end(),
                       [&](const PassReport& report) { return report.name == pass; });
}

// The next kernel behind the wait reads what was waited for, and none before it touches the memory.
void expect_waited_for_late(const Compiled& c, std::size_t begun) {
  const std::size_t waits = wait_of(c, begun);
  const std::int32_t buffer = c.plan.buffer_of[node_of(c, begun).inputs[0]];
  EXPECT_EQ(c.plan.buffers[static_cast<std::size_t>(buffer)].place, Place::state);
  const auto touches = [&](std::size_t step) {
    const Node& node = node_of(c, step);
    const auto there = [&](ValueId v) { return v != kNone && c.plan.buffer_of[v] == buffer; };
    return std::any_of(node.inputs.begin(), node.inputs.end(), there) ||
           std::any_of(node.outputs.begin(), node.outputs.end(), there);
  };
  for (std::size_t i = 0; i < waits; ++i) EXPECT_EQ(touches(i), i == begun) << "step " << i;
  EXPECT_TRUE(touches(waits + 1)) << node_of(c, waits + 1).name;
}

TEST(GatherEarly, EachPieceIsWaitedForByItsFirstReader) {
  for (const std::string passes : {"default", "default,mixed-precision"})
    for (const char* zero : {"", "stage=2,"})
      for (const int rank : {0, 1}) {
        SCOPED_TRACE(passes + " " + zero + std::to_string(rank));
        const Compiled c = compiled_for(of_rank(passes, rank, zero));
        const std::vector<std::size_t> begins = steps_with(c, gather_parameters_op());
        EXPECT_EQ(begins, (std::vector<std::size_t>{0, 1, 2, 3})) << "before all else";
        std::vector<std::size_t> waits;
        for (const std::size_t begun : begins) {
          waits.push_back(wait_of(c, begun));
          expect_waited_for_late(c, begun);
        }
        EXPECT_TRUE(std::is_sorted(waits.begin(), waits.end())) << "in the order in which they are read";
        EXPECT_GT(waits[3], waits[0] + 3) << "layers run between them";
        for (const std::size_t share : steps_with(c, share_parameters_op()))
          for (const Update& update : c.train.graph.updates)
            EXPECT_EQ(
                std::count(node_of(c, share).outputs.begin(), node_of(c, share).outputs.end(), update.next),
                0)
                << "nothing of parameters is left for the end";
      }
}

TEST(GatherEarly, PiecesAreAsLargeAsAsked) {
  for (const auto& [megabytes, pieces] : {std::pair("0", 4u), std::pair("1", 1u)}) {
    const Compiled c =
        compiled_for("default,zero{rank=0},gather-early{bucket_mb=" + std::string(megabytes) + "}");
    EXPECT_EQ(steps_with(c, gather_parameters_op()).size(), pieces);
  }
}

// What each rank keeps, and tells others of, is as without it.
TEST(GatherEarly, RanksKeepWhatTheyKeepWithoutIt) {
  for (const std::string passes : {"default", "default,mixed-precision"})
    for (const char* zero :
         {"zero{rank=0}", "zero{rank=1}", "zero{stage=2,rank=1}", "zero{masters=all,rank=0}"}) {
      SCOPED_TRACE(passes + " " + zero);
      const Compiled late = compiled_for(passes + "," + zero),
                     early = compiled_for(passes + "," + zero + ",gather-early");
      EXPECT_FALSE(steps_with(early, gather_parameters_op()).empty());
      EXPECT_EQ(early.plan.state_bytes, late.plan.state_bytes);
      const auto names = [](const Compiled& c, const auto& values) {
        std::vector<std::string> all;
        for (const ValueId id : values) all.push_back(c.train.graph.values[id].name);
        std::sort(all.begin(), all.end());
        return all;
      };
      const auto copies = [](const Compiled& c) {
        std::map<std::string, std::string> all;
        for (const auto& [copy, of] : weight_copies(c.train.graph))
          all[c.train.graph.values[copy].name] = c.train.graph.values[of].name;
        return all;
      };
      const auto ranges = [](const Compiled& c) {
        std::map<std::string, std::pair<std::int64_t, std::int64_t>> all;
        for (const auto& [parameter, own] : parameter_ranges(c.train.graph))
          all[c.train.graph.values[parameter].name] = {own.range.begin, own.range.count};
        return all;
      };
      EXPECT_EQ(names(early, own_states(early.train.graph)), names(late, own_states(late.train.graph)));
      EXPECT_FALSE(own_states(early.train.graph).empty());
      EXPECT_EQ(copies(early), copies(late));
      EXPECT_EQ(ranges(early), ranges(late));
      EXPECT_EQ(names(early, early.train.graph.parameters), names(late, late.train.graph.parameters));
    }
}

TEST(GatherEarly, ExchangesAreInTheSameOrderOnAllRanks) {
  for (const char* zero : {"", "stage=2,"})
    for (const std::int64_t accumulate : {1, 2}) {
      std::vector<std::string> orders;
      for (int rank = 0; rank < 4; ++rank) {
        const Compiled c = compiled_for(of_rank("default", rank, zero),
                                        {.ranks = 4, .accumulate = accumulate, .clip_norm = 0.5});
        std::string& order = orders.emplace_back();
        for (std::size_t i = 0; i < c.plan.steps.size(); ++i)
          if (node_of(c, i).op->exchanges())
            order += node_of(c, i).name + " " +
                     to_string(Attrs{{"owners", node_of(c, i).attrs.integers("owners")}}) + "\n";
      }
      for (const std::string& order : orders) EXPECT_EQ(order, orders[0]);
      EXPECT_EQ(orders[0].rfind("early/", 0), 0u) << orders[0];
    }
}

TEST(GatherEarly, MicroBatchesExchangeOnce) {
  const Compiled c = compiled_for(of_rank("default", 0), {.accumulate = 3});
  for (const std::size_t begun : steps_with(c, gather_parameters_op())) {
    EXPECT_TRUE(c.plan.steps[begun].micro);
    EXPECT_EQ(node_of(c, begun).inputs.back(), c.train.names.micro);
  }
  EXPECT_EQ(steps_with(c, gather_parameters_op()).size(), 4u);
}

TEST(GatherEarly, SaysWhyNot) {
  const Compiled averaged = compiled_for(of_rank("default", 1), {.ema = 0.9});
  EXPECT_TRUE(steps_with(averaged, gather_parameters_op()).empty());
  EXPECT_NE(why_nots(report_on(averaged, "gather-early")).find("is read in the same step as it becomes"),
            std::string::npos)
      << why_nots(report_on(averaged, "gather-early"));
  const Compiled several =
      compiled_for(of_rank("default", 1), {.accumulate = 2, .target = kernels::Target::gpu});
  EXPECT_TRUE(steps_with(several, gather_parameters_op()).empty());
  EXPECT_NE(why_nots(report_on(several, "gather-early")).find("in each micro-batch"), std::string::npos);
  EXPECT_EQ(compiled_for("default,gather-early").plan.hash, compiled_for("default").plan.hash)
      << "without zero nothing is given";
  EXPECT_EQ(compiled_for("default,zero,gather-early", {.ranks = 1}).plan.hash,
            compiled_for("default", {.ranks = 1}).plan.hash);
}

// Of three parameters one is read by its update alone, and one is a result.
TEST(GatherEarly, WhatStaysBehindIsExchangedAtTheEnd) {
  Graph graph;
  GraphBuilder b(graph, {.origin = {{}, Phase::optimizer}, .rank = 9});
  const ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper),
                step = b.input("step", {DType::i64, {}}, Role::hyper), x = b.input("x", {DType::f32, {4}});
  std::vector<ValueId> parameters, next;
  for (const char* name : {"read", "unread", "shown"}) {
    parameters.push_back(b.parameter(name, Tensor(DType::f32, {4})));
    next.push_back(
        b.op("Optimizer", {lr, step, kNone, kNone, parameters.back(), x}, {{"kind", std::string("sgd")}}));
  }
  const std::vector<ValueId> shared =
      b.ops(share_parameters_op(), next,
            {{"ranks", std::int64_t{1}}, {"owners", std::vector<std::int64_t>{0, 0, 0}}}, 3);
  for (std::size_t i = 0; i < shared.size(); ++i) b.update(parameters[i], shared[i]);
  const BuildScope forward(b, {{{}, Phase::forward}, 1, ""});
  graph.outputs = {b.op("Mul", {x, parameters[0]}), b.op("Mul", {x, parameters[2]}), parameters[2]};
  const Graph before = graph;
  const PassReport report = test::run_pass(graph, "gather-early");
  EXPECT_EQ(report.matched, 1);
  EXPECT_NE(why_nots(report).find("unread is read by its update alone"), std::string::npos)
      << why_nots(report);
  EXPECT_NE(why_nots(report).find("shown is an output of the graph"), std::string::npos) << why_nots(report);
  for (const Node& node : graph.nodes) {
    if (!node.alive()) continue;
    if (node.op == &share_parameters_op()) {
      EXPECT_EQ(node.inputs.size(), 2u);
    }
    if (node.op == &gather_parameters_op()) {
      EXPECT_EQ(node.inputs, std::vector<ValueId>{parameters[0]});
    }
  }
  test::expect_same_results(before, graph, 0);
}

// On a GPU pieces go beside the kernels. Each wait taken away is found.
TEST(GatherEarly, RacesWithReadersAreFound) {
  std::size_t waits = 0;
  for (const std::string passes : {"default", "default,mixed-precision"})
    for (const char* zero : {"", "stage=2,"}) {
      SCOPED_TRACE(passes + " " + zero);
      const Compiled c = compiled_for(of_rank(passes, 0, zero), {.target = kernels::Target::gpu});
      const std::vector<std::size_t> begins = steps_with(c, gather_parameters_op());
      ASSERT_EQ(begins.size(), 4u);
      for (const std::size_t begun : begins) {
        EXPECT_EQ(c.plan.steps[begun].stream, kExchangeStream);
        const std::size_t at = wait_of(c, begun);
        const std::vector<std::int32_t> own = c.plan.steps[at].waits;
        ASSERT_EQ(own, std::vector<std::int32_t>{static_cast<std::int32_t>(begun)});
        Plan plan = c.plan;
        plan.steps[at].waits.clear();
        const Status found = check_plan(c.train.graph, plan);
        ASSERT_FALSE(found.ok()) << "piece " << begun;
        EXPECT_NE(found.error().message.find("does not wait for step " + std::to_string(begun)),
                  std::string::npos)
            << found.error().message;
        // A reader that runs before the wait.
        plan = c.plan;
        std::swap(plan.steps[at], plan.steps[at + 1]);
        EXPECT_FALSE(check_plan(c.train.graph, plan).ok())
            << "the reader of piece " << begun << " comes first";
        waits += 2;
      }
    }
  EXPECT_EQ(waits, 32u);
}

// The update of a parameter is written over what was gathered, and both over the state.
TEST(GatherEarly, AStateIsOneBufferThroughTheStep) {
  const Compiled c = compiled_for(of_rank("default", 0));
  const Graph& graph = c.train.graph;
  std::size_t gathered = 0;
  for (const Update& update : graph.updates) {
    const auto made = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
      return node.alive() && node.op == &gather_parameters_op() && node.inputs[0] == update.state;
    });
    if (made == graph.nodes.end()) continue;
    ++gathered;
    EXPECT_EQ(c.plan.buffer_of[made->outputs[0]], c.plan.buffer_of[update.state]);
    EXPECT_EQ(c.plan.buffer_of[update.next], c.plan.buffer_of[update.state]);
    EXPECT_EQ(before_gather(graph, update.state), update.state);
    EXPECT_EQ(before_gather(graph, made->outputs[0]), update.state);
  }
  EXPECT_EQ(gathered, 4u);
}

}  // namespace
}  // namespace gradloom
