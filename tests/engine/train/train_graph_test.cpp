#include "engine/train/train_graph.h"

#include <gtest/gtest.h>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

Graph linear_model() {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4, 3}});
  const ValueId w = b.parameter("w", Tensor(DType::f32, {3, 5}));
  const ValueId bias = b.parameter("bias", Tensor(DType::f32, {5}));
  const ValueId y = b.op("Add", {b.op("MatMul", {x, w}), bias});
  graph.values[y].name = "logits";
  graph.outputs = {y};
  return graph;
}

Graph with_loss() {
  Graph graph = linear_model();
  EXPECT_TRUE(add_loss(graph, "ce:logits,labels").ok());
  return graph;
}

TEST(TrainGraph, OneGraphHoldsTheWholeStep) {
  const Graph graph = with_loss();
  TrainSpec spec;
  spec.optimizer = *parse_optimizer("adamw");
  spec.clip_norm = 1.0;
  spec.accumulate = 2;
  const auto train = add_training(graph, spec);
  ASSERT_TRUE(train.ok()) << train.error().message;
  EXPECT_TRUE(verify(train->graph).ok());
  EXPECT_EQ(train->trainable, (std::vector<std::string>{"w", "bias"}));
  EXPECT_NE(train->names.micro, kNone);
  EXPECT_NE(train->names.grad_norm, kNone);
  EXPECT_EQ(train->graph.outputs.size(), 2u);
  EXPECT_EQ(train->graph.updates.size(), 2u * 4 + 1);  // w and bias: value, m, v, accumulator; and the loss
}

TEST(TrainGraph, FrozenParametersAreNotTrained) {
  const Graph graph = with_loss();
  const auto train = add_training(graph, {.freeze = {"w*"}});
  ASSERT_TRUE(train.ok());
  EXPECT_EQ(train->trainable, std::vector<std::string>{"bias"});
  EXPECT_FALSE(add_training(graph, {.freeze = {"*"}}).ok());
  const auto named = add_training(graph, {.freeze = {"*"}, .train = {"w*"}});
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->trainable, std::vector<std::string>{"w"});
  EXPECT_TRUE(is_trained(named->graph, find_value(named->graph, "w")));
  EXPECT_FALSE(is_trained(named->graph, find_value(named->graph, "bias")));
}

// What the updates of `w` and `bias` say, for one of each.
std::string attributes_of(const TrainGraph& train, const std::string& parameter) {
  for (const Node& node : train.graph.nodes)
    if (node.op != nullptr && node.op->name == std::string("Optimizer") &&
        train.graph.values[node.inputs[4]].name == parameter)
      return to_string(node.attrs);
  return "none";
}

TEST(TrainGraph, GroupsChangeTheirParametersUpdates) {
  const Graph graph = with_loss();
  TrainSpec spec;
  spec.optimizer = *parse_optimizer("sgd{lr=0.1,weight_decay=0.5}");
  const auto plain = add_training(graph, spec);
  spec.groups = {*parse_group("bias{lr=0.2,weight_decay=0}")};
  const auto grouped = add_training(graph, spec);
  ASSERT_TRUE(plain.ok() && grouped.ok());
  EXPECT_EQ(attributes_of(*grouped, "w"), attributes_of(*plain, "w"));
  EXPECT_EQ(attributes_of(*plain, "w"), attributes_of(*plain, "bias"));
  EXPECT_NE(attributes_of(*grouped, "bias").find("lr_factor=2"), std::string::npos);
  EXPECT_NE(attributes_of(*grouped, "bias").find("weight_decay=0"), std::string::npos);
  spec.groups = {*parse_group("w{freeze=on}")};
  const auto frozen = add_training(graph, spec);
  ASSERT_TRUE(frozen.ok());
  EXPECT_EQ(frozen->trainable, std::vector<std::string>{"bias"});
  spec.train = {"w"};
  EXPECT_EQ(add_training(graph, spec)->trainable.size(), 2u);
  spec.groups = {*parse_group("w{lr=1}")};
  spec.optimizer.lr = 0;
  EXPECT_FALSE(add_training(graph, spec).ok());
}

TEST(TrainGraph, ClippingByValueIsPartOfEveryUpdate) {
  const Graph graph = with_loss();
  TrainSpec spec;
  spec.clip_value = 0.25;
  const auto train = add_training(graph, spec);
  ASSERT_TRUE(train.ok());
  EXPECT_EQ(train->names.grad_norm, kNone) << "no norm is computed for it";
  for (const char* parameter : {"w", "bias"})
    EXPECT_NE(attributes_of(*train, parameter).find("clip_value=0.25"), std::string::npos);
}

TEST(TrainGraph, AdafactorKeepsRowsAndColumnsOfMatrices) {
  const Graph graph = with_loss();
  TrainSpec spec;
  spec.optimizer = *parse_optimizer("adafactor");
  const auto train = add_training(graph, spec);
  ASSERT_TRUE(train.ok()) << train.error().message;
  EXPECT_TRUE(verify(train->graph).ok());
  const auto shape = [&](const char* state) {
    const ValueId id = find_value(train->graph, state);
    return id == kNone ? Shape{-1} : train->graph.type(id).shape;
  };
  EXPECT_EQ(shape("w/row"), (Shape{3}));
  EXPECT_EQ(shape("w/column"), (Shape{5}));
  EXPECT_EQ(shape("bias/v"), (Shape{5}));
}

// A model may name its values as the step names what it adds.
TEST(TrainGraph, NamesOfTheModelAreNotTakenAgain) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("w/m", {DType::f32, {4, 3}}), y = b.input("gradloom/lr", {DType::f32, {4, 3}});
  const ValueId w = b.parameter("w", Tensor(DType::f32, {3, 5}));
  const ValueId logits = b.op("MatMul", {b.op("Add", {x, y}), w});
  graph.values[logits].name = "w/acc";
  graph.outputs = {logits};
  ASSERT_TRUE(add_loss(graph, "ce:w/acc,labels").ok());
  TrainSpec spec;
  spec.optimizer = *parse_optimizer("adam");
  spec.accumulate = 2;
  const auto train = add_training(graph, spec);
  ASSERT_TRUE(train.ok()) << train.error().message;
  const Status verified = verify(train->graph);
  EXPECT_TRUE(verified.ok()) << verified.error().message;
  for (const char* name : {"w/m_1", "w/v", "w/acc_1", "gradloom/lr_1", "gradloom/step"})
    EXPECT_NE(find_value(train->graph, name), kNone) << name;
}

}  // namespace
}  // namespace gradloom
