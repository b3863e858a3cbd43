// What dynamo's optimizer merges and leaves out of a module that is not trained yet is brought back.
#include "engine/onnx/export.h"
#include "engine/onnx/repair/restored_module.h"

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::add_floats;
using test::model_from_text;
using Names = std::vector<std::string>;

// The dynamo exporter's word on a node: its modules, then what torch.export called it; and torch.export's call, if given.
void trace_node(onnx::NodeProto* node, const std::string& scopes, const std::string& call = "") {
  test::add_metadata(node, 9, "pkg.torch.onnx.name_scopes", scopes);
  if (call.empty()) return;
  const std::size_t arguments = call.find('(');
  test::add_metadata(node, 9, "pkg.torch.onnx.fx_node",
                     "%r : [num_users=1] = call_function[target=torch.ops." + call.substr(0, arguments) +
                         "](args = " + call.substr(arguments) + ", kwargs = {})");
}

// Two norms whose scales of ones dynamo's optimizer merged, and a head tied to an embedding.
onnx::ModelProto merged_model() {
  onnx::ModelProto model = model_from_text(
      "g (float[2, 3] x) => (float[2, 3] y) { a = Mul(x, w) b = Mul(a, v) c = Mul(b, v) y = Mul(c, w) }");
  *model.mutable_graph()->mutable_node(0)->mutable_input(1) = "h.0.norm.weight";
  *model.mutable_graph()->mutable_node(1)->mutable_input(1) = "embed.weight";
  *model.mutable_graph()->mutable_node(2)->mutable_input(1) = "embed.weight";
  *model.mutable_graph()->mutable_node(3)->mutable_input(1) = "h.0.norm.weight";
  add_floats(model, "h.0.norm.weight", {3}, {1, 1, 1});
  add_floats(model, "embed.weight", {3}, {1, 2, 3});
  int next = 0;
  for (const char* module : {"h.0.norm", "embed", "head", "h.1.norm"})
    test::add_metadata(model.mutable_graph()->mutable_node(next++), 9, "pkg.torch.onnx.name_scopes",
                       "['', '" + std::string(module) + "', 'mul']");
  test::add_metadata(model.mutable_graph(), 16, test::kSignature,
                     "a: PARAMETER target='h.0.norm.weight'\nb: PARAMETER target='h.1.norm.weight'\n"
                     "c: PARAMETER target='embed.weight'\nd: PARAMETER target='head.weight'\n"
                     "e: PARAMETER target='tail.bias'\n");
  return model;
}

TEST(RestoredModule, MergedOnesAreApartAgain) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "in.onnx", merged_model().SerializeAsString());
  const Result<ImportedModel> model = import_onnx(folder / "in.onnx", {});
  ASSERT_TRUE(model.ok()) << model.error().message;
  Names names;
  for (const ValueId id : model->graph.parameters) names.push_back(model->graph.value(id).name);
  EXPECT_EQ(names, (Names{"h.0.norm.weight", "embed.weight", "h.1.norm.weight"}));
  const Node& last = model->graph.nodes[test::value_of(model->graph, "y").producer];
  EXPECT_EQ(model->graph.value(last.inputs[1]).name, "h.1.norm.weight");
  EXPECT_TRUE(test::has_note(*model, "1 parameter that the exporter had merged"));
  EXPECT_TRUE(test::has_note(*model, "1 parameter of the module is not in the file"));
  EXPECT_TRUE(test::has_note(*model, "tail.bias")) << "which no node has, unlike the tied head.weight";
  // And are so in the file of the trained model.
  const std::map<std::string, Tensor> trained = {
      {"h.1.norm.weight", Tensor::from_f64(DType::f32, {3}, {7, 8, 9})}};
  const Status exported = export_onnx(folder / "in.onnx", trained, folder / "out.onnx");
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  const Result<ImportedModel> back = import_onnx(folder / "out.onnx", {});
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(test::value_of(back->graph, "h.1.norm.weight").data.to_f64(), (std::vector<double>{7, 8, 9}));
  EXPECT_EQ(test::value_of(back->graph, "h.0.norm.weight").data.to_f64(), (std::vector<double>{1, 1, 1}));
}

// Module "b" calls with the scale of "b.norm", and lost a parameter whose name the scale's would be in its scope.
TEST(RestoredModule, WhatTheCallNamesIsShared) {
  const auto parameters = [](const std::string& call, bool missing) {
    onnx::ModelProto model =
        model_from_text("g (float[2, 3] x) => (float[2, 3] y) { a = Mul(x, w) y = Mul(a, w) }");
    for (auto& node : *model.mutable_graph()->mutable_node()) node.set_input(1, "b.norm.weight");
    add_floats(model, "b.norm.weight", {3}, {1, 1, 1});
    trace_node(model.mutable_graph()->mutable_node(0), "['', 'b', 'b.norm', 'mul']",
               "aten.mul.Tensor(%x, %n)");
    trace_node(model.mutable_graph()->mutable_node(1), "['', 'b', 'mul_1']", call);
    test::add_metadata(model.mutable_graph(), 16, test::kSignature,
                       "n: PARAMETER target='b.norm.weight'\no: PARAMETER target='b.weight'\n"
                       "c: PARAMETER target='c.weight'\nd: PARAMETER target='c.scale'\n");
    const ImportedModel imported = test::imported_or_fail(model);
    EXPECT_EQ(test::has_note(imported, "b.weight, c.scale, c.weight"), missing) << call;
    Names names;
    for (const ValueId id : imported.graph.parameters) names.push_back(imported.graph.value(id).name);
    return names;
  };
  EXPECT_EQ(parameters("aten.mul.Tensor(%mul, %n)", true), Names{"b.norm.weight"});
  EXPECT_EQ(parameters("aten.mul.Tensor(%mul, %o)", false), (Names{"b.norm.weight", "b.weight"}));
  EXPECT_EQ(parameters("aten.mul.Tensor(%mul, %c)", false), (Names{"b.norm.weight", "c.weight"}));
  EXPECT_EQ(parameters("my.scaled.default(%mul, %d, %c)", false), (Names{"b.norm.weight", "c.weight"}))
      << "of two lost ones that of the same name";
  EXPECT_EQ(parameters("aten.mul.Tensor(%mul, %view)", false), (Names{"b.norm.weight", "b.weight"}))
      << "a view of the module's own";
  EXPECT_EQ(parameters("", false), (Names{"b.norm.weight", "b.weight"}));
}

// One node in module "fc", whose signature has a bias.
Graph with_lost_bias(const std::string& graph, const Shape& weight, const std::string& call = "") {
  onnx::ModelProto model = model_from_text(graph);
  model.mutable_graph()->mutable_node(0)->set_input(1, "fc.weight");
  std::vector<float> numbers(static_cast<std::size_t>(element_count(weight)));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  add_floats(model, "fc.weight", weight, numbers);
  trace_node(model.mutable_graph()->mutable_node(0), "['', 'fc', 'linear']", call);
  test::add_metadata(model.mutable_graph(), 16, test::kSignature,
                     "a: PARAMETER target='fc.weight'\nb: PARAMETER target='fc.bias'\n"
                     "c: PARAMETER target='fc.out.bias'\n");
  return test::imported_or_fail(model).graph;
}

TEST(RestoredModule, BiasesOfZeros) {
  struct Case {
    const char* graph;
    Shape weight;
    std::int64_t bias;
  };
  for (const Case& c : {
           Case{"g (float[2, 3] x) => (float[2, 4] y) { y = Gemm(x, w) }", {3, 4}, 4},
           Case{"g (float[2, 3] x) => (float[2, 4] y) { y = Gemm <transB = 1> (x, w) }", {4, 3}, 4},
           Case{"g (float[2, 4, 5] x) => (float[2, 6, 5] y) { y = Conv <group = 2> (x, w) }", {6, 2, 1}, 6},
           Case{"g (float[2, 4, 5] x) => (float[2, 6, 5] y) { y = ConvTranspose <group = 2> (x, w) }",
                {4, 3, 1},
                6},
       }) {
    SCOPED_TRACE(c.graph);
    const Graph graph = with_lost_bias(c.graph, c.weight);
    ASSERT_EQ(graph.parameters.size(), 2u);
    const Value& bias = graph.value(graph.parameters[1]);
    EXPECT_EQ(bias.name, "fc.bias");
    EXPECT_EQ(bias.data.to_f64(), std::vector<double>(static_cast<std::size_t>(c.bias), 0));
  }
}

// The bias is what the call has in its place: of another module, or none, though the module has a "bias" for something else.
TEST(RestoredModule, BiasesAreThoseOfTheCall) {
  struct Case {
    const char *call, *bias;
  };
  for (const Case& c :
       {Case{"aten.linear.default(%x, %a)", ""}, Case{"aten.linear.default(%x, %a, %b)", "fc.bias"},
        Case{"aten.linear.default(%x, %a, %c)", "fc.out.bias"}, Case{"aten.linear.default(%x, %a, None)", ""},
        Case{"aten.addmm.default(%b, %x, %t)", "fc.bias"}, Case{"aten.mm.default(%x, %t, %b)", ""}}) {
    const Graph graph = with_lost_bias(
        "g (float[2, 3] x) => (float[2, 4] y) { y = Gemm <transB = 1> (x, w) }", {4, 3}, c.call);
    const std::string found = graph.parameters.size() < 2 ? "" : graph.value(graph.parameters[1]).name;
    EXPECT_EQ(found, c.bias) << c.call;
  }
  EXPECT_EQ(with_lost_bias("g (float[2, 4, 5] x) => (float[2, 6, 5] y) { y = Conv <group = 2> (x, w) }",
                           {6, 2, 1}, "aten.conv1d.default(%x, %a, %b, [1], [0], [1], 2)")
                .parameters.size(),
            2u);
}

// The node that is left has the convolution's weight and the other's place.
TEST(RestoredModule, BatchNormalizationFoldedIntoAConvolution) {
  onnx::ModelProto model =
      model_from_text("g (float[2, 3, 4] x) => (float[2, 2, 4] y) { y = Conv(x, conv_weight, conv_bias) }");
  model.mutable_graph()->mutable_node(0)->set_input(1, "conv.weight");
  model.mutable_graph()->mutable_node(0)->set_input(2, "conv.bias");
  add_floats(model, "conv.weight", {2, 3, 1}, {1, 2, 3, 4, 5, 6});
  add_floats(model, "conv.bias", {2}, {1, 2});
  test::add_metadata(model.mutable_graph()->mutable_node(0), 9, "pkg.torch.onnx.name_scopes",
                     "['', 'bn', '_native_batch_norm_legit_functional']");
  test::add_metadata(model.mutable_graph(), 16, test::kSignature,
                     "a: PARAMETER target='conv.weight'\nb: PARAMETER target='conv.bias'\n"
                     "c: PARAMETER target='bn.weight'\nd: PARAMETER target='bn.bias'\n"
                     "e: BUFFER target='bn.running_mean' persistent=True\n");
  const ImportedModel imported = test::imported_or_fail(model);
  EXPECT_TRUE(test::has_note(imported, "2 parameters of the module"));
  EXPECT_TRUE(test::has_note(imported, "bn.bias, bn.weight"));
}

ImportedModel batch_norm(const char* name, const char* attribute = "") {
  onnx::ModelProto model = model_from_text(
      std::string("g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y) { y = BatchNormalization") + attribute +
      " (x, s, b, mean, var) }");
  for (const char* input : {"s", "b", "mean", "var"}) add_floats(model, input, {3}, {1, 1, 1});
  test::add_metadata(model.mutable_graph()->mutable_node(0), 9, "pkg.torch.onnx.name_scopes",
                     "['', 'bn', '" + std::string(name) + "']");
  return test::imported_or_fail(model);
}

TEST(RestoredModule, BatchNormalizationOfTrainingMode) {
  for (const char* name : {"_native_batch_norm_legit_functional", "_native_batch_norm_legit_functional_12"}) {
    const ImportedModel model = batch_norm(name);
    EXPECT_EQ(model.graph.updates.size(), 2u) << "of the running statistics";
    EXPECT_TRUE(test::has_note(model, "1 BatchNormalization node is of a module in training mode"));
  }
  EXPECT_TRUE(batch_norm("_native_batch_norm_legit_no_training").graph.updates.empty());
  EXPECT_TRUE(batch_norm("_native_batch_norm_legit_functional", "<training_mode = 0>").graph.updates.empty())
      << "a form that somebody chose";
}

TEST(RestoredModule, OtherNodesGetNone) {
  EXPECT_EQ(
      with_lost_bias("g (float[2, 3] x) => (float[2, 4] y) { y = MatMul(x, w) }", {3, 4}).parameters.size(),
      1u);
  EXPECT_EQ(with_lost_bias("g (float[2, 3] x, float[4] c) => (float[2, 4] y) { y = Gemm(x, w, c) }", {3, 4})
                .parameters.size(),
            1u);
}

}  // namespace
}  // namespace gradloom
