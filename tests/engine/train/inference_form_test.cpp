#include "engine/train/inference_form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

std::int64_t count(const Graph& graph, std::string_view op) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [&](const Node& n) { return n.alive() && n.op->name == op; });
}

// BatchNormalization that trains and has its statistics as states, Dropout, and a mean as the loss.
struct Model {
  explicit Model(int opset) {
    graph.opset = opset;
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f32, {4, 3, 5}}),
                  scale = b.parameter("scale", Tensor(DType::f32, {3})),
                  bias = b.parameter("bias", Tensor(DType::f32, {3}));
    mean = b.state("mean", Tensor(DType::f32, {3}));
    var = b.state("var", Tensor(DType::f32, {3}));
    const OpDef* const norm = find_op("BatchNormalization", "", opset);
    Attrs attrs{{"momentum", 0.5}};
    if (opset >= 14) attrs.set("training_mode", std::int64_t{1});
    const auto y = b.ops(*norm, {x, scale, bias, mean, var}, attrs, 3);
    b.update(mean, y[1]);
    b.update(var, y[2]);
    Tensor on(DType::boolean, {});
    on.mutable_as<std::uint8_t>()[0] = 1;
    dropped = b.ops(*find_op("Dropout", "", 13), {y[0], b.scalar(DType::f32, 0.5), b.constant(on)}, {}, 2);
    graph.loss = b.op("ReduceMean", {dropped[0]}, {{"keepdims", std::int64_t{0}}});
    graph.outputs = {graph.loss, y[0]};
  }
  Graph graph;
  ValueId mean = kNone, var = kNone;
  std::vector<ValueId> dropped;
};

TEST(InferenceForm, NothingIsDroppedAndNoStateChanges) {
  for (const int opset : {9, 14}) {
    Model model(opset);
    ASSERT_TRUE(verify(model.graph).ok());
    const auto log = make_inference_form(model.graph);
    ASSERT_TRUE(log.ok()) << log.error().message;
    const Status verified = verify(model.graph);
    EXPECT_TRUE(verified.ok()) << verified.error().message;
    EXPECT_TRUE(model.graph.updates.empty());
    EXPECT_EQ(model.graph.outputs, std::vector<ValueId>{model.graph.loss});
    EXPECT_EQ(count(model.graph, "Dropout"), 0);
    ASSERT_EQ(count(model.graph, "BatchNormalization"), 1);
    for (const Node& node : model.graph.nodes) {
      if (!node.alive() || std::string_view(node.op->name) != "BatchNormalization") continue;
      EXPECT_EQ(node.outputs.size(), 1u);
      EXPECT_EQ(node.attrs.integer("training_mode"), 0);
      EXPECT_EQ(node.attrs.real("momentum"), 0.5);
      EXPECT_EQ(node.inputs[3], model.mean);
      EXPECT_EQ(node.inputs[4], model.var);
    }
  }
}

// What is asked of training itself has no other form.
TEST(InferenceForm, ALossOfTheMaskKeepsItsDropout) {
  Model model(14);
  GraphBuilder b(model.graph);
  const ValueId mask = b.op("Cast", {model.dropped[1]}, {{"to", std::int64_t{1}}});
  model.graph.loss =
      b.op("ReduceMean", {b.op("Mul", {mask, model.dropped[0]})}, {{"keepdims", std::int64_t{0}}});
  ASSERT_TRUE(make_inference_form(model.graph).ok());
  EXPECT_TRUE(verify(model.graph).ok());
  EXPECT_EQ(count(model.graph, "Dropout"), 1);
}

TEST(InferenceForm, WhatIsInInferenceFormStays) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4}});
  const ValueId y = b.op(*find_op("Dropout", "", 13), {x});
  graph.loss = b.op("ReduceMean", {y}, {{"keepdims", std::int64_t{0}}});
  graph.outputs = {graph.loss};
  const std::string before = dump(graph);
  ASSERT_TRUE(make_inference_form(graph).ok());
  EXPECT_EQ(dump(graph), before);
}

}  // namespace
}  // namespace gradloom
