// Random graphs through every pass and through all of them: same results. Every dim is 4 or 1, so that most
// operators fit most values, and chains that the fusions look for (transposes, scales, biases, activations
// around products) come up often.
#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

class GraphMaker {
 public:
  explicit GraphMaker(unsigned seed) : random_(seed) {}

  Graph make() {
    Graph graph;
    GraphBuilder b(graph);
    for (std::size_t rank = 0; rank <= 4; ++rank) {
      pool_.push_back(b.input("in" + std::to_string(rank), {DType::f64, Shape(rank, 4)}));
    }
    pool_.push_back(b.input("column", {DType::f64, {4, 1}}));
    pool_.push_back(b.input("matrix", {DType::f64, {4, 4}}));
    for (int i = 0; i < 30; ++i) pool_.push_back(add_node(b));
    for (int i = 0; i < 3; ++i) graph.outputs.push_back(pool_[pool_.size() - 1 - below(8)]);
    const ValueId state = b.input("state", graph.type(pool_.back()), Role::state);
    graph.updates = {{state, b.op("Add", {state, pool_.back()})}};
    return graph;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }

  // Recent values more often: longer chains.
  ValueId pick(const Graph& graph, std::size_t min_rank = 0) {
    for (;;) {
      const std::size_t back = std::min(below(pool_.size()), below(pool_.size()));
      const ValueId v = pool_[pool_.size() - 1 - back];
      if (graph.type(v).shape.size() >= min_rank) return v;
    }
  }

  std::vector<std::int64_t> random_perm(std::size_t rank) {
    std::vector<std::int64_t> perm(rank);
    for (std::size_t i = 0; i < rank; ++i) perm[i] = static_cast<std::int64_t>(i);
    if (rank >= 2 && below(2) == 0)
      std::swap(perm[rank - 1], perm[rank - 2]);
    else
      std::shuffle(perm.begin(), perm.end(), random_);
    return perm;
  }

  ValueId bounded(GraphBuilder& b, ValueId v) { return b.op("Sin", {v}); }

  ValueId add_node(GraphBuilder& b) {
    const Graph& graph = b.graph();
    const double constants[] = {0, 1, 0.5, -2};
    ValueId scalar = b.scalar(DType::f64, constants[below(4)]);
    if (below(4) == 0) scalar = b.op("Neg", {scalar});
    switch (below(14)) {
      case 0:
      case 1: {
        const ValueId p = pick(graph, 2), q = pick(graph, 2);
        const Shape &ps = graph.type(p).shape, &qs = graph.type(q).shape;
        if (ps.back() != qs[qs.size() - 2]) return b.op("Neg", {p});
        return b.op("MatMul", {p, q});
      }
      case 2:
      case 3: {
        const ValueId v = pick(graph, 2);
        return b.op("Transpose", {v}, {{"perm", random_perm(graph.type(v).shape.size())}});
      }
      case 4: return b.op("Mul", {pick(graph), scalar});
      case 5: return b.op("Add", {pool_[1], pick(graph, 1)});
      case 6: return b.op(below(2) == 0 ? "Relu" : "Gelu", {pick(graph)});
      case 7: return b.op("Add", {pick(graph), scalar});
      case 8: return b.op(below(2) == 0 ? "Mul" : "Sub", {bounded(b, pick(graph)), pick(graph)});
      case 9: {
        const ValueId v = pick(graph);
        const Shape shape = graph.type(v).shape;
        const ValueId flat = b.op("Reshape", {v, b.i64s({-1})});
        return b.op("Reshape", {below(2) == 0 ? flat : bounded(b, flat), b.i64s(shape)});
      }
      case 10: return b.op("Where", {b.op("Greater", {pick(graph), scalar}), scalar, pick(graph)});
      case 11:
        return b.op("Dropout",
                    {pick(graph), b.scalar(DType::f64, 0.3), b.scalar(DType::boolean, below(3) != 0)},
                    {{"key", static_cast<std::int64_t>(below(3))}});
      case 12: return b.op("Softmax", {pick(graph, 1)}, {{"axis", std::int64_t{-1}}});
      default: return b.op("Identity", {pick(graph)});
    }
  }

  std::mt19937 random_;
  std::vector<ValueId> pool_;
};

// Largest relative difference over outputs and updates; infinities and NaN must agree too.
void expect_close(const Graph& before, const Graph& after) {
  const testing::Contents fed = testing::random_inputs(before, 3);
  testing::Contents fed_after;
  for (ValueId id = 0; id < after.values.size(); ++id) {
    if (after.values[id].producer != kNone) continue;
    const bool constant = after.values[id].role == Role::constant;
    fed_after[id] = constant ? after.values[id].data : fed.at(find_value(before, after.values[id].name));
  }
  const auto x = testing::evaluate_graph(before, fed), y = testing::evaluate_graph(after, fed_after);
  ASSERT_OK(x);
  ASSERT_OK(y);
  std::vector<std::pair<ValueId, ValueId>> pairs = {{before.updates[0].next, after.updates[0].next}};
  for (std::size_t i = 0; i < before.outputs.size(); ++i)
    pairs.emplace_back(before.outputs[i], after.outputs[i]);
  for (const auto& [p, q] : pairs) {
    const Tensor &a = x->at(p), &b = y->at(q);
    ASSERT_EQ(a.type(), b.type());
    for (std::int64_t i = 0; i < a.count(); ++i) {
      const double u = a.at(i), v = b.at(i);
      if (std::isnan(u) && std::isnan(v)) continue;
      ASSERT_LE(std::abs(u - v), 1e-9 * std::max(1.0, std::abs(u)))
          << before.values[p].name << " element " << i;
    }
  }
}

TEST(RandomGraphs, KeepTheirResultsUnderEachPassAndAllOfThem) {
  std::map<std::string, int> matched;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Graph original = GraphMaker(seed).make();
    ASSERT_OK(verify(original));
    std::vector<std::string> pipelines = {"default"};
    for (const PassDef* def : all_passes()) {
      if (def->phase != PassPhase::pre_gradient) pipelines.push_back(def->name);
    }
    for (const std::string& text : pipelines) {
      Graph graph = original;
      std::vector<PassReport> reports;
      const auto pipeline = parse_pipeline(text);
      ASSERT_OK(pipeline);
      ASSERT_OK(run_passes(graph, *pipeline, PassPhase::post_gradient, reports));
      for (const PassReport& report : reports) matched[report.name] += report.matched;
      expect_close(original, graph);
      if (::testing::Test::HasFailure()) FAIL() << "seed " << seed << " with " << text;
    }
  }
  for (const char* pass : {"fold-constants", "eliminate-noops", "cse", "dead-code", "fuse-transpose-matmul",
                           "fuse-scale-matmul", "fuse-bias-activation", "fuse-elementwise"}) {
    EXPECT_GT(matched[pass], 30) << pass;
  }
}

}  // namespace
}  // namespace gradloom
