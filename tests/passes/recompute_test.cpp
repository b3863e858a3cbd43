#include "passes/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "passes/compile.h"
#include "passes/planners.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

// Layers of a product and two activations, which the backward pass reads.
Graph network(int layers, bool with_dropout = false) {
  return test::layered_network(layers, [&](GraphBuilder& b, ValueId product, int i) {
    const ValueId x = b.op("Tanh", {b.op("Sigmoid", {product})});
    if (!with_dropout) return x;
    return b.op("Dropout", {x, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)},
                {{"key", std::int64_t{i}}});
  });
}

CompileOptions training(std::int64_t budget = 0) {
  CompileOptions options;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer("sgd{lr=0.1}");
  options.memory_budget_bytes = budget;
  return options;
}

TEST(Recompute, TheCurveGoesFromNothingToTheSmallestPeak) {
  const auto compiled = compile(network(12), training());
  ASSERT_OK(compiled);
  const auto curve = memory_curve(*compiled, training());
  ASSERT_OK(curve);
  ASSERT_GE(curve->size(), 4u);
  EXPECT_TRUE(curve->front().nodes.empty());
  EXPECT_EQ(curve->front().cost, 0);
  EXPECT_EQ(curve->front().peak_bytes, compiled->plan.peak_lower_bound_bytes());
  for (std::size_t i = 1; i < curve->size(); ++i) {
    EXPECT_GT((*curve)[i].cost, (*curve)[i - 1].cost);
    EXPECT_LT((*curve)[i].peak_bytes, (*curve)[i - 1].peak_bytes);
  }
  const std::int64_t fixed = compiled->plan.peak_bytes() - compiled->plan.arena_bytes;
  EXPECT_LT(curve->back().peak_bytes - fixed, compiled->plan.arena_bytes / 2) << "the arena is halved";
}

TEST(Recompute, EveryChoiceIsAPlanThatHoldsAndGivesTheSame) {
  for (const bool with_dropout : {false, true}) {
    const auto compiled = compile(network(9, with_dropout), training());
    ASSERT_OK(compiled);
    const auto curve = memory_curve(*compiled, training());
    ASSERT_OK(curve);
    for (const RecomputeChoice& choice : *curve) {
      Graph graph = compiled->train.graph;
      std::vector<PassReport> reports;
      ASSERT_OK(apply_recompute(graph, choice.nodes, reports));
      ASSERT_OK(verify(graph));
      EXPECT_EQ(reports[0].matched == 0, choice.nodes.empty());
      const auto plan = make_plan(graph, {find_planner("best-fit")->plan, "best-fit"});
      ASSERT_OK(plan);
      ASSERT_OK(check_plan(graph, *plan));
      EXPECT_EQ(plan->peak_lower_bound_bytes(), choice.peak_bytes);
      test::expect_same_results(compiled->train.graph, graph, 0);
    }
  }
}

TEST(Recompute, ABudgetIsMetAtTheLeastCostOrRefused) {
  const auto whole = compile(network(12), training());
  ASSERT_OK(whole);
  const std::int64_t peak = whole->plan.peak_bytes();
  std::size_t before = 0;
  for (const double part : {1.0, 0.9, 0.8, 0.7}) {
    const auto budget = static_cast<std::int64_t>(static_cast<double>(peak) * part);
    const auto compiled = compile(network(12), training(budget));
    ASSERT_OK(compiled);
    EXPECT_LE(compiled->plan.peak_bytes(), budget);
    ASSERT_OK(check_plan(compiled->train.graph, compiled->plan));
    EXPECT_GE(compiled->plan.steps.size(), std::max(before, whole->plan.steps.size())) << part;
    before = compiled->plan.steps.size();
    EXPECT_EQ(compiled->reports.empty(), part == 1.0);
  }
  const auto refused = compile(network(12), training(1000));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::device);
  EXPECT_NE(refused.error().message.find("cannot be met"), std::string::npos) << refused.error().message;
}

CompileOptions naming(std::vector<std::string> patterns) {
  CompileOptions options = training();
  options.recompute = std::move(patterns);
  return options;
}
std::size_t count_of(const Graph& graph, const std::string& op) {
  return static_cast<std::size_t>(std::count_if(
      graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.alive() && n.op->name == op; }));
}

TEST(Recompute, WhatIsNamedRunsAgainAndGivesTheSame) {
  for (const bool with_dropout : {false, true}) {
    const Graph model = network(6, with_dropout);
    const auto whole = compile(model, training());
    ASSERT_OK(whole);
    EXPECT_EQ(count_of(whole->train.graph, "Sigmoid"), 6u);
    for (const std::vector<std::string>& patterns :
         {std::vector<std::string>{"Sigmoid"}, {"Sigmoid", "MatMul"}, {"*"}, {"Dropout", "Tanh"}}) {
      const auto again = compile(model, naming(patterns));
      ASSERT_OK(again);
      ASSERT_OK(check_plan(again->train.graph, again->plan));
      EXPECT_GT(again->reports.back().matched, 0u);
      test::expect_same_results(whole->train.graph, again->train.graph, 0);
    }
    const auto sigmoids = compile(model, naming({"Sigmoid"}));
    ASSERT_OK(sigmoids);
    EXPECT_EQ(count_of(sigmoids->train.graph, "Sigmoid"), 12u);
    EXPECT_EQ(count_of(sigmoids->train.graph, "Tanh"), 6u);
    // With the products nothing but Tanh's results is kept of a layer.
    const auto products = compile(model, naming({"Sigmoid", "MatMul"}));
    ASSERT_OK(products);
    EXPECT_LT(products->plan.arena_bytes, whole->plan.arena_bytes);
  }
}

// With log-sum-exp, which the gradient reads beside the result, and the same dropout.
TEST(Recompute, AttentionRunsAgainWithBothOfItsResults) {
  const Graph model = test::layered_network(4, [](GraphBuilder& b, ValueId product, int i) {
    return b.op("FusedAttention", {product, product, product},
                {{"scale", 0.5}, {"dropout", 0.25}, {"key", std::int64_t{i}}});
  });
  const auto whole = compile(model, training());
  ASSERT_OK(whole);
  for (const std::vector<std::string>& patterns :
       {std::vector<std::string>{"FusedAttention"}, {"FusedAttention", "MatMul"}}) {
    const auto again = compile(model, naming(patterns));
    ASSERT_OK(again);
    ASSERT_OK(check_plan(again->train.graph, again->plan));
    EXPECT_EQ(count_of(again->train.graph, "FusedAttention"), 8u);
    EXPECT_EQ(count_of(again->train.graph, "FusedAttentionGrad"), 4u);
    test::expect_same_results(whole->train.graph, again->train.graph, 0);
  }
}

TEST(Recompute, NodesCanBeNamedByTheirNames) {
  Graph model = network(4);
  int layer = 0;
  for (Node& node : model.nodes)
    if (node.op->name == std::string("Sigmoid")) node.name = "/layers." + std::to_string(layer++) + "/gate";
  const auto one = compile(model, naming({"/layers.2/*"}));
  ASSERT_OK(one);
  EXPECT_EQ(count_of(one->train.graph, "Sigmoid"), 5u);
  ASSERT_EQ(one->reports.back().matched, 1u);
  EXPECT_EQ(one->reports.back().log[0].added, std::vector<std::string>{"/layers.2/gate/again"});
  EXPECT_TRUE(one->notes.empty());
  const auto three = compile(model, naming({"/layers.0/gate", "/layers.1/*", "/lay*.3/gate", "/layers.0/*"}));
  ASSERT_OK(three);
  EXPECT_EQ(three->reports.back().matched, 3u);
}

TEST(Recompute, WhatIsNamedInVainIsTold) {
  const auto products = compile(network(4), naming({"MatMul"}));  // Sigmoid's gradient reads its result alone
  ASSERT_OK(products);
  EXPECT_EQ(products->reports.back().matched, 0u);
  ASSERT_EQ(products->reports.back().log.size(), 4u);
  EXPECT_EQ(products->reports.back().log[0].why, "nothing after the loss reads it");
  ASSERT_EQ(products->notes.size(), 1u);
  EXPECT_NE(products->notes[0].find("recompute"), std::string::npos);
  const auto unknown = compile(network(4), naming({"Sigmiod"}));
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, Errc::usage);
  EXPECT_NE(unknown.error().message.find("--recompute: 'Sigmiod'"), std::string::npos)
      << unknown.error().message;
}

// Running statistics must not be read when they have changed.
TEST(Recompute, WhatReadsAStateRunsOnce) {
  Graph graph;
  GraphBuilder b(graph);
  const auto vector = [&](const char* name) {
    return b.parameter(name, Tensor::from_f64(DType::f32, {16}, std::vector<double>(16, 0.5)));
  };
  const ValueId x = b.input("x", {DType::f32, {64, 16}}), mean = vector("running_mean");
  graph.values[mean].role = Role::state;
  const ValueId y = b.op("Sin", {b.op("Sub", {b.op("Mul", {x, vector("w")}), mean})});
  const ValueId loss = b.op("ReduceMean", {b.op("Square", {y})}, {{"keepdims", std::int64_t{0}}});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  const auto compiled = compile(graph, naming({"Sub", "Sin"}));
  ASSERT_OK(compiled);
  EXPECT_EQ(count_of(compiled->train.graph, "Sub"), 1u);
  EXPECT_EQ(count_of(compiled->train.graph, "Sin"), 2u);
  const auto& log = compiled->reports.back().log;
  EXPECT_TRUE(std::any_of(log.begin(), log.end(), [](const RewriteRecord& r) {
    return !r.matched && r.why == "it reads or changes a state, so it runs once";
  }));
}

TEST(Recompute, ABudgetBeginsFromWhatIsNamed) {
  const auto named = compile(network(12), naming({"Sigmoid", "MatMul"}));
  ASSERT_OK(named);
  CompileOptions options = naming({"Sigmoid", "MatMul"});
  options.memory_budget_bytes = named->plan.peak_bytes();
  const auto enough = compile(network(12), options);
  ASSERT_OK(enough);
  EXPECT_EQ(enough->plan.hash, named->plan.hash);
  options.memory_budget_bytes = named->plan.peak_bytes() * 9 / 10;
  const auto less = compile(network(12), options);
  ASSERT_OK(less);
  EXPECT_LE(less->plan.peak_bytes(), options.memory_budget_bytes);
  test::expect_same_results(named->train.graph, less->train.graph, 0);
}

// Tanh and Sigmoid look alike; times say which of them is cheap.
TEST(Recompute, TimesOfKernelsDecideWhatIsCheap) {
  for (const std::string dear : {"Tanh", "Sigmoid"}) {
    CompileOptions options = training();
    options.train.accumulate = 3;
    options.kernel_ns = [&](const Graph& graph, const Plan& plan) {
      std::vector<double> ns;
      for (const PlanStep& step : plan.steps)
        ns.push_back(graph.nodes[step.node].op->name == dear ? 500 : 10);
      return ns;
    };
    const auto compiled = compile(network(12), options);
    ASSERT_OK(compiled);
    const auto curve = memory_curve(*compiled, options);
    ASSERT_OK(curve);
    double once = 0;
    const std::vector<double> ns = options.kernel_ns(compiled->train.graph, compiled->plan);
    for (std::size_t i = 0; i < ns.size(); ++i) once += ns[i] * (compiled->plan.steps[i].micro ? 3 : 1);
    EXPECT_DOUBLE_EQ(curve->front().step_ns, once);
    ASSERT_GE(curve->size(), 3u);
    const RecomputeChoice& first = (*curve)[1];
    double again = 0;
    for (const NodeId id : first.nodes) {
      EXPECT_NE(compiled->train.graph.nodes[id].op->name, dear);
      again += 30;
    }
    EXPECT_NEAR(first.step_ns, once + again, 1e-6 * once);
    options.memory_budget_bytes = compiled->plan.peak_bytes() * 9 / 10;
    const auto fitted = compile(network(12), options);
    ASSERT_OK(fitted);
    EXPECT_EQ(count_of(fitted->train.graph, dear), 12u);
    test::expect_same_results(compiled->train.graph, fitted->train.graph, 0);
  }
}

// Every set of forward nodes of a small network, by brute force.
struct AllChoices {
  std::vector<NodeId> forward{};
  std::vector<std::int64_t> peaks{};  // by set, as bits
};
void find_all(const Graph& graph, AllChoices& all) {
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (const Node& n = graph.nodes[id]; n.alive() && n.origin.phase == Phase::forward)
      all.forward.push_back(id);
  all.peaks.resize(std::size_t{1} << all.forward.size());
  PlanOptions options{find_planner("best-fit")->plan, "best-fit"};
  options.pieces = false;
  for (std::size_t set = 0; set < all.peaks.size(); ++set) {
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < all.forward.size(); ++i)
      if ((set >> i & 1) != 0) nodes.push_back(all.forward[i]);
    Graph again = graph;
    std::vector<PassReport> reports;
    ASSERT_OK(apply_recompute(again, nodes, reports));
    const auto plan = make_plan(again, options);
    ASSERT_OK(plan);
    all.peaks[set] = plan->peak_lower_bound_bytes();
  }
}

// Of all choices: for every peak that any of them reaches the curve offers as much for at most so much of the step more than the
// cheapest does, whatever the nodes cost, and no choice beats the bounds that it tells.
void expect_near(int layers, unsigned seeds, double most_time, double most_peak) {
  const auto compiled = compile(network(layers), training());
  ASSERT_OK(compiled);
  const Graph& graph = compiled->train.graph;
  AllChoices all;
  find_all(graph, all);
  double worst = 0, smallest = 0;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::vector<double> ns(graph.nodes.size(), 0);
    for (double& one : ns) one = seed == 0 ? 100 : 10.0 + static_cast<double>(random() % 1000);
    CompileOptions options = training();
    options.kernel_ns = [&](const Graph&, const Plan& plan) {
      std::vector<double> times;
      for (const PlanStep& step : plan.steps) times.push_back(ns[step.node]);
      return times;
    };
    const auto curve = memory_curve(*compiled, options);
    ASSERT_OK(curve);
    const double step_ns = curve->front().step_ns;
    std::map<std::int64_t, double> cheapest;  // by peak
    for (std::size_t set = 0; set < all.peaks.size(); ++set) {
      double cost = 0;
      for (std::size_t i = 0; i < all.forward.size(); ++i)
        cost += (set >> i & 1) != 0 ? ns[all.forward[i]] : 0;
      const auto at = cheapest.emplace(all.peaks[set], cost).first;
      at->second = std::min(at->second, cost);
    }
    double best = HUGE_VAL;
    for (const auto& [peak, cost] : cheapest) {  // the smallest peak first
      best = std::min(best, cost / step_ns);
      const auto offered = std::find_if(curve->begin(), curve->end(),
                                        [&](const RecomputeChoice& c) { return c.peak_bytes <= peak; });
      if (offered == curve->end()) continue;
      worst = std::max(worst, (1 + offered->cost) / (1 + best));
      if (offered->peak_bytes == peak) {
        EXPECT_LE(offered->least_cost, best * (1 + 1e-12)) << peak;
      }
      EXPECT_LE(offered->least_peak_bytes, cheapest.begin()->first);
    }
    EXPECT_GT(curve->back().least_cost, 0);
    const std::int64_t fixed = compiled->plan.peak_bytes() - compiled->plan.arena_bytes;
    smallest = std::max(smallest, static_cast<double>(curve->back().peak_bytes - fixed) /
                                      static_cast<double>(cheapest.begin()->first - fixed));
  }
  EXPECT_LE(worst, most_time);
  EXPECT_LE(smallest, most_peak);
}

TEST(Recompute, TheCurveOfASmallNetworkIsTheBestThatThereIs) { expect_near(3, 16, 1 + 1e-12, 1); }
TEST(Recompute, TheCurveOfALargerOneIsNearTheBestThatThereIs) { expect_near(4, 8, 1.05, 1.05); }

TEST(Recompute, ItCanBeStopped) {
  const auto compiled = compile(network(6), training());
  ASSERT_OK(compiled);
  std::stop_source stop;
  stop.request_stop();
  const auto curve = memory_curve(*compiled, training(), stop.get_token());
  ASSERT_FALSE(curve.ok());
  EXPECT_EQ(curve.error().code, Errc::interrupted);
}

}  // namespace
}  // namespace gradloom
