#include "engine/train/train_graph.h"

#include <gtest/gtest.h>

#include "engine/ir/builder.h"
#include "engine/ops/op.h"

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

std::string loss_error(const std::string& loss) {
  Graph graph = linear_model();
  const Status s = add_loss(graph, loss);
  return s.ok() ? "" : s.error().message;
}

TEST(TrainGraph, CrossEntropyAddsLabelsInput) {
  Graph graph = linear_model();
  ASSERT_TRUE(add_loss(graph, "ce:logits,labels").ok());
  const ValueId labels = find_value(graph, "labels");
  ASSERT_NE(labels, kNone);
  EXPECT_EQ(graph.type(labels), (Type{DType::i64, {4}}));
  EXPECT_EQ(graph.type(graph.loss).shape, Shape{});
  EXPECT_TRUE(verify(graph).ok());
}

TEST(TrainGraph, RegressionLossesAreScalars) {
  for (const char* loss : {"mse:logits,target", "l1:logits,target", "bce:logits,target"}) {
    Graph graph = linear_model();
    ASSERT_TRUE(add_loss(graph, loss).ok()) << loss;
    EXPECT_EQ(graph.type(graph.loss).shape, Shape{}) << loss;
    EXPECT_TRUE(add_training(graph, {.loss = loss}).ok()) << loss;
  }
}

TEST(TrainGraph, LossErrorsSayWhatIsWrong) {
  EXPECT_NE(loss_error("ce:nothing,labels").find("no value of the model (outputs: logits)"),
            std::string::npos);
  EXPECT_NE(loss_error("ce:logits,x").find("integer class labels"), std::string::npos);
  EXPECT_NE(loss_error("ce{axis=7}:logits,labels").find("out of range"), std::string::npos);
  EXPECT_NE(loss_error("hinge:logits,labels").find("unknown loss"), std::string::npos);
  EXPECT_NE(loss_error("logits").find("scalar"), std::string::npos);
  EXPECT_NE(loss_error("ce:logits").find("PREDICTION,TARGET"), std::string::npos);
  EXPECT_NE(loss_error("").find("no loss"), std::string::npos);
}

TEST(TrainGraph, OneGraphHoldsTheWholeStep) {
  Graph graph = linear_model();
  ASSERT_TRUE(add_loss(graph, "ce:logits,labels").ok());
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
  Graph graph = linear_model();
  ASSERT_TRUE(add_loss(graph, "ce:logits,labels").ok());
  const auto train = add_training(graph, {.freeze = {"w*"}});
  ASSERT_TRUE(train.ok());
  EXPECT_EQ(train->trainable, std::vector<std::string>{"bias"});
  EXPECT_FALSE(add_training(graph, {.freeze = {"*"}}).ok());
}

TEST(OptimizerSpec, PyTorchDefaultsAndErrors) {
  EXPECT_EQ(parse_optimizer("adamw")->weight_decay, 0.01);
  EXPECT_EQ(parse_optimizer("adam")->weight_decay, 0.0);
  EXPECT_EQ(parse_optimizer("lamb")->epsilon, 1e-6);
  EXPECT_EQ(parse_optimizer("sgd{lr=0.5,momentum=0.9,nesterov=true}")->momentum, 0.9);
  EXPECT_FALSE(parse_optimizer("sgd{nesterov=true}").ok());
  EXPECT_FALSE(parse_optimizer("sgd{beta1=0.5}").ok());
  EXPECT_FALSE(parse_optimizer("adagrad").ok());
  EXPECT_FALSE(parse_optimizer("adam{lr=-1}").ok());
  for (const std::string& name : optimizer_names()) {
    const auto spec = parse_optimizer(name);
    ASSERT_TRUE(spec.ok());
    EXPECT_EQ(print_optimizer(*parse_optimizer(print_optimizer(*spec))), print_optimizer(*spec));
  }
}

TEST(ScheduleSpec, Factors) {
  const auto linear = parse_schedule("linear{warmup=10,total=110}");
  ASSERT_TRUE(linear.ok());
  EXPECT_DOUBLE_EQ(linear->factor(5), 0.5);
  EXPECT_DOUBLE_EQ(linear->factor(10), 1.0);
  EXPECT_DOUBLE_EQ(linear->factor(60), 0.5);
  EXPECT_DOUBLE_EQ(linear->factor(500), 0.0);
  const auto cosine = parse_schedule("cosine{total=100,end=0.1}");
  ASSERT_TRUE(cosine.ok());
  EXPECT_NEAR(cosine->factor(50), 0.55, 1e-12);
  EXPECT_NEAR(cosine->factor(100), 0.1, 1e-12);
  EXPECT_FALSE(parse_schedule("linear{warmup=10,total=5}").ok());
  EXPECT_FALSE(parse_schedule("step").ok());
}

}  // namespace
}  // namespace gradloom
