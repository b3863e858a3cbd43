// What the dynamo exporter leaves out of calls is back, by the text of the traced call alone.
#include "engine/onnx/repair/dropped_arguments.h"

#include <cmath>

#include "engine/onnx/export.h"
#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::add_floats;
using test::has_note;
using test::imported_or_fail;
using test::value_of;

void trace(onnx::ModelProto& model, int node, const std::string& result, const std::string& function,
           const std::string& arguments) {
  test::add_metadata(model.mutable_graph()->mutable_node(node), 9, "pkg.torch.onnx.fx_node",
                     "%" + result + " : [num_users=1] = call_function[target=torch.ops.aten." + function +
                         "](args = (" + arguments + "), kwargs = {})");
}

std::string op_of(const Graph& graph, const std::string& value) {
  const NodeId producer = value_of(graph, value).producer;
  return producer == kNone ? "" : graph.node(producer).op->name;
}

// The operator that makes input `i` of what makes `value`.
std::string op_before(const Graph& graph, const std::string& value, std::size_t i) {
  const Node& node = graph.node(value_of(graph, value).producer);
  return op_of(graph, graph.value(node.inputs[i]).name);
}

std::size_t stops_in(const Graph& graph) {
  std::size_t count = 0;
  for (const Node& node : graph.nodes) count += std::string_view(node.op->name) == "StopGradient" ? 1 : 0;
  return count;
}

// ---- padding_idx ----

onnx::ModelProto embedding(const std::string& arguments, int opset = 18) {
  onnx::ModelProto model =
      test::model_from_text("g (int64[2] ids) => (float[2, 3] y) { y = Gather(w, ids) }", opset);
  add_floats(model, "w", {4, 3}, std::vector<float>(12, 0.5f));
  trace(model, 0, "embedding", "embedding.default", arguments);
  return model;
}

TEST(DroppedArguments, RowOfPaddingGetsNoGradient) {
  const ImportedModel model = imported_or_fail(embedding("%p_w, %ids, 1"));
  EXPECT_EQ(op_of(model.graph, "y"), "Where");
  EXPECT_EQ(op_before(model.graph, "y", 1), "StopGradient");
  EXPECT_EQ(op_before(model.graph, "y", 2), "Gather");
  EXPECT_TRUE(has_note(model, "w (row 1)"));
  for (const char* arguments : {"%p_w, %ids", "%p_w, %ids, -1", "%p_w, %ids, None"})
    EXPECT_EQ(op_of(imported_or_fail(embedding(arguments)).graph, "y"), "Gather") << arguments;
}

TEST(DroppedArguments, OldOpsetsAreTold) {
  const ImportedModel model = imported_or_fail(embedding("%p_w, %ids, 1", 17));
  EXPECT_EQ(op_of(model.graph, "y"), "Gather");
  EXPECT_TRUE(has_note(model, "1 call lacks what the exporter left out"));
  EXPECT_TRUE(has_note(model, "embedding (padding_idx)"));
}

// ---- label_smoothing ----

const std::vector<double> kLogits = {0.5, -1, 2, 0, 1, -0.5, 3, 0.25, 1.5};
const std::vector<std::int64_t> kLabels = {2, 1, 0};

onnx::ModelProto smoothed(const std::string& reduction, const std::string& arguments) {
  onnx::ModelProto model = test::model_from_text(
      "g (float[3, 3] x, int64[3] t) => (" + std::string(reduction == "none" ? "float[3]" : "float") +
          " y) { y = SoftmaxCrossEntropyLoss<reduction = \"" + reduction + "\", ignore_index = 1>(x, t) }",
      18);
  trace(model, 0, "loss", "cross_entropy_loss.default", arguments);
  return model;
}

std::vector<double> loss_of(const onnx::ModelProto& model) {
  ImportOptions options;
  options.known_inputs = {{"x", Tensor::from_f64(DType::f32, {3, 3}, kLogits)},
                          {"t", Tensor::from_i64(kLabels)}};
  const ImportedModel imported = imported_or_fail(model, options);
  const Tensor loss = value_of(imported.graph, "y").data;
  return loss.defined() ? loss.to_f64() : std::vector<double>();
}

// torch's definition: (1 - e) (-log p_t) + e / C sum of -log p_c; nothing where the label is ignored.
double smoothed_row(std::size_t row, double smoothing) {
  if (kLabels[row] == 1) return 0;
  const double* const x = kLogits.data() + 3 * row;
  const double log_sum = std::log(std::exp(x[0]) + std::exp(x[1]) + std::exp(x[2]));
  return (1 - smoothing) * (log_sum - x[kLabels[row]]) + smoothing / 3 * (3 * log_sum - x[0] - x[1] - x[2]);
}

TEST(DroppedArguments, LabelsAreSmoothInEveryReduction) {
  const double first = smoothed_row(0, 0.25), last = smoothed_row(2, 0.25);
  struct Case {
    const char *reduction, *arguments;
    std::vector<double> loss;
  };
  for (const Case& c : {Case{"none", "%x, %t, None, 0, 1, 0.25", {first, 0, last}},
                        Case{"mean", "%x, %t, None, 1, 1, 0.25", {(first + last) / 2}},
                        Case{"sum", "%x, %t, None, 2, 1, 0.25", {first + last}},
                        Case{"sum", "%x, %t, None, 2, 1", {smoothed_row(0, 0) + smoothed_row(2, 0)}},
                        Case{"sum", "%x, %t, None, 2, 1, 0.0", {smoothed_row(0, 0) + smoothed_row(2, 0)}}}) {
    const std::vector<double> loss = loss_of(smoothed(c.reduction, c.arguments));
    ASSERT_EQ(loss.size(), c.loss.size()) << c.arguments;
    for (std::size_t i = 0; i < loss.size(); ++i) EXPECT_NEAR(loss[i], c.loss[i], 1e-6) << c.arguments;
  }
}

TEST(DroppedArguments, SmoothingWithWeightsOfClassesIsTold) {
  onnx::ModelProto model = smoothed("mean", "%x, %t, %w, 1, 1, 0.25");
  model.mutable_graph()->mutable_node(0)->add_input("w");
  add_floats(model, "w", {3}, {1, 2, 3});
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_TRUE(has_note(imported, "loss (label_smoothing)"));
  EXPECT_EQ(op_of(imported.graph, "y"), "SoftmaxCrossEntropyLoss");
}

TEST(DroppedArguments, AreWrittenOnce) {
  onnx::ModelProto model = smoothed("sum", "%x, %t, None, 2, 1, 0.25");
  const TemporaryFolder folder;
  test::write_bytes(folder / "in.onnx", model.SerializeAsString());
  ASSERT_TRUE(export_onnx(folder / "in.onnx", {}, folder / "out.onnx").ok());
  onnx::ModelProto back;
  ASSERT_TRUE(back.ParseFromString(test::read_bytes(folder / "out.onnx")));
  EXPECT_GT(back.graph().node_size(), 1);
  const std::vector<double> once = loss_of(model), again = loss_of(back);
  ASSERT_EQ(once.size(), 1u);
  EXPECT_EQ(once, again);
}

// ---- detach ----

TEST(DroppedArguments, OperandsAreDetachedAgain) {
  onnx::ModelProto model =
      test::model_from_text("g (float[3] x) => (float[3] mul) { a = Tanh(x) mul = Mul(x, a) }", 18);
  trace(model, 0, "a", "tanh.default", "%x");
  trace(model, 1, "mul", "mul.Tensor", "%x, %detach_1");
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_EQ(op_before(imported.graph, "mul", 1), "StopGradient");
  EXPECT_EQ(stops_in(imported.graph), 1u);
  EXPECT_TRUE(has_note(imported, "1 value is detached again"));
}

// One call became two nodes: only `a` can be the detached operand, in the node that reads it.
TEST(DroppedArguments, OperandOfACallOfSeveralNodes) {
  onnx::ModelProto model = test::model_from_text(
      "g (float[3] x) => (float[3] add) { a = Tanh(x) scaled = Mul(a, a) add = Add(x, scaled) }", 18);
  *model.mutable_graph()->mutable_node(1)->mutable_input(1) = "two";
  add_floats(model, "two", {}, {2});
  trace(model, 0, "a", "tanh.default", "%x");
  trace(model, 1, "add", "add.Tensor", "%x, %detach");
  trace(model, 2, "add", "add.Tensor", "%x, %detach");
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_EQ(op_before(imported.graph, "scaled", 0), "StopGradient");
  EXPECT_EQ(stops_in(imported.graph), 1u);
  // The written file is as it should be: nothing is detached twice, or elsewhere.
  const TemporaryFolder folder;
  test::write_bytes(folder / "in.onnx", model.SerializeAsString());
  ASSERT_TRUE(export_onnx(folder / "in.onnx", {}, folder / "out.onnx").ok());
  const Result<ImportedModel> back = import_onnx(folder / "out.onnx", {});
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(op_before(back->graph, "scaled", 0), "StopGradient");
  EXPECT_EQ(stops_in(back->graph), 1u);
}

// Sub(detached, w) of rsub(w, detached): operands need not be in the call's order.
TEST(DroppedArguments, OperandsInAnotherOrder) {
  onnx::ModelProto model =
      test::model_from_text("g (float[3] x) => (float[3] rsub) { a = Tanh(x) rsub = Sub(a, w) }", 18);
  add_floats(model, "w", {3}, {1, 2, 3});
  test::add_metadata(model.mutable_graph(), 16, test::kSignature, "p_w: PARAMETER target='w'\n");
  trace(model, 0, "a", "tanh.default", "%x");
  trace(model, 1, "rsub", "rsub.Tensor", "%p_w, %detach");
  EXPECT_EQ(op_before(imported_or_fail(model).graph, "rsub", 0), "StopGradient");

  model.mutable_graph()->mutable_node(1)->mutable_input()->SwapElements(0, 1);  // a detached parameter
  trace(model, 1, "rsub", "rsub.Tensor", "%detach, %a");
  EXPECT_EQ(op_before(imported_or_fail(model).graph, "rsub", 0), "StopGradient");
}

TEST(DroppedArguments, WhatCannotBePlacedIsTold) {
  onnx::ModelProto model = test::model_from_text(
      "g (float[3] x) => (float[3] where) { a = Tanh(x) b = Neg(x) where = Add(a, b) }", 18);
  trace(model, 2, "addcmul", "addcmul.default", "%detach, %unknown, %x");
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_EQ(stops_in(imported.graph), 0u);
  EXPECT_TRUE(has_note(imported, "addcmul (detach)"));
}

TEST(DroppedArguments, DetachInTheFileIsNotDoubled) {
  onnx::ModelProto model = test::model_from_text(
      "g (float[3] x) => (float[3] mul) { detach = Identity(x) mul = Mul(x, detach) }", 18);
  trace(model, 1, "mul", "mul.Tensor", "%x, %detach");
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_EQ(stops_in(imported.graph), 0u) << "the Identity says itself what it is";
}

}  // namespace
}  // namespace gradloom
