#include "engine/onnx/read/functions.h"

#include <google/protobuf/unknown_field_set.h>

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::expect_refused;
using test::import_model;
using test::model_from_text;
using test::node_of;
using test::value_of;

onnx::FunctionProto* add_function(onnx::ModelProto& model, const std::string& name, const std::string& text) {
  onnx::FunctionProto* function = model.add_functions();
  // The body of a graph's text with untyped inputs and outputs: op lines "out = Op(in)".
  const onnx::ModelProto body = model_from_text("f (float[1] a) => (float[1] r) { " + text + " }");
  function->set_name(name);
  function->set_domain("local");
  function->add_input("a");
  function->add_output("r");
  *function->mutable_node() = body.graph().node();
  function->add_opset_import()->set_version(17);
  return function;
}

onnx::ModelProto calling_model() {
  onnx::ModelProto model = model_from_text("g (float[2] x) => (float[2] y) { h = Twice(x) y = Twice(h) }");
  model.add_opset_import()->set_domain("local");
  model.mutable_opset_import(1)->set_version(1);
  for (auto& node : *model.mutable_graph()->mutable_node()) node.set_domain("local");
  model.mutable_graph()->mutable_node(0)->set_name("first");
  return model;
}

TEST(Functions, CallsAreInlined) {
  onnx::ModelProto model = calling_model();
  add_function(model, "Twice", "t = Relu(a) r = Add(t, t)");
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(imported->graph.nodes.size(), 4u);
  EXPECT_EQ(to_string(value_of(imported->graph, "first/t").type), "f32[2]");
  EXPECT_STREQ(node_of(imported->graph, "first/Relu").op->name, "Relu");
  EXPECT_STREQ(node_of(imported->graph, "Twice_call2/Add").op->name, "Add");
  EXPECT_EQ(to_string(value_of(imported->graph, "y").type), "f32[2]");
}

TEST(Functions, AttributesAreThoseOfTheCall) {
  onnx::ModelProto model = calling_model();
  onnx::FunctionProto* function = add_function(model, "Twice", "r = LeakyRelu(a)");
  function->add_attribute("slope");
  auto* reference = function->mutable_node(0)->add_attribute();
  reference->set_name("alpha");
  reference->set_type(onnx::AttributeProto::FLOAT);
  reference->set_ref_attr_name("slope");
  auto* given = model.mutable_graph()->mutable_node(0)->add_attribute();
  given->set_name("slope");
  given->set_type(onnx::AttributeProto::FLOAT);
  given->set_f(0.25f);
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(node_of(imported->graph, "first/LeakyRelu").attrs.real("alpha"), 0.25);
  EXPECT_FALSE(node_of(imported->graph, "Twice_call2/LeakyRelu").attrs.has("alpha"))
      << "not given: the operator's default";
}

// Names of the body that the model has already, or another call of the same name.
TEST(Functions, NamesOfBodiesAreNew) {
  onnx::ModelProto model = model_from_text(
      "g (float[2] x) => (float[2] y) { p = Relu(x) h = Twice(p) i = Twice(h) c = Constant<value = bool {1}>()"
      " y = If (c) <then_branch = t () => (float[2] r) { r = Twice(i) }, else_branch = e () => (float[2] s) { s = "
      "Twice(x) }> }");
  model.add_opset_import()->set_domain("local");
  model.mutable_opset_import(1)->set_version(1);
  auto& nodes = *model.mutable_graph()->mutable_node();
  nodes[0].set_output(0, "k/t");
  nodes[1].set_input(0, "k/t");
  std::vector<onnx::NodeProto*> calls = {&nodes[1], &nodes[2]};
  for (auto& attribute : *nodes[4].mutable_attribute())
    calls.push_back(attribute.mutable_g()->mutable_node(0));
  for (onnx::NodeProto* call : calls) {
    call->set_domain("local");
    call->set_name("k");
  }
  add_function(model, "Twice", "t = Add(a, a) r = Neg(t)");
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_STREQ(node_of(imported->graph, "k_2/Add").op->name, "Add");
  EXPECT_EQ(value_of(imported->graph, "k_2/t").producer, value_of(imported->graph, "h").producer - 1);
  EXPECT_EQ(value_of(imported->graph, "k_3/t").producer, value_of(imported->graph, "i").producer - 1);
  // Names that are free stay.
  nodes[0].set_output(0, "k/u");
  nodes[1].set_input(0, "k/u");
  const Result<ImportedModel> free = import_model(model);
  ASSERT_TRUE(free.ok()) << free.error().message;
  EXPECT_EQ(value_of(free->graph, "k/t").producer, value_of(free->graph, "h").producer - 1);
}

TEST(Functions, FunctionsMayCallFunctions) {
  onnx::ModelProto model = calling_model();
  add_function(model, "Inner", "r = Neg(a)");
  onnx::FunctionProto* outer = add_function(model, "Twice", "t = Inner(a) r = Inner(t)");
  for (auto& node : *outer->mutable_node()) node.set_domain("local");
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(imported->graph.nodes.size(), 4u);
}

TEST(Functions, RecursionIsRefused) {
  onnx::ModelProto model = calling_model();
  add_function(model, "Twice", "r = Twice(a)")->mutable_node(0)->set_domain("local");
  expect_refused(import_model(model), Errc::bad_input, {"Twice", "recursive"});
}

TEST(Functions, ExponentialGrowthReachesTheLimit) {
  onnx::ModelProto model = calling_model();
  const auto name = [](int i) { return i == 0 ? std::string("Twice") : "F" + std::to_string(i); };
  for (int i = 0; i < 25; ++i) {
    onnx::FunctionProto* function =
        add_function(model, name(i), "t = " + name(i + 1) + "(a) r = " + name(i + 1) + "(t)");
    for (auto& node : *function->mutable_node()) node.set_domain("local");
  }
  add_function(model, name(25), "r = Relu(a)");
  ImportOptions options;
  options.limits.nodes = 2000;
  expect_refused(import_model(model, options), Errc::limit, {"2000"});
}

TEST(Functions, BytesThatInliningMakesAreLimited) {
  onnx::ModelProto model = calling_model();
  add_function(model, "Twice", "t = Relu(a) r = Add(t, t)")
      ->mutable_node(0)
      ->set_doc_string(std::string(10000, 'd'));
  ImportOptions options;
  options.limits.expanded_bytes = 20000;
  expect_refused(import_model(model, options), Errc::limit, {"20000 bytes after inlining"});
  options.limits.expanded_bytes = 30000;
  EXPECT_TRUE(import_model(model, options).ok());
}

TEST(Functions, AnOpsetIsGivenOnce) {
  onnx::ModelProto model = calling_model();
  auto* function = add_function(model, "Twice", "t = Relu(a) r = Add(t, t)");
  *function->add_opset_import() = function->opset_import(0);
  expect_refused(import_model(model), Errc::bad_input, {"function 'Twice'", "given twice"});
}

TEST(Functions, CallChainsAreLimited) {
  onnx::ModelProto model = calling_model();
  const auto name = [](int i) { return i == 0 ? std::string("Twice") : "F" + std::to_string(i); };
  for (int i = 0; i < 40; ++i) {
    add_function(model, name(i), "r = " + name(i + 1) + "(a)")->mutable_node(0)->set_domain("local");
  }
  add_function(model, name(40), "r = Relu(a)");
  expect_refused(import_model(model), Errc::limit, {"nesting"});
}

TEST(Functions, AnotherOpsetIsFineWhereItMeansTheSame) {
  onnx::ModelProto model = calling_model();
  add_function(model, "Twice", "r = Relu(a)")->mutable_opset_import(0)->set_version(12);
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  model.clear_functions();
  add_function(model, "Twice", "r = Softmax(a)")->mutable_opset_import(0)->set_version(12);
  expect_refused(import_model(model), Errc::bad_input,
                 {"local.Twice (2 nodes", "opset 12", "Softmax differs"});
}

TEST(Functions, ScopesShowTheFunction) {
  onnx::ModelProto model = calling_model();
  model.mutable_graph()->mutable_node(0)->set_name("/encoder/block/call");
  onnx::FunctionProto* outer = add_function(model, "Twice", "r = Inner(a)");
  outer->mutable_node(0)->set_domain("local");
  outer->mutable_node(0)->set_name("inside");
  add_function(model, "Inner", "r = Neg(a)");
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  ASSERT_EQ(imported->graph.sources.size(), 2u);
  EXPECT_EQ(imported->graph.sources[0].scope, "encoder/block/call:Twice/inside:Inner");
  EXPECT_EQ(imported->graph.sources[1].scope, "Twice/inside:Inner");
}

// Fields of later releases, as bytes: field number, length-delimited.
void set_newer_field(google::protobuf::Message& message, int number, const std::string& bytes) {
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(number, bytes);
}

TEST(Functions, OverloadsAreFunctionsOfTheirOwn) {
  onnx::ModelProto model = calling_model();
  set_newer_field(*add_function(model, "Twice", "r = Neg(a)"), 13, "second");
  add_function(model, "Twice", "r = Abs(a)");
  set_newer_field(*model.mutable_graph()->mutable_node(1), 8, "second");
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_STREQ(imported->graph.nodes[0].op->name, "Abs");
  EXPECT_STREQ(imported->graph.nodes[1].op->name, "Neg");
  set_newer_field(*model.mutable_graph()->mutable_node(0), 8, "third");
  expect_refused(import_model(model), Errc::bad_input, {"local.Twice (1 node"});
}

TEST(Functions, AttributesHaveDefaults) {
  onnx::ModelProto model = calling_model();
  onnx::FunctionProto* function = add_function(model, "Twice", "r = LeakyRelu(a)");
  auto* reference = function->mutable_node(0)->add_attribute();
  reference->set_name("alpha");
  reference->set_type(onnx::AttributeProto::FLOAT);
  reference->set_ref_attr_name("slope");
  onnx::AttributeProto slope;
  slope.set_name("slope");
  slope.set_type(onnx::AttributeProto::FLOAT);
  slope.set_f(0.5f);
  set_newer_field(*function, 11, slope.SerializeAsString());
  slope.set_f(0.25f);
  *model.mutable_graph()->mutable_node(0)->add_attribute() = slope;
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(imported->graph.nodes[0].attrs.real("alpha"), 0.25);
  EXPECT_EQ(imported->graph.nodes[1].attrs.real("alpha"), 0.5);
}

TEST(Functions, SubgraphsOfBodiesAndCallsInSubgraphs) {
  onnx::ModelProto model = model_from_text(
      "g (float[2] x) => (float[2] y) { c = Constant<value = bool {1}>()"
      " y = If (c) <then_branch = t () => (float[2] q) { q = Choose(x) },"
      " else_branch = e () => (float[2] q) { q = Neg(x) }> }");
  model.add_opset_import()->set_domain("local");
  model.mutable_opset_import(1)->set_version(1);
  model.mutable_graph()->mutable_node(1)->mutable_attribute(0)->mutable_g()->mutable_node(0)->set_domain(
      "local");
  add_function(
      model, "Choose",
      "h = Abs(a) c = Constant<value = bool {0}>() r = If (c) <then_branch = t () => (float[2] s) { s = Neg(a) },"
      " else_branch = e () => (float[2] s) { u = Neg(h) s = Mul(u, a) }>");
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  std::string ops;
  for (const Node& node : imported->graph.nodes) ops += std::string(node.op->name) + " ";
  EXPECT_EQ(ops, "Abs Neg Mul ");
  EXPECT_TRUE(verify(imported->graph).ok());
}

TEST(Functions, AnInputMayBeAnOutput) {
  onnx::ModelProto model = calling_model();
  add_function(model, "Twice", "")->set_output(0, "a");
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_STREQ(imported->graph.nodes[0].op->name, "Identity");
  EXPECT_EQ(imported->graph.value(imported->graph.outputs[0]).name, "y");
}

TEST(Functions, DuplicatesAndWrongCallsAreRefused) {
  onnx::ModelProto model = calling_model();
  add_function(model, "Twice", "r = Relu(a)");
  onnx::ModelProto twice = model;
  *twice.add_functions() = twice.functions(0);
  expect_refused(import_model(twice), Errc::bad_input, {"'Twice' is defined twice"});
  model.mutable_graph()->mutable_node(0)->add_input("x");
  expect_refused(import_model(model), Errc::bad_input, {"more inputs"});
}

}  // namespace
}  // namespace gradloom
