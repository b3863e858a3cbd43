#include "passes/zero.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/host_work.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/collectives/share_parameters.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "engine/train/state_ranges.h"
#include "engine/train/weight_copies.h"
#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::why_nots;

// A layer of 64 rows for each width, named a, b, ..
Graph layers(const std::vector<std::int64_t>& widths) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {8, 64}});
  std::vector<ValueId> means;
  for (const std::int64_t width : widths) {
    const std::string name(1, static_cast<char>('a' + means.size()));
    const ValueId y = b.op("MatMul", {x, b.parameter(name, Tensor(DType::f32, {64, width}))});
    means.push_back(b.op("ReduceMean", {b.op("Mul", {y, y})}, {{"keepdims", std::int64_t{0}}}));
  }
  ValueId loss = means[0];
  for (std::size_t i = 1; i < means.size(); ++i) loss = b.op("Add", {loss, means[i]});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  return graph;
}

struct Training {
  const char* optimizer = "adamw";
  double ema = 0, clip_norm = 0;
  std::int64_t accumulate = 1;
};

// Five parameters, each half of the one before.
Graph halves() { return layers({256, 128, 64, 32, 16}); }

Compiled trained(const std::string& passes, std::int64_t ranks, const Training& training = {},
                 const Graph& graph = halves()) {
  CompileOptions options;
  options.train.clip_norm = training.clip_norm;
  options.train.accumulate = training.accumulate;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer(training.optimizer);
  options.train.ranks = ranks;
  options.train.ema = training.ema;
  options.pipeline = *parse_pipeline(passes);
  auto compiled = compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  EXPECT_TRUE(check_plan(compiled->train.graph, compiled->plan).ok());
  return std::move(compiled).value();
}

std::set<std::string> updated(const Compiled& c) {
  std::set<std::string> names;
  for (const Update& u : c.train.graph.updates) names.insert(c.train.graph.values[u.state].name);
  return names;
}

const Node* sharing(const Compiled& c) {
  for (const PlanStep& step : c.plan.steps)
    if (c.train.graph.nodes[step.node].op == &share_parameters_op()) return &c.train.graph.nodes[step.node];
  return nullptr;
}

const PassReport& report_of(const Compiled& c, const char* pass) {
  return *std::find_if(c.reports.begin(), c.reports.end(),
                       [&](const PassReport& report) { return report.name == pass; });
}

constexpr std::int64_t kUnit = optimizer_inputs::kRangeUnit;

std::vector<std::int64_t> owners_of(const std::vector<OwnedPart>& parts) {
  std::vector<std::int64_t> owners;
  for (const OwnedPart& part : parts) owners.push_back(part.owner);
  return owners;
}

TEST(Zero, WholeParametersAreSharedOutAsEvenlyAsTheyAllow) {
  const auto owners = [](const std::vector<std::int64_t>& bytes, std::int64_t ranks) {
    std::vector<ZeroItem> items;
    for (const std::int64_t b : bytes) items.push_back({1 << 20, b, false});
    return owners_of(zero_shares(items, ranks));
  };
  EXPECT_EQ(owners({8, 4, 2, 1}, 2), (std::vector<std::int64_t>{0, 1, 1, 1}));
  EXPECT_EQ(owners({1, 1, 1, 1}, 4), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(owners({3, 9, 3, 3}, 2), (std::vector<std::int64_t>{1, 0, 1, 1}));
  EXPECT_EQ(owners({5}, 3), (std::vector<std::int64_t>{0}));
  EXPECT_TRUE(owners({}, 3).empty());
}

// What a library of the device is called for (engine/device/gpu/runtime/nccl.cpp): one call for a tensor of which every rank has as much, else
// one for each part. Of GPT-2 124M where its 48 large weights and positions divide, which are 72, 216, 288 and 96 units.
TEST(Zero, EqualPartsAreOneCallOfTheLibrary) {
  std::vector<std::int64_t> sizes{50257 * 768, 1024 * 768};
  for (int layer = 0; layer < 12; ++layer)
    sizes.insert(sizes.end(),
                 {768, 768, 768 * 2304, 2304, 768 * 768, 768, 768, 768, 768 * 3072, 3072, 3072 * 768, 768});
  sizes.insert(sizes.end(), {768, 768});
  ASSERT_EQ(sizes.size(), 148u);
  std::vector<ZeroItem> items;
  std::vector<Type> types;
  for (const std::int64_t size : sizes) {
    items.push_back({size, 8 * size, true});
    types.push_back({DType::f32, {size}});
  }
  struct Calls {
    std::int64_t ranks, before, after;
  };
  for (const auto& [ranks, before, after] : {Calls{1, 148, 148}, Calls{2, 198, 149}, Calls{8, 498, 155},
                                             Calls{16, 898, 523}, Calls{64, 3298, 3298}}) {
    SCOPED_TRACE(ranks);
    const std::vector<OwnedPart> parts = zero_shares(items, ranks);
    for (const auto kind : {DeviceExchange::Kind::reduce, DeviceExchange::Kind::share}) {
      const DeviceExchange exchange = exchange_of_parts(kind, parts, types, ranks, ranks - 1);
      EXPECT_EQ(std::ssize(exchange.pieces), before);
      EXPECT_EQ(exchange.calls(), after);
      // Each piece is in one call, and what a call joins is a whole tensor in the order of the ranks.
      for (std::size_t i = 0; i < exchange.pieces.size();) {
        const auto count = static_cast<std::size_t>(exchange.pieces[i].together);
        ASSERT_TRUE(count == 1 || count == static_cast<std::size_t>(ranks));
        for (std::size_t r = 0; r < count && count > 1; ++r) {
          const DeviceExchange::Piece& piece = exchange.pieces[i + r];
          EXPECT_EQ(piece.owner, static_cast<int>(r));
          EXPECT_EQ(piece.input, exchange.pieces[i].input);
          EXPECT_EQ(piece.count, exchange.pieces[i].count);
          EXPECT_EQ(piece.input_begin, static_cast<std::int64_t>(r) * sizes[piece.input] * 4 / ranks);
          EXPECT_EQ(piece.together, r == 0 ? static_cast<std::int32_t>(count) : 0);
        }
        i += count;
      }
    }
  }
}

// Elements of any number, on any number of ranks: all are owned once, in units, and no rank has two units more than another.
TEST(Zero, CutParametersAreSharedOutEvenly) {
  for (const std::int64_t ranks : {1, 2, 3, 7, 64, 1024}) {
    SCOPED_TRACE(ranks);
    std::vector<ZeroItem> items;
    for (const std::int64_t elements :
         {std::int64_t{38'597'376}, std::int64_t{786'432}, std::int64_t{2'359'299}, std::int64_t{768}, kUnit,
          kUnit + 1, std::int64_t{0}, std::int64_t{50'000}})
      items.push_back({elements, 8 * elements, true});
    std::vector<std::int64_t> has(static_cast<std::size_t>(ranks), 0);
    std::vector<std::int64_t> owned(items.size(), 0);
    int before = -1;
    std::size_t item = items.size();
    for (const OwnedPart& part : zero_shares(items, ranks)) {
      if (part.tensor != item) before = -1;
      item = part.tensor;
      EXPECT_GT(part.owner, before) << "in the order of the ranks";
      before = part.owner;
      EXPECT_EQ(part.begin, owned[item]);
      EXPECT_EQ(part.begin % kUnit, 0);
      owned[item] += part.count;
      has[static_cast<std::size_t>(part.owner)] += zero_bytes(items[item], part);
    }
    for (std::size_t i = 0; i < items.size(); ++i) EXPECT_EQ(owned[i], items[i].elements);
    const auto [least, most] = std::minmax_element(has.begin(), has.end());
    EXPECT_LT(*most - *least, 2 * 8 * kUnit);
  }
}

// Elements of each state on all ranks together.
TEST(Zero, EachStateIsOnceAndEachParameterOnAllRanks) {
  const Compiled all = trained("default", 3);
  std::map<std::string, std::int64_t> elements;
  std::int64_t bytes = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const Compiled c = trained("default,zero{rank=" + std::to_string(rank) + "}", 3);
    for (const std::string& name : updated(c))
      elements[name] += element_count(c.train.graph.type(find_value(c.train.graph, name)).shape);
    bytes += c.plan.state_bytes;
    EXPECT_LT(c.plan.state_bytes, all.plan.state_bytes);
    const Node* const share = sharing(c);
    ASSERT_NE(share, nullptr);
    EXPECT_EQ(share->inputs.size(), 5u);
    EXPECT_EQ(share->attrs.integers("owners"), (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}))
        << "the first is cut in two";
    EXPECT_EQ(share->attrs.integers("of"), (std::vector<std::int64_t>{0, 0, 1, 2, 3, 4}));
    EXPECT_EQ(share->attrs.integers("begins"), (std::vector<std::int64_t>{0, kUnit, 0, 0, 0, 0}));
  }
  std::int64_t width = 256;
  for (const char* parameter : {"a", "b", "c", "d", "e"}) {
    EXPECT_EQ(elements[parameter], 3 * 64 * width);
    EXPECT_EQ(elements[std::string(parameter) + "/m"], 64 * width);
    EXPECT_EQ(elements[std::string(parameter) + "/v"], 64 * width);
    width /= 2;
  }
  EXPECT_EQ(elements.size(), 15u);
  const std::int64_t parameters = all.plan.state_bytes / 3;  // m and v are as large
  EXPECT_EQ(bytes, 3 * parameters + 2 * parameters);
}

// Table 1 of the paper, without parameters of 16 bits: P of parameters, K = 2 P of states, P of gradients; each rank has
// P + K / N with stage 1, and of the gradients P / N with stage 2.
TEST(Zero, OneParameterThatIsNearlyAllIsNoRanksShare) {
  const auto dominated = [] { return layers({64 * 64, 8, 8}); };
  for (const char* optimizer : {"adamw", "lion", "adamw{eight_bit_states=true}", "adamw{amsgrad=true}",
                                "rmsprop{momentum=0.9,centered=true}", "nadam"}) {
    const std::int64_t whole = trained("default", 2, {.optimizer = optimizer}, dominated()).plan.state_bytes,
                       parameters = 64 * (64 * 64 + 16) * 4, states = whole - parameters;
    for (const std::int64_t ranks : {2, 3, 8})
      for (const std::int64_t rank : {std::int64_t{0}, ranks - 1})
        for (const char* stage : {"1", "2"}) {
          SCOPED_TRACE(std::string(optimizer) + " stage " + stage + " of " + std::to_string(ranks));
          const Compiled c =
              trained("default,zero{stage=" + std::string(stage) + ",rank=" + std::to_string(rank) + "}",
                      ranks, {.optimizer = optimizer}, dominated());
          const std::int64_t unit = 3 * 4 * kUnit;  // of three states
          EXPECT_NEAR(static_cast<double>(c.plan.state_bytes),
                      static_cast<double>(parameters + states / ranks), static_cast<double>(unit + 1024));
        }
  }
  const std::int64_t lamb =
      trained("default,zero{rank=0}", 4, {.optimizer = "lamb"}, dominated()).plan.state_bytes;
  EXPECT_GE(lamb, 3 * 64 * 64 * 64 * 4) << "its trust ratio is of the whole parameter";
}

// All gradients wait for their norm: what stage 2 leaves of them is their N-th part.
TEST(ZeroTwo, GradientsTakeTheirShareAlone) {
  const auto equal = [] { return layers(std::vector<std::int64_t>(16, 512)); };
  const std::int64_t gradients = 16 * 64 * 512 * 4, largest = 64 * 512 * 4;
  const auto arena = [&](const std::string& zero, std::int64_t ranks) {
    return trained("default,data-parallel{bucket_mb=0}" + zero, ranks, {.clip_norm = 1}, equal())
        .plan.arena_bytes;
  };
  for (const std::int64_t ranks : {2, 4}) {
    const std::int64_t one = arena(",zero{rank=0}", ranks), two = arena(",zero{stage=2,rank=0}", ranks);
    EXPECT_GE(one, gradients);
    EXPECT_NEAR(static_cast<double>(two), static_cast<double>(gradients) / static_cast<double>(ranks),
                static_cast<double>(4 * largest))
        << "and those that are on their way";
  }
}

TEST(Zero, WhatReadsAnUpdateReadsWhatWasShared) {
  const Compiled c = trained("default,zero{rank=1}", 2, {.ema = 0.9});
  const Graph& graph = c.train.graph;
  int averages = 0;
  for (const Node& node : graph.nodes) {
    if (!node.alive() || !is_op(node, "MovingAverage")) continue;
    ++averages;
    EXPECT_EQ(graph.nodes[graph.values[node.inputs[1]].producer].op, &share_parameters_op());
  }
  EXPECT_EQ(averages, 5) << "every rank keeps the averages";
}

// Products in bf16, whose weights nothing else reads: of each element of 4 + 4 + 4 bytes in f32 one rank's, and 2 on every rank.
TEST(Zero, WeightsOfSixteenBitsAreKeptInF32WhereTheyAreUpdated) {
  constexpr std::int64_t kElements = 64 * (256 + 128 + 64 + 32 + 16);
  const auto planned = [](const std::string& zero, std::int64_t ranks, const Training& training = {}) {
    return trained("default,mixed-precision" + zero, ranks, training);
  };
  for (const std::int64_t ranks : {2, 3}) {
    std::int64_t kept = 0, bytes = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const Compiled c = planned(",zero{rank=" + std::to_string(rank) + "}", ranks);
      const Graph& graph = c.train.graph;
      const Node* const share = sharing(c);
      ASSERT_NE(share, nullptr);
      for (const ValueId out : share->outputs) EXPECT_EQ(graph.type(out).dtype, DType::bf16);
      const std::map<ValueId, OwnRange> ranges = parameter_ranges(graph);
      EXPECT_EQ(ranges.size(), 5u);
      for (const auto& [parameter, own] : ranges) {
        EXPECT_EQ(element_count(graph.type(parameter).shape), own.range.count);
        EXPECT_EQ(graph.values[parameter].data.count(), own.range.count);
        kept += own.range.count;
      }
      EXPECT_EQ(weight_copies(graph).size(), 5u);
      for (const auto& [copy, of] : weight_copies(graph))
        EXPECT_EQ(graph.type(copy).shape, ranges.at(of).whole);
      bytes += c.plan.state_bytes;
    }
    EXPECT_EQ(kept, kElements) << "each element once";
    EXPECT_EQ(bytes, 12 * kElements + ranks * 2 * kElements);
  }
  const Compiled all = planned(",zero{rank=0,masters=all}", 2);
  EXPECT_TRUE(parameter_ranges(all.train.graph).empty());
  EXPECT_TRUE(weight_copies(all.train.graph).empty()) << "the other rank's elements come in f32";
  EXPECT_NE(why_nots(report_of(all, "fuse-weight-casts")).find("gets the others in f32"), std::string::npos);
  const Compiled averaged = planned(",zero{rank=0}", 2, {.ema = 0.9});
  EXPECT_TRUE(parameter_ranges(averaged.train.graph).empty()) << "averages of all elements are on every rank";
  EXPECT_NE(why_nots(report_of(averaged, "zero")).find("others than the cast and the update read"),
            std::string::npos);
  const Compiled excepted = planned(",zero{rank=0,except=a/bf16}", 2);
  EXPECT_EQ(parameter_ranges(excepted.train.graph).size(), 4u);
}

// A class token, which is expanded and joined to rows before a product rounds them; in a step its cast comes first.
Graph token_before_rows() {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId token = b.parameter("token", Tensor(DType::f32, {1, 1, 64}));
  const ValueId expanded = b.op("Expand", {token, b.i64s({4, 1, 64})});
  const ValueId rows =
      b.op("Concat", {expanded, b.input("x", {DType::f32, {4, 3, 64}})}, {{"axis", std::int64_t{1}}});
  const ValueId y = b.op("MatMul", {rows, b.parameter("w", Tensor(DType::f32, {64, 256}))});
  const ValueId loss = b.op("ReduceMean", {b.op("Mul", {y, y})}, {{"keepdims", std::int64_t{0}}});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  return graph;
}

TEST(Zero, EvaluationReadsCopiesOfWhatStepsRoundFirst) {
  for (const char* rank : {"0", "1"}) {
    CompileOptions options;
    options.train.loss = "loss";
    options.train.optimizer = *parse_optimizer("adamw");
    options.train.ranks = 2;
    options.pipeline = *parse_pipeline("default,mixed-precision,zero{rank=" + std::string(rank) + "}");
    const auto step = compile(token_before_rows(), options);
    ASSERT_OK(step);
    const std::map<ValueId, ValueId> copies = weight_copies(step->train.graph);
    ASSERT_EQ(copies.size(), 2u) << why_nots(report_of(*step, "zero"));
    const auto evaluation = compile_evaluation(*step, options);
    ASSERT_OK(evaluation);
    EXPECT_TRUE(check_plan(evaluation->graph, evaluation->plan).ok());
    std::map<std::string, int> read;
    for (const Node& node : evaluation->graph.nodes)
      for (const ValueId in : node.inputs)
        if (node.alive() && in != kNone && evaluation->graph.values[in].producer == kNone)
          ++read[evaluation->graph.values[in].name];
    for (const auto& [copy, of] : copies) {
      EXPECT_EQ(read[step->train.graph.values[copy].name], 1);
      EXPECT_EQ(read.count(step->train.graph.values[of].name), 0u) << "a part of it is elsewhere";
    }
  }
}

TEST(Zero, OneRankIsLeftAlone) {
  EXPECT_EQ(trained("default,zero", 1).plan.hash, trained("default", 1).plan.hash);
}

TEST(Zero, AParameterThatIsExceptedStaysOnAllRanks) {
  const Compiled c = trained("default,zero{rank=1,except=a/Optimizer}", 2);
  EXPECT_EQ(updated(c).count("a/m"), 1u);
  ASSERT_NE(sharing(c), nullptr);
  EXPECT_EQ(sharing(c)->inputs.size(), 4u);
}

// The nodes of an operator in the order in which they run.
std::vector<const Node*> nodes_of(const Compiled& c, const OpDef& op) {
  std::vector<const Node*> nodes;
  for (const PlanStep& step : c.plan.steps)
    if (c.train.graph.nodes[step.node].op == &op) nodes.push_back(&c.train.graph.nodes[step.node]);
  return nodes;
}

TEST(ZeroTwo, EachGradientIsAtOneRank) {
  for (const char* rest :
       {"default,zero{stage=2,rank=", "default,data-parallel{overlap=false},zero{stage=2,rank=",
        "default,-data-parallel,zero{stage=2,rank=", "zero{stage=2,rank="}) {
    std::size_t gradients = 0;
    std::vector<std::vector<std::int64_t>> orders;
    for (int rank = 0; rank < 3; ++rank) {
      const Compiled c = trained(rest + std::to_string(rank) + "}", 3, {.clip_norm = 1});
      std::vector<std::int64_t>& order = orders.emplace_back();
      std::size_t inputs = 0;
      for (const Node* node : nodes_of(c, reduce_gradients_op())) {
        for (const std::int64_t owner : node->attrs.integers("owners")) order.push_back(owner);
        inputs += node->inputs.size();
        gradients += node->outputs.size() - 1;
        EXPECT_EQ(node->attrs.integer("rank"), rank);
      }
      EXPECT_EQ(inputs, 5u) << rest << ": every rank sends all";
      EXPECT_EQ(order.size(), 6u) << "the first is cut in two";
      EXPECT_EQ(nodes_of(c, all_reduce_op()).size() + nodes_of(c, all_reduce_begin_op()).size(), 1u)
          << "of the loss";
      EXPECT_EQ(nodes_of(c, share_parameters_op()).size(), 2u) << "squares and parameters";
      EXPECT_EQ(report_of(c, "zero").rejected, 0);
    }
    EXPECT_EQ(gradients, 6u) << rest;
    EXPECT_EQ(orders[0], orders[1]) << "every rank in the same order";
    EXPECT_EQ(orders[0], orders[2]);
  }
}

TEST(ZeroTwo, ExchangesAreInTheSameOrderOnAllRanks) {
  for (const char* passes : {"default,zero{stage=2,rank=", "zero{stage=2,rank=", "memory-order,zero{rank="}) {
    std::vector<std::string> orders;
    for (int rank = 0; rank < 2; ++rank) {
      const Compiled c =
          trained(passes + std::to_string(rank) + "}", 2, {.ema = 0.9, .clip_norm = 0.5, .accumulate = 2});
      std::string& order = orders.emplace_back();
      for (const PlanStep& step : c.plan.steps) {
        const Node& node = c.train.graph.nodes[step.node];
        for (const OpDef* op :
             {&all_reduce_op(), &all_reduce_begin_op(), &reduce_gradients_op(), &share_parameters_op()})
          if (node.op == op) order += node.name + "\n";
      }
    }
    EXPECT_EQ(orders[0], orders[1]) << passes;
    EXPECT_NE(orders[0], "");
  }
}

TEST(ZeroTwo, GradientsOfOthersTakeNoMemory) {
  for (const double clip : {0.0, 1.0}) {
    const Compiled one = trained("default,-early-updates,zero{rank=0}", 2, {.clip_norm = clip}),
                   two = trained("default,-early-updates,zero{stage=2,rank=0}", 2, {.clip_norm = clip});
    EXPECT_EQ(two.plan.state_bytes, one.plan.state_bytes);
    EXPECT_LT(two.plan.arena_bytes, one.plan.arena_bytes);
  }
}

TEST(ZeroTwo, DividesGradientsWhereNothingIsRemembered) {
  const Compiled c = trained("default,zero{stage=2,rank=1}", 2, {.optimizer = "sgd"});
  ASSERT_NE(sharing(c), nullptr);
  EXPECT_EQ(nodes_of(c, reduce_gradients_op()).size(), 1u);
  EXPECT_EQ(updated(c).size(), 5u);
}

TEST(ZeroTwo, AParameterThatIsExceptedStaysOnAllRanks) {
  const Compiled c = trained("default,zero{stage=2,rank=1,except=a/Optimizer}", 2, {.clip_norm = 1});
  EXPECT_EQ(updated(c).count("a/m"), 1u);
  std::size_t inputs = 0;
  for (const Node* node : nodes_of(c, reduce_gradients_op())) inputs += node->inputs.size();
  EXPECT_EQ(inputs, 4u);
  const auto norms = nodes_of(c, norm_of_squares_op());
  ASSERT_EQ(norms.size(), 1u);
  EXPECT_EQ(norms[0]->attrs.integers("from"), (std::vector<std::int64_t>{2, 0, 1, 1, 1}))
      << "its squares come from this rank";
}

TEST(ZeroTwo, OneRankIsLeftAlone) {
  EXPECT_EQ(trained("default,zero{stage=2}", 1).plan.hash, trained("default", 1).plan.hash);
}

TEST(ZeroTwo, SaysWhyNot) {
  const Compiled late = trained("data-parallel,zero{stage=2}", 2);
  EXPECT_NE(why_nots(report_of(late, "zero"))
                .find("gradients at a/Optimizer: its gradient has no exchange of its own"),
            std::string::npos)
      << why_nots(report_of(late, "zero"));
  EXPECT_TRUE(nodes_of(late, reduce_gradients_op()).empty());
  EXPECT_NE(sharing(late), nullptr) << "states are divided all the same";
  CompileOptions options;
  options.train.loss = "loss";
  options.train.ranks = 2;
  options.pipeline = *parse_pipeline("zero{stage=2},adasum");
  const auto compiled = compile(halves(), options);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, Errc::usage);
  EXPECT_NE(compiled.error().message.find("zero{stage=1}"), std::string::npos) << compiled.error().message;
}

TEST(Zero, SaysWhyNot) {
  const Compiled plain = trained("zero", 2, {.optimizer = "sgd"});
  for (const PassReport& report : plain.reports)
    if (report.name == "zero") {
      EXPECT_EQ(report.matched, 0);
      EXPECT_NE(why_nots(report).find("states at a/Optimizer: the optimizer remembers nothing"),
                std::string::npos)
          << why_nots(report);
    }
  CompileOptions options;
  options.train.loss = "loss";
  options.train.ranks = 2;
  options.pipeline = *parse_pipeline("zero{rank=2}");
  const auto compiled = compile(halves(), options);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, Errc::usage);
}

}  // namespace
}  // namespace gradloom
