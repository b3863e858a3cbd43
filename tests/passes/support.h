// Helpers of the pass tests: run one pass, evaluate a graph node by node on host tensors,
// compare graphs up to names.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/ir/op.h"
#include "engine/train/weight_copies.h"
#include "passes/pass.h"

namespace gradloom::test {

// Result or Status: fails the test with the message.
#define ASSERT_OK(expression)                                               \
  do {                                                                      \
    const auto& gradloom_status_ = (expression);                            \
    ASSERT_TRUE(gradloom_status_.ok()) << gradloom_status_.error().message; \
  } while (false)

using Counts = std::map<std::string, int>;
using Perm = std::vector<std::int64_t>;

// A graph with two inputs [3, 4] to build on.
struct TwoInputs : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  Type type{DType::f32, {3, 4}};
  ValueId x = b.input("x", type), y = b.input("y", type);
};

// Products of [256, 16] with trained [16, 16], each followed by what `layer` makes of it (given its number); the loss is the mean
// of squares.
template <class Layer>
Graph layered_network(int layers, const Layer& layer) {
  Graph graph;
  GraphBuilder b(graph);
  ValueId x = b.input("x", {DType::f32, {256, 16}});
  for (int i = 0; i < layers; ++i) {
    std::vector<double> numbers(256);
    for (std::size_t k = 0; k < 256; ++k) numbers[k] = std::sin(static_cast<double>(k + 1) * (i + 1)) / 4;
    const ValueId w = b.parameter("w" + std::to_string(i), Tensor::from_f64(DType::f32, {16, 16}, numbers));
    x = layer(b, b.op("MatMul", {x, w}), i);
  }
  const ValueId loss = b.op("ReduceMean", {b.op("Square", {x})}, {{"keepdims", std::int64_t{0}}});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  return graph;
}

// Without `target`: where the pass is for.
inline PassReport run_pass(Graph& graph, const std::string& text,
                           std::optional<kernels::Target> target = std::nullopt) {
  auto pipeline = parse_pipeline(text);
  EXPECT_TRUE(pipeline.ok()) << (pipeline.ok() ? "" : pipeline.error().message);
  if (!pipeline.ok()) return {};
  const PassPhase phase = pipeline->passes[0].def->phase == PassPhase::pre_gradient
                              ? PassPhase::pre_gradient
                              : PassPhase::post_gradient;
  std::vector<PassReport> reports;
  if (!target) target = pipeline->passes[0].def->target.value_or(kernels::Target::cpu);
  const Status status = run_passes(graph, *pipeline, phase, reports, *target);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  return reports.empty() ? PassReport{} : reports[0];
}

// The reasons of the rejected records, one per line.
inline std::string why_nots(const PassReport& report) {
  std::string text;
  for (const RewriteRecord& record : report.log) {
    if (!record.matched) text += record.rule + " at " + record.site + ": " + record.why + "\n";
  }
  return text;
}

inline std::map<std::string, int> op_counts(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes) {
    if (node.alive()) ++counts[node.op->name];
  }
  return counts;
}

// The dump with values and nodes numbered in topological order, so that graphs built differently compare.
inline std::string canonical_dump(Graph graph) {
  const auto order = topological_order(graph);
  if (!order) return "cycle";
  std::size_t next = 0;
  for (Value& value : graph.values) value.name = "?" + std::to_string(next++);
  next = 0;
  const auto rename = [&](ValueId id) {
    if (id != kNone && graph.values[id].name[0] == '?') graph.values[id].name = "v" + std::to_string(next++);
  };
  for (ValueId id : graph.inputs) rename(id);
  for (ValueId id : graph.parameters) rename(id);
  for (NodeId id : *order) {
    for (ValueId v : graph.nodes[id].inputs) rename(v);
    for (ValueId v : graph.nodes[id].outputs) rename(v);
  }
  return dump(graph);
}

inline Tensor random_tensor(const Type& type, std::mt19937& random) {
  std::vector<double> numbers;
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (std::int64_t i = 0; i < element_count(type.shape); ++i) {
    const double x = uniform(random);
    numbers.push_back(is_float(type.dtype)           ? x
                      : type.dtype == DType::boolean ? (x > 0 ? 1 : 0)
                                                     : (x > 0 ? 2 : 1));
  }
  return Tensor::from_f64(type.dtype, type.shape, numbers);
}

using Contents = std::map<ValueId, Tensor>;

// Random contents for everything without producer and contents, the same for two graphs with the same inputs.
inline Contents random_inputs(const Graph& graph, unsigned seed) {
  std::mt19937 random(seed);
  Contents contents;
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    if (value.producer != kNone) continue;
    if (value.role == Role::constant)
      contents[id] = value.data;
    else
      contents[id] = random_tensor(value.type, random);
  }
  return contents;
}

// Every node in order; contents of all values afterwards.
inline Result<Contents> evaluate_graph(const Graph& graph, Contents contents, std::uint64_t seed = 7,
                                       std::uint64_t step = 3) {
  for (NodeId id : TRY(topological_order(graph))) {
    const Node& node = graph.nodes[id];
    std::vector<Tensor> inputs;
    for (ValueId v : node.inputs) inputs.push_back(v == kNone ? Tensor() : contents.at(v));
    const auto outputs = TRY(
        evaluate(*node.op, node.attrs, inputs, static_cast<int>(node.outputs.size()), node.name, seed, step));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (node.outputs[i] != kNone) contents[node.outputs[i]] = outputs[i];
    }
  }
  return contents;
}

inline double largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.type(), b.type());
  double largest = 0;
  for (std::int64_t i = 0; i < a.count(); ++i) largest = std::max(largest, std::abs(a.at(i) - b.at(i)));
  return largest;
}

// Graph outputs and updates of both graphs from the same inputs. Inputs are matched by name.
inline void expect_same_results(const Graph& before, const Graph& after, double tolerance) {
  const Contents fed = random_inputs(before, 11);
  const std::map<ValueId, ValueId> copies = weight_copies(after);
  std::set<ValueId> added;  // states of the pass itself, which begin as they are
  Contents fed_after;
  for (ValueId id = 0; id < after.values.size(); ++id) {
    const Value& value = after.values[id];
    if (value.producer != kNone) continue;
    if (value.role == Role::constant) {
      fed_after[id] = value.data;
      continue;
    }
    const auto copy = copies.find(id);
    const ValueId same =
        find_value(before, copy == copies.end() ? value.name : after.values[copy->second].name);
    if (same == kNone && value.role == Role::state && value.data.defined()) {
      added.insert(id);
      fed_after[id] = value.data;
      continue;
    }
    ASSERT_NE(same, kNone) << value.name;
    fed_after[id] = fed.at(same).cast(value.type.dtype);
  }
  const auto x = evaluate_graph(before, fed), y = evaluate_graph(after, fed_after);
  ASSERT_OK(x);
  ASSERT_OK(y);
  ASSERT_EQ(before.outputs.size(), after.outputs.size());
  const auto compare = [&](ValueId a, ValueId b) {
    if (tolerance == 0) {
      EXPECT_TRUE(bit_equal(x->at(a), y->at(b))) << before.values[a].name << " is not bit-equal";
    } else {
      EXPECT_LE(largest_difference(x->at(a), y->at(b)), tolerance) << before.values[a].name;
    }
  };
  for (std::size_t i = 0; i < before.outputs.size(); ++i) compare(before.outputs[i], after.outputs[i]);
  std::map<ValueId, ValueId> next;
  for (const Update& u : after.updates) next[u.state] = u.next;
  std::size_t compared = 0;
  for (const Update& u : after.updates) {
    if (added.count(u.state) != 0) continue;
    if (const auto copy = copies.find(u.state); copy != copies.end()) {
      const Tensor rounded = y->at(next.at(copy->second)).cast(after.type(u.next).dtype);
      EXPECT_TRUE(bit_equal(y->at(u.next), rounded)) << after.values[u.state].name;
      continue;
    }
    ASSERT_LT(compared, before.updates.size());
    compare(before.updates[compared++].next, u.next);
  }
  ASSERT_EQ(compared, before.updates.size());
}

// Runs the pass on a copy and checks that outputs stay equal; returns the report.
inline PassReport run_and_compare(Graph& graph, const std::string& pass, double tolerance) {
  const Graph before = graph;
  PassReport report = run_pass(graph, pass);
  expect_same_results(before, graph, tolerance);
  return report;
}

// Four layers of 256 x 256, each a gradient of 256 KiB of f32.
inline Graph four_layers() {
  Graph graph;
  GraphBuilder b(graph);
  ValueId h = b.input("x", {DType::f32, {8, 256}});
  for (const char* name : {"a", "b", "c", "d"})
    h = b.op("Tanh", {b.op("MatMul", {h, b.parameter(name, Tensor(DType::f32, {256, 256}))})});
  const ValueId loss = b.op("ReduceMean", {b.op("Mul", {h, h})}, {{"keepdims", std::int64_t{0}}});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  return graph;
}

}  // namespace gradloom::test
