#include "engine/train/losses.h"

#include <gtest/gtest.h>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"
#include "engine/train/train_graph.h"

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

TEST(Losses, CrossEntropyAddsLabelsInput) {
  Graph graph = linear_model();
  ASSERT_TRUE(add_loss(graph, "ce:logits,labels").ok());
  const ValueId labels = find_value(graph, "labels");
  ASSERT_NE(labels, kNone);
  EXPECT_EQ(graph.type(labels), (Type{DType::i64, {4}}));
  EXPECT_EQ(graph.type(graph.loss).shape, Shape{});
  EXPECT_TRUE(verify(graph).ok());
}

TEST(Losses, RegressionLossesAreScalars) {
  for (const char* loss : {"mse:logits,target", "l1:logits,target", "bce:logits,target"}) {
    Graph graph = linear_model();
    ASSERT_TRUE(add_loss(graph, loss).ok()) << loss;
    EXPECT_EQ(graph.type(graph.loss).shape, Shape{}) << loss;
    EXPECT_TRUE(add_training(graph, {.loss = loss}).ok()) << loss;
  }
}

TEST(Losses, LossErrorsSayWhatIsWrong) {
  EXPECT_NE(loss_error("ce:nothing,labels").find("no value of the model (outputs: logits)"),
            std::string::npos);
  EXPECT_NE(loss_error("ce:logits,x").find("integer class labels"), std::string::npos);
  EXPECT_NE(loss_error("ce{axis=7}:logits,labels").find("out of range"), std::string::npos);
  EXPECT_NE(loss_error("hinge:logits,labels").find("unknown loss"), std::string::npos);
  EXPECT_NE(loss_error("logits").find("scalar"), std::string::npos);
  EXPECT_NE(loss_error("ce:logits").find("PREDICTION,TARGET"), std::string::npos);
  EXPECT_NE(loss_error("").find("no loss"), std::string::npos);
}

TEST(Losses, EachRowIsBuiltOfItsForm) {
  ASSERT_EQ(loss_forms().size(), all_losses().size());
  for (const LossDef& def : all_losses()) {
    Graph graph = linear_model();
    ASSERT_TRUE(add_loss(graph, std::string(def.name) + ":logits,target").ok()) << def.name;
    EXPECT_EQ(graph.type(graph.loss).shape, Shape{}) << def.name;
    const Type target = graph.type(find_value(graph, "target"));
    EXPECT_EQ(is_float(target.dtype), def.compared == LossTarget::values) << def.name;
    EXPECT_EQ(graph.sources.back().name, "loss");
  }
  EXPECT_EQ(loss_error("cee:logits,labels"),
            "unknown loss 'cee' (known: an output's name, ce, mse, l1, bce); did you mean ce?");
}

}  // namespace
}  // namespace gradloom
