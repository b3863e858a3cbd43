#include "engine/ir/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "engine/ir/builder.h"
#include "engine/ir/rewriter.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

// y = relu(x + b) with b a parameter.
struct Small {
  Graph graph;
  ValueId x, b, sum, y;
  Small() {
    GraphBuilder builder(graph);
    x = builder.input("x", {DType::f32, {2, 3}});
    b = builder.parameter("b", Tensor(DType::f32, {3}));
    sum = builder.op("Add", {x, b});
    y = builder.op("Relu", {sum});
    graph.outputs = {y};
  }
};

TEST(Graph, BuilderInfersTypesAndVerifies) {
  Small s;
  EXPECT_EQ(s.graph.type(s.y), (Type{DType::f32, {2, 3}}));
  EXPECT_TRUE(verify(s.graph).ok());
  EXPECT_EQ(live_node_count(s.graph), 2u);
}

TEST(Graph, VerifyFindsEachKindOfDamage) {
  const auto broken = [](auto damage) {
    Small s;
    damage(s);
    const Status status = verify(s.graph);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_NE(broken([](Small& s) { s.graph.nodes[1].inputs[0] = 999; }).find("does not exist"),
            std::string::npos);
  EXPECT_NE(broken([](Small& s) { s.graph.nodes[0].op = nullptr; }).find("producer was removed"),
            std::string::npos);
  EXPECT_NE(broken([](Small& s) { s.graph.nodes[1].name = s.graph.nodes[0].name; }).find("two nodes"),
            std::string::npos);
  EXPECT_NE(broken([](Small& s) { s.graph.values[s.y].name = "x"; }).find("two values"), std::string::npos);
  EXPECT_NE(broken([](Small& s) { s.graph.nodes[1].outputs[0] = s.sum; }).find("two producers"),
            std::string::npos);
  EXPECT_NE(broken([](Small& s) {
              s.graph.values[s.y].type.shape = {3, 2};
            }).find("inference says"),
            std::string::npos);
  EXPECT_NE(broken([](Small& s) { s.graph.nodes[0].inputs[0] = s.y; }).find("cycle"), std::string::npos);
  EXPECT_NE(broken([](Small& s) {
              s.graph.updates.push_back({s.sum, s.y});
            }).find("not a state"),
            std::string::npos);
}

TEST(Graph, CycleErrorNamesItsNodes) {
  Small s;
  s.graph.nodes[0].inputs[0] = s.y;
  const auto order = topological_order(s.graph);
  ASSERT_FALSE(order.ok());
  EXPECT_NE(order.error().message.find("Add"), std::string::npos);
  EXPECT_NE(order.error().message.find("Relu"), std::string::npos);
}

TEST(Graph, OrderFollowsRankAmongReadyNodes) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {1}});
  {
    const BuildScope later(b, {.rank = 10});
    b.op("Relu", {x});
  }
  const BuildScope sooner(b, {.rank = 5});
  b.op("Tanh", {x});
  const auto order = topological_order(graph);
  ASSERT_TRUE(order.ok());
  EXPECT_EQ(*order, (std::vector<NodeId>{1, 0}));
}

// The order as it is defined: of the nodes that may come next always the first by rank and id. What is written over waits for
// all that read it, through views too.
std::vector<NodeId> order_by_definition(const Graph& graph) {
  std::map<NodeId, std::set<NodeId>> waits;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    waits[id];
    for (const ValueId in : graph.nodes[id].inputs)
      if (graph.values[in].producer != kNone) waits[id].insert(graph.values[in].producer);
  }
  const auto uses = uses_of(graph);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!graph.nodes[id].op->has(kMustAlias)) continue;
    std::vector<ValueId> reached;
    for (const auto& [output, input] : graph.nodes[id].op->aliases(graph.nodes[id]))
      reached.push_back(graph.nodes[id].inputs[static_cast<std::size_t>(input)]);
    for (std::size_t i = 0; i < reached.size(); ++i)
      for (const Use& use : uses[reached[i]]) {
        if (use.node != id) waits[id].insert(use.node);
        if (graph.nodes[use.node].op->has(kView)) reached.push_back(graph.nodes[use.node].outputs[0]);
      }
  }
  std::vector<NodeId> order;
  while (!waits.empty()) {
    NodeId next = kNone;
    for (const auto& [id, others] : waits)
      if (others.empty() && (next == kNone || graph.nodes[id].rank < graph.nodes[next].rank)) next = id;
    if (next == kNone) return {};
    waits.erase(next);
    for (auto& [id, others] : waits) others.erase(next);
    order.push_back(next);
  }
  return order;
}

TEST(Graph, OrderIsTheOneThatIsDefined) {
  int by_rank = 0, other = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return random() % n; };
    Graph graph;
    GraphBuilder b(graph);
    const Type type{DType::f32, {4}};
    std::vector<ValueId> values{b.input("x", type)},
        states{b.state("s", Tensor(type.dtype, type.shape)), b.state("t", Tensor(type.dtype, type.shape))};
    const ValueId first = b.input("first", {DType::i64, {}});
    for (int i = 0; i < 25; ++i) {
      // Ranks mostly grow with the nodes.
      const BuildScope scope(
          b, {.rank = static_cast<std::int64_t>(below(8) == 0 && seed % 2 == 1 ? below(30) : i + 5)});
      const auto any = [&] {
        const std::size_t k = below(values.size() + states.size());
        return k < values.size() ? values[k] : states[k - values.size()];
      };
      if (below(3) == 0)
        values.push_back(b.op("Identity", {any()}));
      else
        values.push_back(b.op("Add", {any(), any()}));
    }
    for (const ValueId state : states) {
      const BuildScope scope(b, {.rank = static_cast<std::int64_t>(below(60))});
      b.update(state, b.op("Accumulate", {state, values[below(values.size())], first}));
    }
    const std::vector<NodeId> expected = order_by_definition(graph);
    const auto order = topological_order(graph);
    ASSERT_EQ(order.ok(), !expected.empty()) << "seed " << seed;
    if (!order.ok()) continue;
    EXPECT_EQ(*order, expected) << "seed " << seed;
    (std::is_sorted(order->begin(), order->end(),
                    [&](NodeId one, NodeId next) {
                      return std::pair(graph.nodes[one].rank, one) < std::pair(graph.nodes[next].rank, next);
                    })
         ? by_rank
         : other)++;
  }
  EXPECT_GT(by_rank, 10);
  EXPECT_GT(other, 10);
}

TEST(Graph, DumpIsStableAndHashed) {
  const Small a, b;
  EXPECT_EQ(dump(a.graph), dump(b.graph));
  EXPECT_EQ(graph_hash(a.graph), graph_hash(b.graph));
  EXPECT_NE(dump(a.graph).find("%Relu:v f32[2, 3] = Relu(%Add:v)"), std::string::npos);
}

TEST(Rewriter, ReplacesAndKeepsNamesOriginsAndLog) {
  Small s;
  s.graph.sources = {{"n0", "Add", "", "block"}, {"n1", "Relu", "", "block"}};
  s.graph.nodes[0].origin.sources = {0};
  s.graph.nodes[1].origin.sources = {1};
  Rewriter rw(s.graph, "test-pass");
  GraphBuilder& b = rw.begin("rule", 1, {1, 0});
  const ValueId bias = s.b, x = s.x;
  const ValueId sum = b.op("Add", {x, bias});
  const ValueId y = b.op("Tanh", {sum});
  const std::string name = s.graph.values[s.y].name;
  rw.replace(s.y, y);
  rw.commit("because");
  EXPECT_TRUE(verify(s.graph).ok());
  EXPECT_EQ(s.graph.outputs[0], y);
  EXPECT_EQ(s.graph.values[y].name, name);
  ASSERT_EQ(rw.log().size(), 1u);
  EXPECT_TRUE(rw.log()[0].matched);
  EXPECT_EQ(rw.log()[0].removed.size(), 2u);
  EXPECT_EQ(rw.log()[0].added.size(), 2u);
  const Node& made = s.graph.nodes[s.graph.values[y].producer];
  EXPECT_EQ(made.origin.sources, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(passes_text(s.graph, made), "test-pass");
}

TEST(Rewriter, OriginsKeepTheChainOfPasses) {
  Small s;
  const auto rewrite = [&](const char* pass, NodeId node, const char* op) {
    Rewriter rw(s.graph, pass);
    const ValueId in = s.graph.nodes[node].inputs[0], out = s.graph.nodes[node].outputs[0];
    rw.replace(out, rw.begin("rule", node, {node}).op(op, {in}));
    rw.commit();
    return static_cast<NodeId>(s.graph.nodes.size() - 1);
  };
  const NodeId tanh = rewrite("first", 1, "Tanh"), exp = rewrite("second", tanh, "Exp");
  EXPECT_EQ(passes_text(s.graph, s.graph.nodes[0]), "") << "no pass touched it";
  EXPECT_EQ(passes_text(s.graph, s.graph.nodes[exp]), "first,second");
  EXPECT_EQ(last_pass("first,second"), "second");
  EXPECT_EQ(last_pass("first"), "first");
  EXPECT_EQ(last_pass(""), "");
  Rewriter last(s.graph, "third");  // of a node that two chains lead to
  last.replace(s.graph.outputs[0],
               last.begin("rule", exp, {exp, 0}).op("Tanh", {s.graph.nodes[exp].inputs[0]}));
  last.commit();
  EXPECT_EQ(passes_text(s.graph, s.graph.nodes.back()), "first,second,third");
  EXPECT_EQ(s.graph.passes, (std::vector<std::string>{"first", "second", "third"}));
  EXPECT_TRUE(verify(s.graph).ok());
  s.graph.nodes.back().origin.passes = {7};
  EXPECT_NE(verify(s.graph).error().message.find("a pass that does not exist"), std::string::npos);
}

// Products of [4, 8] and of half as many rows, by the operators' cost rows.
struct SavedByRewrites : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId x = b.input("x", {DType::f32, {4, 8}}), w = b.parameter("w", Tensor(DType::f32, {8, 8}));
  ValueId y = b.op("MatMul", {x, w}), z = b.op("MatMul", {b.op("Neg", {y}), w});
  NodeId maker(ValueId v) { return graph.values[v].producer; }
};

TEST_F(SavedByRewrites, WhatGoesLessWhatComes) {
  graph.outputs = {z};
  Rewriter rw(graph, "test-pass");
  GraphBuilder& builder = rw.begin("rule", maker(z), {maker(z)});
  rw.replace(z, builder.op("Neg", {y}));
  rw.commit();
  const SavedWork saved = rw.log().back().saves.value();
  EXPECT_EQ(saved.flops, 2.0 * 4 * 8 * 8 - 32);
  EXPECT_EQ(saved.bytes, 4.0 * (32 + 64 + 32 - 32 - 32));
  EXPECT_EQ(saved.kernels, 0);
}

// Each node is counted before the first of those that it reads from changes.
TEST_F(SavedByRewrites, WhatChangedNodesDidLessWhatTheyDo) {
  graph.outputs = {z};
  const ValueId rows = b.input("rows", {DType::f32, {2, 8}});
  Rewriter rw(graph, "test-pass");
  rw.begin("rule", maker(y), {maker(y)});
  for (const ValueId v : {y, graph.nodes[maker(z)].inputs[0], z}) {
    std::vector<ValueId> inputs = graph.nodes[maker(v)].inputs;
    if (v == y) inputs[0] = rows;
    rw.retype(maker(v), inputs, {});
  }
  rw.commit();
  const SavedWork saved = rw.log().back().saves.value();
  EXPECT_EQ(saved.flops, 2 * 2.0 * 2 * 8 * 8 + 16);
  EXPECT_EQ(saved.bytes, 4.0 * 16 * 6);
  EXPECT_EQ(saved.kernels, 0);
}

TEST_F(SavedByRewrites, UnknownSizesSayNothing) {
  const ValueId symbolic = b.input("n", {DType::f32, {-1, 8}}), some = b.op("Neg", {symbolic});
  graph.symbols = {"n"};
  graph.outputs = {some};
  Rewriter rw(graph, "test-pass");
  GraphBuilder& builder = rw.begin("rule", maker(some), {maker(some)});
  rw.replace(some, builder.op("Tanh", {symbolic}));
  rw.commit();
  EXPECT_FALSE(rw.log().back().saves.has_value());
  rw.reject("rule", maker(y), "why");
  EXPECT_FALSE(rw.log().back().saves.has_value());
}

// The last new node takes the anchor's name when the builder chose its own: also when that looks
// like another operator's, and never when the pass chose it.
TEST(Rewriter, GivenNamesStay) {
  for (const bool given : {false, true}) {
    Small s;
    const std::string anchor = s.graph.nodes[1].name;
    Rewriter rw(s.graph, "test-pass");
    GraphBuilder& b = rw.begin("rule", 1, {1});
    const auto made = b.add(op_by_name("Tanh"), {s.sum}, {}, 1, {}, given ? "Tanh of mine" : "");
    ASSERT_TRUE(made.ok());
    rw.replace(s.y, (*made)[0]);
    rw.commit();
    EXPECT_EQ(s.graph.nodes.back().name, given ? "Tanh of mine" : anchor);
    EXPECT_EQ(rw.log()[0].added, std::vector<std::string>{s.graph.nodes.back().name});
  }
}

TEST(Rewriter, RemovesWhatNothingNeeds) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {2}}), kept = b.op("Tanh", {x});
  b.op("Exp", {b.op("Neg", {kept})});
  graph.outputs = {kept};
  const std::string neg = graph.nodes[1].name, exp = graph.nodes[2].name;
  Graph excluded = graph;
  Rewriter rw(graph, "test-pass");
  ASSERT_TRUE(remove_unneeded(rw, "unneeded").ok());
  EXPECT_EQ(live_node_count(graph), 1u);
  EXPECT_EQ(rw.use_count(kept), 1u) << "an output, and read by no node that is left";
  ASSERT_EQ(rw.log().size(), 2u);
  EXPECT_EQ(rw.log()[0].removed, std::vector<std::string>{exp}) << "consumers first";
  EXPECT_EQ(rw.log()[1].removed, std::vector<std::string>{neg});
  Rewriter off(excluded, "test-pass", {{exp}});
  ASSERT_TRUE(remove_unneeded(off, "unneeded").ok());
  EXPECT_EQ(live_node_count(excluded), 3u) << "switched off: it stays, and what it reads";
}

TEST(Rewriter, RetypesInPlaceAndMovesOutputsAlone) {
  Small s;
  const std::string output = s.graph.values[s.y].name;
  Rewriter rw(s.graph, "test-pass");
  const auto cast = [](GraphBuilder& b, ValueId v, std::int64_t to) {
    return b.op("Cast", {v}, {{"to", to}});
  };
  constexpr std::int64_t kF32 = 1, kBf16 = 16;
  GraphBuilder& b = rw.begin("low", 0, {0});
  const ValueId x = cast(b, s.x, kBf16), bias = cast(b, s.b, kBf16);
  rw.retype(0, {x, bias}, {});
  rw.commit();
  rw.begin("low", 1, {1});
  rw.retype(1, {s.sum}, {});
  rw.commit();
  EXPECT_EQ(s.graph.type(s.sum), (Type{DType::bf16, {2, 3}}));
  EXPECT_EQ(rw.log()[0].changed, std::vector<std::string>{s.graph.nodes[0].name});
  EXPECT_EQ(passes_text(s.graph, s.graph.nodes[0]), "test-pass");
  EXPECT_EQ(s.graph.type(s.y), (Type{DType::bf16, {2, 3}}));
  EXPECT_EQ(rw.use_count(s.x), 1u) << "read by the cast alone";
  EXPECT_EQ(rw.use_count(bias), 1u);
  rw.replace_outputs(s.y, cast(rw.begin("output", 1, {1}), s.y, kF32));
  rw.commit();
  EXPECT_EQ(s.graph.type(s.graph.outputs[0]), (Type{DType::f32, {2, 3}}));
  EXPECT_EQ(s.graph.values[s.graph.outputs[0]].name, output) << "the model's name stays with the output";
  EXPECT_FALSE(rw.is_output(s.y));
  EXPECT_TRUE(verify(s.graph).ok());
}

TEST(Rewriter, ExcludedSitesAreRefusedAndLogged) {
  Small s;
  Rewriter rw(s.graph, "p", {{s.graph.nodes[1].name}});
  EXPECT_TRUE(rw.allowed("rule", 0));
  EXPECT_FALSE(rw.allowed("rule", 1));
  ASSERT_EQ(rw.log().size(), 1u);
  EXPECT_FALSE(rw.log()[0].matched);
}

TEST(Builder, ScopesEndWhereTheyEnd) {
  Graph graph;
  GraphBuilder b(graph, {.rank = 3, .name_prefix = "outer/"});
  const ValueId x = b.input("x", {DType::f32, {1}});
  {
    const BuildScope inner(b, b.context().named("inner/"));
    b.op("Relu", {x});
    const BuildScope innermost(b, {.origin = {{}, Phase::backward}, .rank = 7});
    b.op("Relu", {x});
  }
  b.op("Relu", {x});
  EXPECT_EQ(graph.nodes[0].name, "inner/Relu");
  EXPECT_EQ(graph.nodes[0].rank, 3);
  EXPECT_EQ(graph.nodes[1].name, "Relu");
  EXPECT_EQ(graph.nodes[1].rank, 7);
  EXPECT_EQ(graph.values[graph.nodes[1].outputs[0]].role, Role::gradient);
  EXPECT_EQ(graph.nodes[2].name, "outer/Relu");
  EXPECT_EQ(graph.nodes[2].rank, 3);
}

TEST(Builder, AddsResultsThatANodeWasMadeWithout) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {2, 3}});
  b.op("Dropout", {x});
  const ValueId mask = b.add_output(0, 1);
  EXPECT_EQ(graph.nodes[0].outputs[1], mask);
  EXPECT_EQ(graph.type(mask), (Type{DType::boolean, {2, 3}}));
  EXPECT_TRUE(verify(graph).ok());
}

TEST(Builder, NamesNeverCollide) {
  Graph graph;
  GraphBuilder a(graph), b(graph);
  const ValueId x = a.input("Relu", {DType::f32, {1}});
  a.op("Relu", {x});
  b.op("Relu", {x});
  a.op("Relu", {x});
  EXPECT_TRUE(verify(graph).ok());
}

TEST(Builder, SmallConstantsAreShared) {
  Graph graph;
  GraphBuilder b(graph);
  EXPECT_EQ(b.scalar(DType::f32, 2.0), b.scalar(DType::f32, 2.0));
  EXPECT_NE(b.scalar(DType::f32, 2.0), b.scalar(DType::f64, 2.0));
}

}  // namespace
}  // namespace gradloom
