// memory-order lowers peaks, never raises one, and computes the same.
#include <gtest/gtest.h>

#include <string_view>

#include "engine/plan/plan.h"
#include "kernels/cpu.h"
#include "passes/planners.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using namespace test;

PlanOptions options() {
  PlanOptions options;
  options.planner = find_planner("best-fit")->plan;
  options.planner_name = "best-fit";
  return options;
}

std::int64_t arena_of(const Graph& graph) {
  const auto plan = make_plan(graph, options());
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  EXPECT_TRUE(check_plan(graph, *plan).ok());
  return plan->arena_bytes;
}

// `count` products of 64 x 64 that are all made before they are summed up one by one.
Graph wide(int count) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {64, 8}}), y = b.input("y", {DType::f32, {8, 64}});
  std::vector<ValueId> products;
  for (int i = 0; i < count; ++i) products.push_back(b.op("MatMul", {x, y}));
  for (const ValueId v : products)
    graph.outputs.push_back(b.op("ReduceSum", {v}, {{"keepdims", std::int64_t{0}}}));
  return graph;
}

TEST(MemoryOrder, RunsReadersBeforeMoreIsMade) {
  Graph graph = wide(6);
  EXPECT_GE(arena_of(graph), 6 * 64 * 64 * 4);
  const Graph before = graph;
  const PassReport report = run_pass(graph, "memory-order");
  EXPECT_EQ(report.matched, 1);
  EXPECT_LE(arena_of(graph), 64 * 64 * 4 + 7 * kAlignmentBytes + 64 * 64);
  expect_same_results(before, graph, 0);
  EXPECT_NE(report.log[0].why.find("falls from"), std::string::npos) << report.log[0].why;
}

TEST(MemoryOrder, LeavesAnOrderThatIsBest) {
  Graph graph;
  GraphBuilder b(graph);
  ValueId x = b.input("x", {DType::f32, {64, 64}});
  for (int i = 0; i < 6; ++i) x = b.op("MatMul", {x, x});
  graph.outputs = {x};
  const std::string before = dump(graph);
  EXPECT_EQ(run_pass(graph, "memory-order").matched, 0);
  EXPECT_EQ(dump(graph), before);
}

TEST(MemoryOrder, SmallGainsAreLeftAlone) {
  Graph graph = wide(6);
  EXPECT_EQ(run_pass(graph, "memory-order{min_percent=90}").matched, 0);
  EXPECT_EQ(run_pass(graph, "memory-order{min_percent=50}").matched, 1);
}

// The parameter is read by a node that would gladly run last: the update waits for it all the same.
TEST(MemoryOrder, UpdatesWaitForTheReadersOfWhatTheyWriteOver) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper),
                step = b.input("step", {DType::i64, {}}, Role::hyper);
  const ValueId p = b.parameter("p", Tensor(DType::f32, {64, 64})), x = b.input("x", {DType::f32, {64, 64}});
  std::vector<ValueId> products;
  for (int i = 0; i < 4; ++i) products.push_back(b.op("MatMul", {x, p}));
  ValueId sum = kNone;
  for (const ValueId v : products) {
    const ValueId one = b.op("ReduceSum", {v}, {{"keepdims", std::int64_t{0}}});
    sum = sum == kNone ? one : b.op("Add", {sum, one});
  }
  const ValueId gradient = b.op("MatMul", {x, x});
  GraphBuilder update(graph, {.origin = {{}, Phase::optimizer}});
  const ValueId next = update.op("Optimizer", {lr, step, kNone, kNone, p, gradient},
                                 {{"kind", std::string("sgd")}, {"n", std::int64_t{1}}});
  graph.updates = {{p, next}};
  graph.outputs = {sum};
  const std::int64_t before = arena_of(graph);
  EXPECT_EQ(run_pass(graph, "memory-order").matched, 1);
  EXPECT_LT(arena_of(graph), before);
}

// `outputs`: so many of the last values.
Graph random_graph(std::mt19937& random, int nodes, std::size_t outputs) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<ValueId> values{b.input("x", {DType::f32, {16, 16}})};
  for (int i = 0; i < nodes; ++i) {
    const ValueId from = values[random() % values.size()], other = values[random() % values.size()];
    switch (random() % 4) {
      case 0: values.push_back(b.op("Tanh", {from})); break;
      case 1: values.push_back(b.op("Concat", {from, other}, {{"axis", std::int64_t{0}}})); break;
      case 2: values.push_back(b.op("MatMul", {from, values[0]})); break;
      default: values.push_back(b.op("ReduceSum", {from, b.i64s({0})}, {{"keepdims", std::int64_t{1}}}));
    }
  }
  graph.outputs.assign(values.rbegin(), values.rbegin() + static_cast<std::ptrdiff_t>(outputs));
  return graph;
}

// Chains that split and join at random.
TEST(MemoryOrder, NoRandomGraphNeedsMoreThanBefore) {
  int lower = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Graph graph = random_graph(random, 30, 6);
    run_pass(graph, "dead-code");
    const Graph before = graph;
    const PassReport report = run_pass(graph, "memory-order");
    const std::int64_t now = arena_of(graph), then = arena_of(before);
    EXPECT_LE(now, then);
    lower += now < then ? 1 : 0;
    EXPECT_EQ(report.matched > 0, now < then);
    expect_same_results(before, graph, 0);
    EXPECT_EQ(run_pass(graph, "memory-order").matched, 0) << "another round finds more";
  }
  EXPECT_GT(lower, 20);
}

// body(order) for each order in which the nodes can run; false: there are more than `most`.
class AllOrders {
 public:
  AllOrders(const Graph& graph, std::size_t most) : graph_(graph), left_(most), done_(graph.nodes.size()) {}
  template <class Body>
  bool visit(const Body& body) {
    bool any = false;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (!graph_.nodes[id].alive() || done_[id] || !is_ready(id)) continue;
      any = done_[id] = true;
      order_.push_back(id);
      const bool more = visit(body);
      order_.pop_back();
      done_[id] = false;
      if (!more) return false;
    }
    if (any) return true;
    if (left_ == 0) return false;
    --left_;
    body(order_);
    return true;
  }

 private:
  bool is_ready(NodeId id) const {
    for (const ValueId in : graph_.nodes[id].inputs)
      if (in != kNone && graph_.values[in].producer != kNone && !done_[graph_.values[in].producer])
        return false;
    return true;
  }
  const Graph& graph_;
  std::size_t left_;
  std::vector<bool> done_;
  std::vector<NodeId> order_;
};

std::int64_t live_at_most(const Graph& graph) {
  const auto plan = make_plan(graph, options());
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  return plan.ok() ? plan->lower_bound_bytes : 0;
}

// Against every order of small graphs: what is found is the best, but for min_percent, in four of five of them.
TEST(MemoryOrder, IsNearTheBestOfAllOrders) {
  int graphs = 0, best_found = 0, bettered = 0;
  double worst = 1;
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Graph graph = random_graph(random, 9, 2);
    run_pass(graph, "dead-code");
    std::int64_t best = live_at_most(graph);
    const std::int64_t before = best;
    Graph ordered = graph;
    const bool all = AllOrders(graph, 2000).visit([&](const std::vector<NodeId>& order) {
      for (std::size_t i = 0; i < order.size(); ++i)
        ordered.nodes[order[i]].rank = static_cast<std::int64_t>(i);
      best = std::min(best, live_at_most(ordered));
    });
    if (!all) continue;
    ++graphs;
    bettered += best < before ? 1 : 0;
    run_pass(graph, "memory-order");
    const double ratio = static_cast<double>(live_at_most(graph)) / static_cast<double>(best);
    best_found += ratio <= 1.01 ? 1 : 0;
    worst = std::max(worst, ratio);
  }
  EXPECT_EQ(graphs, 400);
  EXPECT_GT(bettered, 100);
  EXPECT_GE(best_found, 316);
  // With AVX-512 products take workspaces, which are in every order.
  EXPECT_LE(worst, kernels::cpu().isa == std::string_view("v4") ? 1.6 : 1.9);
}

}  // namespace
}  // namespace gradloom
