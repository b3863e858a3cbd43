// Helpers of the tests of the neural-network rows: tensors of repeatable numbers, one-operator runs,
// inference alone, and gradients of one operator by running the backward nodes that autodiff adds.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/autodiff/autodiff.h"
#include "engine/ir/builder.h"
#include "engine/ir/op.h"

namespace gradloom::test {

using Ints = std::vector<std::int64_t>;

// Numbers in (-1, 1) without a pattern (a linear congruential generator); the same for the same seed.
inline Tensor numbers(DType dtype, Shape shape, std::uint64_t seed = 1) {
  std::vector<double> values;
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::int64_t i = 0; i < element_count(shape); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values.push_back(static_cast<double>(static_cast<std::int64_t>(state >> 40)) / double(1 << 23) - 1.0);
  }
  return Tensor::from_f64(dtype, std::move(shape), values);
}

inline std::vector<Tensor> run(const OpDef& op, const Attrs& attrs, const std::vector<Tensor>& inputs,
                               int outputs = 1) {
  auto result = evaluate(op, attrs, inputs, outputs, "node", 11, 1);
  EXPECT_TRUE(result.ok()) << op.name << ": " << (result.ok() ? "" : result.error().message);
  if (!result.ok()) return std::vector<Tensor>(static_cast<std::size_t>(outputs));
  return result.value();
}
inline std::vector<Tensor> run(const char* op, const Attrs& attrs, const std::vector<Tensor>& inputs,
                               int outputs = 1) {
  return run(op_by_name(op), attrs, inputs, outputs);
}

// f32 sums of a few hundred products of numbers below 1 are within 1e-5; f64 within 1e-13.
inline double tolerance(DType dtype) { return dtype == DType::f32 ? 1e-5 : 1e-13; }

inline void expect_near(const Tensor& got, const Shape& shape, const std::vector<double>& expected,
                        double tolerance, const std::string& what = "") {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.shape(), shape) << what;
  ASSERT_EQ(got.count(), static_cast<std::int64_t>(expected.size())) << what;
  for (std::int64_t i = 0; i < got.count(); ++i)
    ASSERT_NEAR(got.at(i), expected[static_cast<std::size_t>(i)], tolerance) << what << " element " << i;
}

// The message of failed inference, or "" when it succeeds. Negative dims are symbols.
inline std::string inference_error(const OpDef& op, const Attrs& attrs, const std::vector<Type>& inputs,
                                   int outputs = 1) {
  Graph graph;
  graph.symbols = {"a", "b", "c", "d"};
  GraphBuilder builder(graph);
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    ids.push_back(builder.input("x" + std::to_string(i), inputs[i]));
  auto added = builder.add(op, ids, attrs, outputs);
  return added.ok() ? "" : added.error().message;
}
inline std::string inference_error(const char* op, const Attrs& attrs, const std::vector<Type>& inputs,
                                   int outputs = 1) {
  return inference_error(op_by_name(op), attrs, inputs, outputs);
}

inline std::vector<Type> inferred(const OpDef& op, const Attrs& attrs, const std::vector<Type>& inputs,
                                  int outputs = 1) {
  Graph graph;
  graph.symbols = {"a", "b", "c", "d"};
  GraphBuilder builder(graph);
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    ids.push_back(builder.input("x" + std::to_string(i), inputs[i]));
  auto added = builder.add(op, ids, attrs, outputs);
  EXPECT_TRUE(added.ok()) << op.name << ": " << (added.ok() ? "" : added.error().message);
  std::vector<Type> types;
  if (!added.ok()) return std::vector<Type>(static_cast<std::size_t>(outputs));
  for (ValueId id : added.value()) types.push_back(graph.type(id));
  return types;
}
inline std::vector<Type> inferred(const char* op, const Attrs& attrs, const std::vector<Type>& inputs,
                                  int outputs = 1) {
  return inferred(op_by_name(op), attrs, inputs, outputs);
}

// loss = sum(op(inputs)[0] * seed) and its gradients with respect to the floating inputs.
struct Differentiated {
  Graph graph;
  std::vector<ValueId> inputs;       // kNone: omitted
  std::map<ValueId, Tensor> values;  // everything that was computed
  std::map<ValueId, ValueId> grads;
  const Tensor& grad(std::size_t input) { return values[grads[inputs[input]]]; }
  std::vector<std::string> backward_ops() const {
    std::vector<std::string> names;
    for (const Node& node : graph.nodes)
      if (node.alive() && node.origin.phase == Phase::backward) names.push_back(node.op->name);
    return names;
  }
};
inline Differentiated differentiate(const OpDef& op, const Attrs& attrs, const std::vector<Tensor>& inputs,
                                    const Tensor& seed, std::vector<std::size_t> wanted) {
  Differentiated d;
  GraphBuilder b(d.graph);
  std::vector<ValueId> wrt;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    d.inputs.push_back(inputs[i].defined() ? b.input("x" + std::to_string(i), inputs[i].type()) : kNone);
    if (inputs[i].defined()) d.values[d.inputs[i]] = inputs[i];
  }
  for (std::size_t i : wanted) wrt.push_back(d.inputs[i]);
  auto outputs = b.add(op, d.inputs, attrs, 1, {}, "node");
  EXPECT_TRUE(outputs.ok()) << (outputs.ok() ? "" : outputs.error().message);
  if (!outputs.ok()) return d;
  ValueId loss = b.op("Mul", {outputs.value()[0], b.constant(seed)});
  Ints axes;
  for (std::size_t i = 0; i < seed.shape().size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  if (!axes.empty()) loss = b.op("ReduceSum", {loss, b.i64s(axes)}, {{"keepdims", std::int64_t{0}}});
  auto grads = add_gradients(d.graph, loss, wrt);
  EXPECT_TRUE(grads.ok()) << (grads.ok() ? "" : grads.error().message);
  if (!grads.ok()) return d;
  d.grads = grads.value();
  for (ValueId id = 0; id < d.graph.values.size(); ++id)
    if (d.graph.values[id].data.defined()) d.values[id] = d.graph.values[id].data;
  auto order = topological_order(d.graph);
  EXPECT_TRUE(order.ok());
  for (NodeId id : order.value()) {
    const Node& node = d.graph.nodes[id];
    std::vector<Tensor> in;
    for (ValueId v : node.inputs) in.push_back(v == kNone ? Tensor() : d.values[v]);
    auto out = evaluate(*node.op, node.attrs, in, static_cast<int>(node.outputs.size()), node.name, 11, 1);
    EXPECT_TRUE(out.ok()) << node.op->name << ": " << (out.ok() ? "" : out.error().message);
    if (!out.ok()) return d;
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNone) d.values[node.outputs[i]] = out.value()[i];
  }
  return d;
}

}  // namespace gradloom::test
