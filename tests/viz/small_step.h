// A small training step for the tests of models and views: two dense layers with GELU in
// scopes, squared error, AdamW.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "engine/ir/builder.h"
#include "passes/compile.h"
#include "viz/model/graph_model.h"
#include "viz/model/kernel_table.h"

namespace gradloom::test {

// A node that comes from the ONNX node "/SCOPE/OP".
inline ValueId add_from_model(GraphBuilder& b, Graph& graph, const std::string& scope, const char* op,
                              std::vector<ValueId> inputs) {
  const auto source = static_cast<std::uint32_t>(graph.sources.size());
  const std::string name = "/" + scope + "/" + op;
  graph.sources.push_back({name, op, "", scope});
  const BuildScope from_model(b, {.origin = {{source}}});
  return std::move(b.add(op_by_name(op), std::move(inputs), {}, 1, {}, name).value())[0];
}

inline Graph small_forward() {
  Graph graph;
  graph.name = "small";
  graph.opset = 17;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {8, 16}});
  b.input("target", {DType::f32, {8, 16}});
  ValueId h = x;
  const auto add = [&](const std::string& scope, const char* op, std::vector<ValueId> inputs) {
    return add_from_model(b, graph, scope, op, std::move(inputs));
  };
  for (int layer = 0; layer < 2; ++layer) {
    const std::string scope = "layers." + std::to_string(layer);
    std::vector<double> weights(256);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = 0.01 * static_cast<double>(i % 17) - 0.05;
    const ValueId weight = b.parameter(scope + ".weight", Tensor::from_f64(DType::f32, {16, 16}, weights));
    const ValueId bias =
        b.parameter(scope + ".bias", Tensor::from_f64(DType::f32, {16}, std::vector<double>(16, 0.1)));
    h = add(scope + "/linear", "MatMul", {h, weight});
    h = add(scope + "/linear", "Add", {h, bias});
    h = add(scope, "Tanh", {h});
  }
  graph.values[h].name = "y";
  graph.outputs = {h};
  return graph;
}

inline Compiled step_of(const Graph& forward, const std::string& passes) {
  CompileOptions options;
  options.train.loss = "mse:y,target";
  options.train.optimizer = std::move(parse_optimizer("adamw{lr=1e-3}")).value();
  options.pipeline = std::move(parse_pipeline(passes)).value();
  auto compiled = compile(forward, options);
  if (!compiled.ok()) ADD_FAILURE() << compiled.error().message;
  return std::move(compiled).value();
}

// net/encoder/h.0 .. h.5, of which the last has another operator.
inline Graph layered_forward() {
  Graph graph;
  graph.name = "layered";
  graph.opset = 17;
  GraphBuilder b(graph);
  ValueId h = b.input("x", {DType::f32, {4, 8}});
  b.input("target", {DType::f32, {4, 8}});
  const auto add = [&](const std::string& scope, const char* op, std::vector<ValueId> inputs) {
    return add_from_model(b, graph, scope, op, std::move(inputs));
  };
  for (int layer = 0; layer < 6; ++layer) {
    const std::string scope = "net/encoder/h." + std::to_string(layer);
    const ValueId weight =
        b.parameter(scope + ".weight", Tensor::from_f64(DType::f32, {8, 8}, std::vector<double>(64, 0.1)));
    h = add(scope + "/linear", "MatMul", {h, weight});
    h = add(scope + "/act", layer == 5 ? "Sigmoid" : "Tanh", {h});
  }
  graph.values[h].name = "y";
  graph.outputs = {h};
  return graph;
}

inline Compiled small_step(const std::string& passes = "none") { return step_of(small_forward(), passes); }
inline Compiled layered_step() { return step_of(layered_forward(), "none"); }

// Times as a recorded run would give them: 1 us per KiB moved.
inline std::vector<KernelRow> timed_rows(const Compiled& step) {
  std::vector<KernelRow> rows = untimed_rows(step.train.graph, step.plan);
  for (KernelRow& row : rows) {
    row.samples = 10;
    row.step_ns = row.median_ns = row.min_ns =
        1000 + static_cast<std::int64_t>(row.info.bytes_read + row.info.bytes_written);
  }
  return rows;
}

}  // namespace gradloom::test
