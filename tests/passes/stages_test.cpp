#include "passes/stages.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/ir/op.h"
#include "engine/onnx/import.h"
#include "tests/passes/support.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

const Graph& gpt() {
  static const ImportedModel model = [] {
    ImportOptions options;
    options.dims = {{"batch", 2}};
    return std::move(import_onnx(GRADLOOM_SOURCE_DIR "/tests/models/gpt-char/model.onnx", options)).value();
  }();
  return model.graph;
}

CompileOptions options_of(const std::string& passes) {
  CompileOptions options;
  options.train.loss = "ce:logits,labels";
  options.train.optimizer = std::move(parse_optimizer("adamw{lr=1e-3}")).value();
  options.pipeline = std::move(parse_pipeline(passes)).value();
  return options;
}

using Reads = std::multiset<std::pair<NodeId, ValueId>>;

// The live nodes of a graph, and what they read.
std::pair<std::set<NodeId>, Reads> alive(const Graph& graph) {
  std::pair<std::set<NodeId>, Reads> there;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!graph.nodes[id].alive()) continue;
    there.first.insert(id);
    for (const ValueId v : graph.nodes[id].inputs)
      if (v != kNone) there.second.emplace(id, v);
  }
  return there;
}

std::pair<std::set<NodeId>, Reads> alive(const StageHistory& history, std::int32_t stage) {
  std::pair<std::set<NodeId>, Reads> there;
  for (NodeId id = 0; id < history.nodes.size(); ++id)
    if (history.nodes[id].holds(stage)) there.first.insert(id);
  for (const StageRead& read : history.reads)
    if (read.span.holds(stage)) there.second.emplace(read.reader, read.value);
  return there;
}

// How many nodes can be put into an order in which each reads what is before it.
std::size_t in_order_of_reading(const Graph& graph) {
  std::vector<int> waits(graph.nodes.size(), 0);
  std::vector<NodeId> ready;
  const auto uses = uses_of(graph);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!graph.nodes[id].alive()) continue;
    for (const ValueId v : graph.nodes[id].inputs)
      waits[id] += v != kNone && graph.values[v].producer != kNone;
    if (waits[id] == 0) ready.push_back(id);
  }
  for (std::size_t i = 0; i < ready.size(); ++i)
    for (const ValueId v : graph.nodes[ready[i]].outputs) {
      if (v == kNone) continue;
      for (const Use& use : uses[v])
        if (--waits[use.node] == 0) ready.push_back(use.node);
    }
  return ready.size();
}

TEST(Stages, TellEveryGraphOnItsWay) {
  const CompileOptions options = options_of("default,mixed-precision");
  const auto history = stage_history(gpt(), options);
  ASSERT_OK(history);
  std::size_t rewrites = 0;
  std::int32_t stage = 0;
  CompileOptions watched = options;
  watched.watch = [&](const Graph& graph, const std::string& what, PassPhase, const RewriteRecord* record) {
    if (static_cast<std::size_t>(stage) >= history->stages.size()) return;
    const Stage& told = history->stages[static_cast<std::size_t>(stage)];
    EXPECT_EQ(told.pass, what);
    EXPECT_EQ(told.nodes, live_node_count(graph));
    EXPECT_EQ(alive(*history, stage), alive(graph)) << what;
    if (record != nullptr) {
      EXPECT_EQ(told.site, record->site);
      EXPECT_EQ(told.added.size(), record->added.size()) << what << " at " << record->site;
      ++rewrites;
    }
    ++stage;
  };
  const auto compiled = compile(gpt(), watched);
  ASSERT_OK(compiled);
  EXPECT_EQ(static_cast<std::size_t>(stage), history->stages.size());
  std::size_t matched = 0;
  for (const PassReport& report : compiled->reports)
    if (report.name != "pieces") matched += static_cast<std::size_t>(report.matched);
  EXPECT_EQ(rewrites, matched) << "every match of every report";
  EXPECT_GT(rewrites, 50u);
  EXPECT_EQ(alive(*history, stage - 1), alive(compiled->train.graph));
}

TEST(Stages, TogetherAreOneGraphWithoutCyclesWhoseNamesAreUnique) {
  const auto history = stage_history(gpt(), options_of("default"));
  ASSERT_OK(history);
  std::set<std::string> names;
  std::size_t gone = 0;
  for (NodeId id = 0; id < history->nodes.size(); ++id) {
    if (history->nodes[id].from == StageSpan::kEver) continue;
    EXPECT_TRUE(history->all.nodes[id].alive());
    EXPECT_TRUE(names.insert(history->all.nodes[id].name).second) << history->all.nodes[id].name;
    gone += history->nodes[id].until != StageSpan::kEver;
  }
  EXPECT_GT(gone, 20u);
  EXPECT_EQ(names.count("/blocks.0/gelu/Mul_5 (until fuse-gelu)"), 1u) << "its name went to the GELU";
  EXPECT_EQ(names.count("/blocks.0/gelu/Tanh"), 1u) << "nobody else is called so";
  EXPECT_EQ(in_order_of_reading(history->all), names.size());
}

TEST(Stages, AGraphIsFoundByPassRunAndSite) {
  const CompileOptions options = options_of("default");
  const auto start = graph_at(gpt(), options, "start"), gelu = graph_at(gpt(), options, "fuse-gelu"),
             first = graph_at(gpt(), options, "fuse-gelu:/blocks.0/gelu/Mul_5"),
             autodiff = graph_at(gpt(), options, "autodiff");
  for (const auto* at : {&start, &gelu, &first, &autodiff}) ASSERT_OK(*at);
  const auto count = [](const Graph& graph, const char* op) { return gradloom::test::op_counts(graph)[op]; };
  EXPECT_EQ(start->number, 1u);
  EXPECT_EQ(count(start->graph, "GeluTanh"), 0);
  EXPECT_EQ(count(first->graph, "GeluTanh"), 1);
  EXPECT_EQ(count(gelu->graph, "GeluTanh"), 4);
  EXPECT_EQ(count(gelu->graph, "GeluTanhGrad"), 0);
  EXPECT_LT(first->number, gelu->number);
  EXPECT_LT(gelu->number, autodiff->number);
  EXPECT_GT(autodiff->stage.nodes, gelu->stage.nodes);
  const auto by_fingerprint = graph_at(gpt(), options, "fuse-gelu:" + first->stage.fingerprint);
  ASSERT_OK(by_fingerprint);
  EXPECT_EQ(by_fingerprint->number, first->number);
  for (const auto* at : {&start, &gelu, &first, &autodiff}) ASSERT_OK(verify((*at)->graph));
}

TEST(Stages, WhatIsNoStageSaysWhy) {
  const CompileOptions options = options_of("default,-fuse-swish");
  for (const auto& [name, said] : std::map<std::string, std::string>{
           {"fuse-gel", "did you mean fuse-gelu?"},
           {"fuse-swish", "did not run"},
           {"fuse-rmsnorm", "changed nothing in this job"},
           {"fuse-gelu:/blocks.0/gelu/Mul_55", "did you mean /blocks.0/gelu/Mul_5?"},
           {"fuse-gelu#9", "there is no run 9"},
           {"fuse-gelu:", "is no stage"},
           {"#1", "is no stage"},
           {"fuse-gelu#x", "is no stage"},
           {"", "is no stage"}}) {
    const auto at = graph_at(gpt(), options, name);
    ASSERT_FALSE(at.ok()) << name;
    EXPECT_EQ(at.error().code, Errc::usage);
    EXPECT_NE(at.error().message.find(said), std::string::npos) << at.error().message;
  }
}

}  // namespace
}  // namespace gradloom
