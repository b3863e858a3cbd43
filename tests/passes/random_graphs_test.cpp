// Random graphs through every pass and through all of them: same results. Every dim is 4 or 1, so that most
// operators fit most values, and chains that the fusions look for (transposes, scales, biases, activations
// around products) come up often.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "engine/ops/inference.h"
#include "passes/rules.h"
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
    for (int i = 0; i < 36; ++i) pool_.push_back(add_node(b));
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

  // Parts of the last axis, picked or put together again; of the value's shape where that is possible.
  ValueId pieces(GraphBuilder& b, ValueId v) {
    const Shape shape = b.graph().type(v).shape;
    if (shape.back() != 4) return b.op("Neg", {v});
    const Attrs last{{"axis", std::int64_t{-1}}};
    const auto slice = [&](std::int64_t begin, std::int64_t end) {
      return b.op("Slice", {v, b.i64s({begin}), b.i64s({end}), b.i64s({-1})});
    };
    // With another order, or other parts, there is nothing to put together.
    if (below(2) == 0) {
      const bool follow = below(3) != 0;
      return b.op("Concat", {slice(0, 2), slice(follow ? 2 : 1, follow ? 4 : 3)}, last);
    }
    const ValueId some = b.op("Gather", {v, b.i64s({1, below(2) == 0 ? 2 : 3})}, last);
    return b.op("Concat", {some, some}, last);
  }

  // One row along some axis, whose number is known, or looked up in a list of one.
  ValueId row(GraphBuilder& b, ValueId v) {
    const auto axis = static_cast<std::int64_t>(below(b.graph().type(v).shape.size()));
    const auto number = static_cast<std::int64_t>(
        below(static_cast<std::size_t>(b.graph().type(v).shape[static_cast<std::size_t>(axis)])));
    if (below(2) == 0) return b.op("Gather", {v, b.i64s({number})}, {{"axis", axis}});
    return b.op("Slice", {v, b.i64s({number}), b.i64s({number + 1}), b.i64s({axis})});
  }

  // Small integers, which every float type holds, cast there and back around what moves them.
  ValueId casts(GraphBuilder& b, ValueId v) {
    const auto cast = [&](ValueId of, DType to) { return b.op("Cast", {of}, {{"to", onnx_from_dtype(to)}}); };
    const auto moved = [&](ValueId of) {
      const Shape shape = b.graph().type(of).shape;
      if (shape.empty() || below(3) == 0) return b.op("Unsqueeze", {of, b.i64s({0})});
      if (below(2) == 0) return b.op("Transpose", {of}, {{"perm", random_perm(shape.size())}});
      return b.op("Concat", {of, below(2) == 0 ? of : b.op("Neg", {of})}, {{"axis", std::int64_t{0}}});
    };
    const ValueId low = cast(
        below(2) == 0 ? moved(b.op("Round", {bounded(b, v)})) : b.op("Round", {bounded(b, v)}), DType::bf16);
    const ValueId back = cast(below(2) == 0 ? moved(low) : low, DType::f64);
    const ValueId wide = below(2) == 0 ? moved(back) : back;
    const ValueId again = below(2) == 0 ? cast(cast(wide, DType::bf16), DType::f64) : wide;
    const Shape shape = b.graph().type(again).shape;
    std::vector<std::int64_t> axes;
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (i + 1 < shape.size() || (shape[i] != 4 && shape[i] != 1))
        axes.push_back(static_cast<std::int64_t>(i));
    if (axes.empty()) return again;
    return b.op("ReduceMax", {again, b.i64s(axes)}, {{"keepdims", std::int64_t{0}}});  // of few dims again
  }

  ValueId bounded(GraphBuilder& b, ValueId v) { return b.op("Sin", {v}); }

  ValueId add_node(GraphBuilder& b) {
    const Graph& graph = b.graph();
    const double constants[] = {0, 1, 0.5, -2};
    ValueId scalar = b.scalar(DType::f64, constants[below(4)]);
    if (below(4) == 0) scalar = b.op("Neg", {scalar});
    switch (below(18)) {
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
      case 13: return b.op("Identity", {pick(graph)});
      case 14: return b.op("Div", {pick(graph), b.scalar(DType::f64, below(2) == 0 ? 4 : -0.5)});
      case 15: {
        const ValueId v = pick(graph);
        return below(2) == 0 ? b.op("Mul", {v, b.op("Sigmoid", {v})})
                             : b.op("Mul", {b.op("Sigmoid", {b.op("Mul", {v, scalar})}), v});
      }
      case 16: return casts(b, pick(graph));
      default: return below(3) == 0 ? row(b, pick(graph, 1)) : pieces(b, pick(graph, 1));
    }
  }

  std::mt19937 random_;
  std::vector<ValueId> pool_;
};

// What differs between outputs and updates; empty: nothing. Infinities and NaN must agree too.
std::string difference(const Graph& before, const Graph& after) {
  const test::Contents fed = test::random_inputs(before, 3);
  test::Contents fed_after;
  for (ValueId id = 0; id < after.values.size(); ++id) {
    if (after.values[id].producer != kNone) continue;
    const bool constant = after.values[id].role == Role::constant;
    fed_after[id] = constant ? after.values[id].data : fed.at(find_value(before, after.values[id].name));
  }
  const auto x = test::evaluate_graph(before, fed), y = test::evaluate_graph(after, fed_after);
  if (!x.ok() || !y.ok()) return (x.ok() ? y : x).error().message;
  std::vector<std::pair<ValueId, ValueId>> pairs;
  for (std::size_t i = 0; i < before.updates.size(); ++i)
    pairs.emplace_back(before.updates[i].next, after.updates[i].next);
  for (std::size_t i = 0; i < before.outputs.size(); ++i)
    pairs.emplace_back(before.outputs[i], after.outputs[i]);
  for (const auto& [p, q] : pairs) {
    const Tensor &a = x->at(p), &b = y->at(q);
    if (a.type() != b.type()) return before.values[p].name + " has another type";
    for (std::int64_t i = 0; i < a.count(); ++i) {
      const double u = a.at(i), v = b.at(i);
      if ((std::isnan(u) && std::isnan(v)) || std::abs(u - v) <= 1e-9 * std::max(1.0, std::abs(u))) continue;
      if (u == v) continue;  // infinities
      return before.values[p].name + " element " + std::to_string(i) + " is " + std::to_string(v) + ", not " +
             std::to_string(u);
    }
  }
  return "";
}

// Empty: the passes keep what the graph computes. They run before autodiff, then after it.
std::string problem(const Graph& original, const Pipeline& pipeline,
                    std::map<std::string, int>* matched = nullptr) {
  Graph graph = original;
  std::vector<PassReport> reports;
  for (const PassPhase phase : {PassPhase::pre_gradient, PassPhase::post_gradient})
    if (const Status status = run_passes(graph, pipeline, phase, reports); !status)
      return status.error().message;
  if (matched != nullptr)
    for (const PassReport& report : reports) (*matched)[report.name] += report.matched;
  return difference(original, graph);
}

// The smallest graph found that still fails: with one output, and with nodes replaced by what they read or by
// an input of their type.
Graph shrunk(Graph graph, const std::function<bool(const Graph&)>& fails) {
  const auto keep_if_failing = [&](Graph smaller) {
    Rewriter rw(smaller, "shrink");
    if (!remove_unneeded(rw, "shrink") || !verify(smaller) || !fails(smaller)) return false;
    graph = std::move(smaller);
    return true;
  };
  const auto without = [&](NodeId id, ValueId by) {
    Graph smaller = graph;
    Rewriter rw(smaller, "shrink");
    const ValueId old = smaller.nodes[id].outputs[0];
    GraphBuilder& b = rw.begin("shrink", id, {id});
    rw.replace(old, by == kNone ? b.input(b.unique_name("cut"), smaller.type(old)) : by);
    rw.commit();
    return smaller;
  };
  Graph no_updates = graph;
  no_updates.updates.clear();
  if (!keep_if_failing(std::move(no_updates))) {
    Graph only_updates = graph;
    only_updates.outputs.clear();
    keep_if_failing(std::move(only_updates));
  }
  for (const ValueId output : std::vector<ValueId>(graph.outputs)) {
    Graph one = graph;
    one.outputs = {output};
    if (graph.outputs.size() > 1 && keep_if_failing(std::move(one))) break;
  }
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
      if (!graph.nodes[id].alive()) continue;
      std::vector<ValueId> by = {kNone};
      for (const ValueId in : graph.nodes[id].inputs)
        if (in != kNone && graph.type(in) == graph.type(graph.nodes[id].outputs[0]))
          by.insert(by.begin(), in);
      for (const ValueId value : by) {
        if (!keep_if_failing(without(id, value))) continue;
        smaller = true;
        break;
      }
    }
  }
  return graph;
}

TEST(RandomGraphs, KeepTheirResultsUnderEachPassAndAllOfThem) {
  const char* wanted = getenv("GRADLOOM_TEST_GRAPHS");
  const unsigned graphs = wanted != nullptr ? static_cast<unsigned>(std::strtoul(wanted, nullptr, 10)) : 300;
  std::map<std::string, int> matched;
  std::vector<std::string> pipelines = {"default"};
  for (const PassDef* def : all_passes()) pipelines.emplace_back(def->name);
  for (unsigned seed = 0; seed < graphs; ++seed) {
    const Graph original = GraphMaker(seed).make();
    ASSERT_OK(verify(original));
    for (const std::string& text : pipelines) {
      const auto pipeline = parse_pipeline(text);
      ASSERT_OK(pipeline);
      const std::string why = problem(original, *pipeline, &matched);
      if (why.empty()) continue;
      const Graph small =
          shrunk(original, [&](const Graph& graph) { return !problem(graph, *pipeline).empty(); });
      FAIL() << "seed " << seed << " with " << text << ": " << why << "\n" << dump(small);
    }
  }
  for (const char* pass :
       {"fold-constants", "eliminate-noops", "simplify-slices", "cse", "dead-code", "fuse-swish",
        "simplify-transposes", "fuse-transpose-matmul", "fuse-scale-matmul", "fuse-bias-activation",
        "divide-by-constant", "fuse-elementwise", "move-casts", "select-rows"}) {
    EXPECT_GT(matched[pass], 30) << pass;
  }
}

// A rewrite that is wrong is found, and what it is wrong at is shown by a graph of few nodes.
TEST(RandomGraphs, AWrongRewriteIsShownByASmallGraph) {
  const auto rules = parse_rules("rule wrong { y = Tanh(n); n = Neg(x) -> y = Tanh(x) }");
  ASSERT_OK(rules);
  const Pipeline pipeline{{configure_rule(rules->front()).value()}};
  int found = 0;
  for (unsigned seed = 0; seed < 400 && found < 3; ++seed) {
    Graph original = GraphMaker(seed).make();
    GraphBuilder b(original);
    const ValueId last = original.outputs[0];
    original.outputs.push_back(b.op("Exp", {b.op("Tanh", {b.op("Neg", {b.op("Sin", {last})})})}));
    const auto fails = [&](const Graph& graph) { return !problem(graph, pipeline).empty(); };
    if (!fails(original)) continue;  // it is symmetric there: zeros
    ++found;
    const Graph small = shrunk(original, fails);
    EXPECT_LE(live_node_count(small), 2u) << "seed " << seed << "\n" << dump(small);
    EXPECT_TRUE(fails(small));
  }
  EXPECT_EQ(found, 3);
}

}  // namespace
}  // namespace gradloom
