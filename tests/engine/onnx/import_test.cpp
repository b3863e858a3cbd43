#include "engine/onnx/import.h"

#include <google/protobuf/unknown_field_set.h>

#include <cmath>

#include "engine/base/hash.h"
#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::add_floats;
using test::add_ints;
using test::expect_refused;
using test::has_note;
using test::import_bytes;
using test::import_model;
using test::imported_or_fail;
using test::model_from_text;
using test::node_of;
using test::value_of;

ImportOptions with_dims(std::map<std::string, std::int64_t> dims) {
  ImportOptions options;
  options.dims = std::move(dims);
  return options;
}

onnx::ModelProto linear_model() {
  onnx::ModelProto model =
      model_from_text("g (float[N, 2] x) => (float[N, 3] y) { h = MatMul(x, w) y = Add(h, b) }");
  add_floats(model, "fc.weight", {2, 3}, {1, 2, 3, 4, 5, 6});
  add_floats(model, "fc.bias", {3}, {1, 2, 3});
  *model.mutable_graph()->mutable_node(0)->mutable_input(1) = "fc.weight";
  *model.mutable_graph()->mutable_node(1)->mutable_input(1) = "fc.bias";
  return model;
}

TEST(Import, NamesRolesTypesAndSources) {
  const ImportedModel model = imported_or_fail(linear_model(), with_dims({{"N", 4}}));
  const Graph& graph = model.graph;
  EXPECT_EQ(graph.opset, 17);
  EXPECT_EQ(model.ir_version, 8);
  EXPECT_EQ(model.content_hash, hash_hex(linear_model().SerializeAsString()));
  EXPECT_TRUE(model.unbound_dims.empty());
  ASSERT_EQ(graph.inputs.size(), 1u);
  EXPECT_EQ(to_string(graph.type(graph.inputs[0])), "f32[4, 2]");
  ASSERT_EQ(graph.parameters.size(), 2u);
  EXPECT_EQ(graph.value(graph.parameters[0]).name, "fc.weight");
  EXPECT_EQ(graph.value(graph.parameters[0]).role, Role::parameter);
  EXPECT_EQ(graph.value(graph.parameters[1]).data.to_f64(), (std::vector<double>{1, 2, 3}));
  ASSERT_EQ(graph.outputs.size(), 1u);
  EXPECT_EQ(graph.value(graph.outputs[0]).name, "y");
  EXPECT_EQ(to_string(value_of(graph, "h").type), "f32[4, 3]");
  ASSERT_EQ(graph.sources.size(), 2u);
  EXPECT_EQ(graph.sources[0].op_type, "MatMul");
  EXPECT_EQ(graph.sources[0].scope, "fc");
  EXPECT_EQ(node_of(graph, "Add_1").origin.sources, std::vector<std::uint32_t>{1});
}

TEST(Import, HashIsThatOfTheFile) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "m.onnx", linear_model().SerializeAsString());
  const Result<ImportedModel> imported = import_onnx(folder / "m.onnx", {});
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(imported->content_hash, *hash_file_hex(folder / "m.onnx"));
  EXPECT_EQ(imported->path, folder / "m.onnx");
}

TEST(Import, AnOutputListedTwiceIsTwoOutputs) {
  const ImportedModel model =
      imported_or_fail(model_from_text("g (float[2] x) => (float[2] y, float[2] y) { y = Relu(x) }"));
  ASSERT_EQ(model.graph.outputs.size(), 2u);
  EXPECT_EQ(model.graph.outputs[0], model.graph.outputs[1]);
  EXPECT_TRUE(verify(model.graph).ok());
}

// ---- dimensions ----

TEST(ImportDims, UnboundDimsStaySymbolicAndAreListed) {
  const ImportedModel model = imported_or_fail(linear_model());
  EXPECT_EQ(model.unbound_dims, std::vector<std::string>{"N"});
  EXPECT_EQ(model.graph.symbols, std::vector<std::string>{"N"});
  EXPECT_EQ(value_of(model.graph, "h").type.shape, (Shape{-1, 3}));
}

TEST(ImportDims, OneNameIsOneDimension) {
  const onnx::ModelProto text =
      model_from_text("g (float[N, M] a, float[N, M] b) => (float[N, M] y) { y = Add(a, b) }");
  EXPECT_EQ(value_of(imported_or_fail(text).graph, "y").type.shape, (Shape{-1, -2}));
  const ImportedModel bound = imported_or_fail(text, with_dims({{"M", 5}}));
  EXPECT_EQ(value_of(bound.graph, "y").type.shape, (Shape{-1, 5}));
  EXPECT_EQ(bound.unbound_dims, std::vector<std::string>{"N"});
}

TEST(ImportDims, UnnamedDimsGetNames) {
  onnx::ModelProto model = linear_model();
  model.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->Clear();
  EXPECT_EQ(imported_or_fail(model).unbound_dims, std::vector<std::string>{"x_dim0"});
  EXPECT_EQ(to_string(value_of(imported_or_fail(model, with_dims({{"x_dim0", 7}})).graph, "x").type),
            "f32[7, 2]");
}

TEST(ImportDims, UnknownNamesAndBadNumbersAreUsageErrors) {
  expect_refused(import_model(linear_model(), with_dims({{"batch", 4}})), Errc::usage,
                 {"'batch'", "it has: N"});
  expect_refused(import_model(linear_model(), with_dims({{"N", 0}})), Errc::usage, {"at least 1"});
  expect_refused(import_model(linear_model(), with_dims({{"N", std::int64_t{1} << 62}})), Errc::limit,
                 {"63 bits"});
}

// ---- initializers ----

TEST(ImportInitializers, IntegersAndArgumentsAreConstants) {
  onnx::ModelProto model = model_from_text(
      "g (float[2, 6] x) => (float[4, 3] y) { r = Reshape(x, shape) c = Clip(r, low) s = Mul(c, k) y = "
      "Add(s, w) }");
  add_ints(model, "shape", {2}, {4, -1});
  add_floats(model, "low", {}, {0});
  add_floats(model, "onnx::Mul_12", {}, {2});
  *model.mutable_graph()->mutable_node(2)->mutable_input(1) = "onnx::Mul_12";
  add_floats(model, "w", {3}, {1, 2, 3});
  add_floats(model, "unused", {1}, {1});
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_EQ(value_of(imported.graph, "shape").role, Role::constant);
  EXPECT_EQ(value_of(imported.graph, "low").role, Role::constant);
  EXPECT_EQ(value_of(imported.graph, "onnx::Mul_12").role, Role::constant);
  EXPECT_EQ(value_of(imported.graph, "w").role, Role::parameter);
  EXPECT_EQ(imported.graph.parameters.size(), 1u);
  EXPECT_EQ(find_value(imported.graph, "unused"), kNone);
  EXPECT_TRUE(has_note(imported, "onnx::Mul_12"));
  EXPECT_TRUE(has_note(imported, "unused"));
  EXPECT_EQ(to_string(value_of(imported.graph, "y").type), "f32[4, 3]");
}

TEST(ImportInitializers, FoldedWeightsStayParameters) {
  onnx::ModelProto model = model_from_text("g (float[2, 2] x) => (float[2, 2] y) { y = MatMul(x, w) }");
  add_floats(model, "onnx::MatMul_250", {2, 2}, {1, 0, 0, 1});
  *model.mutable_graph()->mutable_node(0)->mutable_input(1) = "onnx::MatMul_250";
  EXPECT_EQ(imported_or_fail(model).graph.parameters.size(), 1u);
}

TEST(ImportInitializers, OlderFilesListThemAsInputsToo) {
  onnx::ModelProto model = linear_model();
  auto* input = model.mutable_graph()->add_input();
  input->set_name("fc.bias");
  input->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  input->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(3);
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_EQ(imported.graph.inputs.size(), 1u);
  EXPECT_EQ(imported.graph.parameters.size(), 2u);
  input->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(4);
  expect_refused(import_model(model), Errc::bad_input, {"fc.bias", "another shape"});
  input->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::DOUBLE);
  expect_refused(import_model(model), Errc::bad_input, {"fc.bias", "element type"});
}

onnx::ModelProto batch_norm_model() {
  onnx::ModelProto model = model_from_text(
      "g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y) { y, m, v = BatchNormalization<training_mode = 1>(x, "
      "s, b, mean, var) }");
  for (const char* name : {"s", "b", "mean", "var"}) add_floats(model, name, {3}, {1, 1, 1});
  return model;
}

TEST(ImportInitializers, RunningStatisticsAreStatesWithUpdates) {
  const ImportedModel imported = imported_or_fail(batch_norm_model());
  const Graph& graph = imported.graph;
  EXPECT_EQ(graph.parameters.size(), 2u);
  EXPECT_EQ(value_of(graph, "mean").role, Role::state);
  EXPECT_TRUE(value_of(graph, "mean").data.defined());
  ASSERT_EQ(graph.updates.size(), 2u);
  EXPECT_EQ(graph.updates[0].state, find_value(graph, "mean"));
  EXPECT_EQ(graph.updates[0].next, find_value(graph, "m"));
  EXPECT_EQ(graph.updates[1].state, find_value(graph, "var"));
  EXPECT_EQ(graph.updates[1].next, find_value(graph, "v"));
}

// A module that is called twice: the second node starts from what the first one made of the statistics.
TEST(ImportInitializers, RunningStatisticsOfTwoNodesAreUpdatedInTurn) {
  onnx::ModelProto model = model_from_text(
      "g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] z) {"
      "  y, m, v = BatchNormalization<training_mode = 1>(x, s, b, mean, var)"
      "  z, m2, v2 = BatchNormalization<training_mode = 1>(y, s, b, mean, var) }");
  for (const char* name : {"s", "b", "mean", "var"}) add_floats(model, name, {3}, {1, 1, 1});
  const ImportedModel imported = imported_or_fail(model);
  const Graph& graph = imported.graph;
  ASSERT_EQ(graph.updates.size(), 2u);
  EXPECT_EQ(graph.updates[0].state, find_value(graph, "mean"));
  EXPECT_EQ(graph.updates[0].next, find_value(graph, "m2"));
  EXPECT_EQ(graph.updates[1].state, find_value(graph, "var"));
  EXPECT_EQ(graph.updates[1].next, find_value(graph, "v2"));
  const Node& second = graph.nodes[value_of(graph, "z").producer];
  EXPECT_EQ(second.inputs[3], find_value(graph, "m"));
  EXPECT_EQ(second.inputs[4], find_value(graph, "v"));
}

TEST(ImportInitializers, InferenceFormsOfBatchNormalizationAreNoted) {
  const auto notes = [](const char* node) {
    onnx::ModelProto model =
        model_from_text(std::string("g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y) { ") + node + " }");
    for (const char* name : {"s", "b", "mean", "var"}) add_floats(model, name, {3}, {1, 1, 1});
    return imported_or_fail(model).notes;
  };
  ASSERT_EQ(notes("y = BatchNormalization(x, s, b, mean, var)").size(), 1u);
  EXPECT_NE(notes("y = BatchNormalization(x, s, b, mean, var)")[0].find(
                "1 BatchNormalization node is in inference form"),
            std::string::npos);
  EXPECT_TRUE(notes("y, m, v = BatchNormalization<training_mode = 1>(x, s, b, mean, var)").empty());
}

TEST(ImportInitializers, RunningStatisticsWithoutTrainingHaveNoUpdates) {
  onnx::ModelProto model = batch_norm_model();
  auto* node = model.mutable_graph()->mutable_node(0);
  node->clear_attribute();
  node->mutable_output()->DeleteSubrange(1, 2);
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_EQ(value_of(imported.graph, "var").role, Role::state);
  EXPECT_TRUE(imported.graph.updates.empty());
}

// ---- nodes ----

TEST(ImportNodes, UnsortedNodesAreSorted) {
  const ImportedModel imported =
      imported_or_fail(model_from_text("g (float[2] x) => (float[2] y) { y = Relu(h) h = Neg(x) }"));
  EXPECT_TRUE(has_note(imported, "sorted"));
  EXPECT_EQ(imported.graph.sources[0].op_type, "Relu");
  EXPECT_GT(node_of(imported.graph, "Relu_0").rank, node_of(imported.graph, "Neg_1").rank);
}

TEST(ImportNodes, CyclesNameTheirNodes) {
  expect_refused(import_model(model_from_text(
                     "g (float[2] x) => (float[2] y) { a = Add(x, c) b = Relu(a) c = Neg(b) y = Neg(c) }")),
                 Errc::bad_input, {"cycle", "Add_0", "Relu_1", "Neg_2"});
  expect_refused(import_model(model_from_text("g (float[2] x) => (float[2] y) { y = Add(x, y) }")),
                 Errc::bad_input, {"cycle", "Add_0"});
}

TEST(ImportNodes, ALongChainIsSortedQuickly) {
  onnx::ModelProto model = model_from_text("g (float[2] x) => (float[2] y) { y = Relu(v0) }");
  const int length = 100000;
  for (int i = 0; i < length; ++i) {
    auto* node = model.mutable_graph()->add_node();
    node->set_op_type("Relu");
    node->add_input(i + 1 == length ? "x" : "v" + std::to_string(i + 1));
    node->add_output("v" + std::to_string(i));
  }
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(imported->graph.nodes.size(), static_cast<std::size_t>(length) + 1);
}

TEST(ImportNodes, DuplicatesNameBothPlaces) {
  expect_refused(import_model(model_from_text("g (float[2] x) => (float[2] y) { y = Relu(x) y = Neg(x) }")),
                 Errc::bad_input, {"'y' is defined twice", "Relu_0", "Neg_1"});
  expect_refused(import_model(model_from_text("g (float[2] x) => (float[2] x) { x = Relu(x) }")),
                 Errc::bad_input, {"'x' is defined twice", "a graph input", "Relu_0"});
  onnx::ModelProto model = linear_model();
  add_floats(model, "fc.bias", {3}, {1, 2, 3});
  expect_refused(import_model(model), Errc::bad_input, {"'fc.bias' is defined twice", "an initializer"});
  expect_refused(import_model(model_from_text("g (float[2] x, float[2] x) => (float[2] y) { y = Relu(x) }")),
                 Errc::bad_input, {"'x' is defined twice"});
}

TEST(ImportNodes, MissingValuesNameTheConsumer) {
  expect_refused(import_model(model_from_text("g (float[2] x) => (float[2] y) { y = Add(x, ghost) }")),
                 Errc::bad_input, {"Add_0", "input 1", "'ghost'"});
  expect_refused(import_model(model_from_text("g (float[2] x) => (float[2] z) { y = Relu(x) }")),
                 Errc::bad_input, {"graph output 'z'"});
}

TEST(ImportNodes, NamesAreUnique) {
  onnx::ModelProto model =
      model_from_text("g (float[2] x) => (float[2] z) { a = Relu(x) b = Relu(a) c = Neg(b) z = Neg(c) }");
  for (int i = 0; i < 3; ++i) model.mutable_graph()->mutable_node(i)->set_name("n");
  model.mutable_graph()->mutable_node(2)->set_name("Neg_3");
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_TRUE(has_note(imported, "renamed"));
  EXPECT_EQ(imported.graph.nodes[0].name, "n");
  EXPECT_EQ(imported.graph.nodes[1].name, "n_2");
  EXPECT_EQ(imported.graph.nodes[3].name, "Neg_3_");
}

TEST(ImportNodes, RandomNodesAreKeyedByTheirName) {
  onnx::ModelProto model = model_from_text("g (float[2] x) => (float[2] y) { y = Dropout(x) }");
  model.mutable_graph()->mutable_node(0)->set_name("/layers.0/Dropout");
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_EQ(node_of(imported.graph, "/layers.0/Dropout").attrs.integer("key"),
            static_cast<std::int64_t>(fnv1a64("/layers.0/Dropout")));
}

TEST(ImportNodes, WrongArityIsRefused) {
  expect_refused(import_model(model_from_text("g (float[2] x) => (float[2] y) { y = Add(x) }")),
                 Errc::bad_input, {"Add_0", "1 input"});
  expect_refused(import_model(model_from_text("g (float[2] x) => (float[2] y) { y = Relu(x, x) }")),
                 Errc::bad_input, {"Relu_0", "2 inputs"});
  expect_refused(import_model(model_from_text("g (float[2] x) => (float[2] y) { y, z = Relu(x) }")),
                 Errc::bad_input, {"Relu_0", "2 outputs"});
  onnx::ModelProto model = model_from_text("g (float[2] x) => (float[2] y) { y = Add(x, x) }");
  model.mutable_graph()->mutable_node(0)->set_input(0, "");
  expect_refused(import_model(model), Errc::bad_input, {"Add_0", "input 0 is required"});
  model.mutable_graph()->mutable_node(0)->set_input(0, "x");
  model.mutable_graph()->mutable_node(0)->set_output(0, "");
  expect_refused(import_model(model), Errc::bad_input, {"Add_0", "no outputs"});
}

TEST(ImportNodes, MaxAndMinOfAnyNumberOfInputs) {
  const ImportedModel imported =
      imported_or_fail(model_from_text("g (float[2] a, float[1] b, float[3, 1] c) => (float[3, 2] y, "
                                       "float[2] z) { y = Max(a, b, c) z = Min(a) }"));
  EXPECT_EQ(imported.graph.nodes.size(), 3u);
  EXPECT_EQ(to_string(value_of(imported.graph, "y").type), "f32[3, 2]");
  EXPECT_EQ(node_of(imported.graph, "Max_0/1").origin.sources,
            node_of(imported.graph, "Max_0").origin.sources);
  EXPECT_STREQ(node_of(imported.graph, "Min_1").op->name, "Identity");
  onnx::ModelProto none = model_from_text("g (float[2] a) => (float[2] y) { y = Max(a) }");
  none.mutable_graph()->mutable_node(0)->clear_input();
  expect_refused(import_model(none), Errc::bad_input, {"Max_0", "0 inputs"});
}

TEST(ImportNodes, KnownInputsBecomeConstants) {
  const onnx::ModelProto model =
      model_from_text("g (float[2, 6] x, int64[2] shape) => (float[3, 4] y) { y = Reshape(x, shape) }");
  ImportOptions options;
  options.known_inputs["shape"] = Tensor::from_i64({3, 4});
  const ImportedModel imported = imported_or_fail(model, options);
  EXPECT_EQ(imported.graph.inputs.size(), 1u);
  EXPECT_EQ(to_string(value_of(imported.graph, "y").type), "f32[3, 4]");
  options.known_inputs["shape"] = Tensor::from_i64({3, 2, 2});
  expect_refused(import_model(model, options), Errc::bad_input, {"'shape'", "i64[3]"});
}

TEST(ImportNodes, ShapesThatDoNotFitAreRefused) {
  expect_refused(import_model(model_from_text(
                     "g (float[2, 4] a, float[3, 5] b) => (float[2, 5] y) { y = MatMul(a, b) }")),
                 Errc::bad_input, {"MatMul_0"});
  expect_refused(
      import_model(model_from_text("g (float[2] a, double[2] b) => (float[2] y) { y = Add(a, b) }")),
      Errc::bad_input, {"Add_0"});
}

TEST(ImportNodes, OutputsMustHaveTheirDeclaredElementType) {
  expect_refused(import_model(model_from_text("g (float[2] x) => (int64[2] y) { y = Relu(x) }")),
                 Errc::bad_input, {"'y'", "i64", "f32"});
  EXPECT_TRUE(has_note(imported_or_fail(model_from_text("g (float[2] x) => (float[3] y) { y = Relu(x) }")),
                       "another shape"));
}

// ---- unknown operators ----

onnx::ModelProto unknown_model() {
  onnx::ModelProto model = model_from_text(
      "g (float[2] x) => (float[2] y) { a = Foo(x) b = Foo(a) c = Bar(b) d = Neg(c) y = Relu(d) }");
  model.mutable_graph()->mutable_node(0)->set_name("a_node");
  model.mutable_graph()->mutable_node(2)->set_domain("my");
  model.add_opset_import()->set_domain("my");
  model.mutable_opset_import(1)->set_version(1);
  return model;
}

TEST(ImportUnknown, AllAreListedAtOnce) {
  expect_refused(import_model(unknown_model()), Errc::bad_input,
                 {"2 operators are not supported: Foo (2 nodes: a_node, Foo_1), my.Bar (1 node: Bar_2)"});
}

TEST(ImportUnknown, ViewingKeepsThemAsOpaqueNodes) {
  ImportOptions options;
  options.allow_unknown = true;
  onnx::ModelProto model = unknown_model();
  *model.mutable_graph()->add_value_info() = model.graph().input(0);
  model.mutable_graph()->mutable_value_info(0)->set_name("c");
  const ImportedModel imported = imported_or_fail(model, options);
  ASSERT_EQ(imported.unknown.size(), 3u);
  EXPECT_EQ(imported.unknown[2].node, "Bar_2");
  EXPECT_EQ(imported.unknown[2].domain, "my");
  EXPECT_STREQ(node_of(imported.graph, "a_node").op->name, "Foo");
  EXPECT_FALSE(value_of(imported.graph, "a").has_type);
  EXPECT_EQ(to_string(value_of(imported.graph, "c").type), "f32[2]") << "declared in the file";
  EXPECT_EQ(to_string(value_of(imported.graph, "y").type), "f32[2]");
  const ImportedModel again = imported_or_fail(model, options);
  EXPECT_EQ(node_of(imported.graph, "a_node").op, node_of(again.graph, "a_node").op);
}

TEST(ImportUnknown, ValuesAfterThemHaveNoType) {
  ImportOptions options;
  options.allow_unknown = true;
  const ImportedModel imported = imported_or_fail(unknown_model(), options);
  EXPECT_FALSE(value_of(imported.graph, "d").has_type);
  EXPECT_FALSE(value_of(imported.graph, "y").has_type);
}

TEST(ImportUnknown, OurOwnOperatorsCannotComeFromAFile) {
  onnx::ModelProto model = model_from_text("g (float[2, 2] x) => (float[2, 2] y) { y = FusedMatMul(x, x) }");
  model.mutable_graph()->mutable_node(0)->set_domain("gradloom");
  model.add_opset_import()->set_domain("gradloom");
  model.mutable_opset_import(1)->set_version(1);
  expect_refused(import_model(model), Errc::bad_input, {"gradloom.FusedMatMul"});
}

// Ten things at once: unknown operators (three of one kind), a function of another opset, an attribute, a
// domain, control flow and an unknown operator inside it.
TEST(ImportUnknown, TenProblemsAreTenNames) {
  onnx::ModelProto model = model_from_text(
      "g (float[2] x, bool c) => (float[2] y) {"
      " a = Wobble(x) b = Wobble(a) d = Wobble(b) e = Frob(d) f = Clamp(e) h = Relu<gain = 2>(f) i = Twice(h)"
      " y = If (c) <then_branch = t () => (float[2] r) { r = Inner(i) },"
      " else_branch = n () => (float[2] r) { r = Neg(i) }> k = Swizzle(y) l = Loop (m, c, k) <body = z"
      " (int64 j, bool g, float[2] p) => (bool o, float[2] q) { o = Identity(g) q = Neg(p) }> }");
  model.mutable_graph()->mutable_node(8)->set_domain("com.unheard.of");
  model.mutable_graph()->mutable_node(6)->set_domain("local");
  add_ints(model, "unused", {1}, {1});
  model.mutable_graph()->mutable_node(9)->set_input(0, "");
  model.mutable_graph()->mutable_node(3)->set_name("/layers.1/mlp/Frob");
  model.add_opset_import()->set_domain("local");
  model.mutable_opset_import(1)->set_version(1);
  onnx::FunctionProto* function = model.add_functions();
  function->set_name("Twice");
  function->set_domain("local");
  function->add_input("a");
  function->add_output("r");
  function->add_node()->set_op_type("Softmax");
  function->mutable_node(0)->add_input("a");
  function->mutable_node(0)->add_output("r");
  function->add_opset_import()->set_version(11);
  ImportOptions viewing;
  viewing.allow_unknown = true;
  const ImportedModel viewed = imported_or_fail(model, viewing);
  std::vector<std::string> found;
  for (const UnknownOp& u : viewed.unknown)
    found.push_back(u.node + "|" + u.op_type + "|" + u.scope + "|" + u.reason);
  EXPECT_EQ(found,
            (std::vector<std::string>{
                "Wobble_0|Wobble||", "Wobble_1|Wobble||", "Wobble_2|Wobble||",
                "/layers.1/mlp/Frob|Frob|layers.1/mlp|", "Clamp_4|Clamp||",
                "Relu_5|Relu||attribute 'gain' is not known",
                "Twice_6|Twice||the function is written for opset 11, the model for 17, and Softmax differs "
                "between them",
                "If_7|If||its condition is not known before running", "If_7/Inner|Inner||",
                "Swizzle_8|Swizzle||the model imports no opset of its domain",
                "Loop_9|Loop||its condition is not known before running"}));
  expect_refused(import_model(model), Errc::bad_input,
                 {"9 operators are not", "Wobble (3 nodes: Wobble_0, Wobble_1, Wobble_2)", "Frob", "Clamp",
                  "'gain' is not known", "local.Twice", "If (1 node: If_7; its condition", "Inner",
                  "com.unheard.of.Swizzle", "Loop"});
}

TEST(ImportInitializers, TorchNamesItsConstantsByNumber) {
  onnx::ModelProto model =
      model_from_text("g (float[2, 3] x) => (float[2, 2] y) { h = MatMul(x, val_1) y = Mul(h, val_2) }");
  add_floats(model, "val_1", {3, 2}, {1, 2, 3, 4, 5, 6});
  add_floats(model, "val_2", {}, {0.5});
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_EQ(value_of(imported.graph, "val_1").role, Role::parameter) << "a folded weight";
  EXPECT_EQ(value_of(imported.graph, "val_2").role, Role::constant);
  EXPECT_TRUE(has_note(imported, "val_2"));
}

TEST(Import, TorchModulesAreScopes) {
  onnx::ModelProto model = linear_model();
  onnx::StringStringEntryProto entry;
  entry.set_key("pkg.torch.onnx.name_scopes");
  entry.set_value("['', 'blocks.2', 'blocks.2.fc', 'linear']");
  auto* node = model.mutable_graph()->mutable_node(1);
  node->GetReflection()->MutableUnknownFields(node)->AddLengthDelimited(9, entry.SerializeAsString());
  EXPECT_EQ(imported_or_fail(model).graph.sources[1].scope, "blocks.2/fc");
}

TEST(ImportOpset, OnlyKnownOnes) {
  for (const int opset : {0, 29, 1000000}) {
    expect_refused(import_model(model_from_text("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset)),
                   Errc::bad_input, {"opset " + std::to_string(opset), "1 to 28"});
  }
  for (const int opset : {6, 7, 13, 17, 18, 24, 28})
    imported_or_fail(model_from_text("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset));
  onnx::ModelProto model = linear_model();
  model.clear_opset_import();
  expect_refused(import_model(model), Errc::bad_input, {"opset"});
  model = linear_model();
  *model.add_opset_import() = model.opset_import(0);
  expect_refused(import_model(model), Errc::bad_input, {"twice"});
}

TEST(ImportOpset, AnUnknownOpsetCanStillBeViewed) {
  ImportOptions options;
  options.allow_unknown = true;
  const ImportedModel imported =
      imported_or_fail(model_from_text("g (float[2] x) => (float[2] y) { y = Relu(x) }", 99), options);
  ASSERT_EQ(imported.unknown.size(), 1u);
  EXPECT_NE(imported.unknown[0].reason.find("opset 99"), std::string::npos);
}

TEST(ImportOpset, FutureIrVersionsAreNoted) {
  onnx::ModelProto model = linear_model();
  model.set_ir_version(99);
  EXPECT_TRUE(has_note(imported_or_fail(model), "IR version 99"));
  model.set_ir_version(2);
  expect_refused(import_model(model), Errc::bad_input, {"IR version 2"});
}

// ---- f64 ----

TEST(ImportF64, EveryFloatBecomesDouble) {
  onnx::ModelProto model = model_from_text(
      "g (float[N, 2] x, int64[N] i) => (float[N, 3] y, float[N] c, float[2] f) {"
      " h = MatMul(x, w) k = Constant<value = float {0.5}>() y = Add(h, k) c = Cast<to = 1>(i) f = "
      "ConstantOfShape(two) }");
  add_floats(model, "w", {2, 3}, {0.1f, 2, 3, 4, 5, 6});
  add_ints(model, "two", {1}, {2});
  ImportOptions options = with_dims({{"N", 4}});
  options.float_type = DType::f64;
  const ImportedModel imported = imported_or_fail(model, options);
  for (const Value& value : imported.graph.values) EXPECT_NE(value.type.dtype, DType::f32) << value.name;
  EXPECT_EQ(to_string(value_of(imported.graph, "y").type), "f64[4, 3]");
  EXPECT_EQ(to_string(value_of(imported.graph, "c").type), "f64[4]");
  EXPECT_EQ(to_string(value_of(imported.graph, "f").type), "f64[2]");
  EXPECT_EQ(value_of(imported.graph, "w").data.at(0), static_cast<double>(0.1f));
  options.float_type = DType::f16;
  EXPECT_EQ(import_model(model, options).error().code, Errc::usage);
}

// ---- damaged files ----

TEST(ImportDamaged, EveryPrefixIsRefused) {
  const std::string bytes = linear_model().SerializeAsString();
  const TemporaryFolder folder;
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    test::write_bytes(folder / "m.onnx", bytes.substr(0, n));
    const Result<ImportedModel> imported = import_onnx(folder / "m.onnx", {});
    ASSERT_FALSE(imported.ok()) << n;
    EXPECT_EQ(imported.error().code, Errc::bad_input) << n << imported.error().message;
  }
}

TEST(ImportDamaged, NoChangedByteCrashes) {
  const std::string bytes = batch_norm_model().SerializeAsString();
  const TemporaryFolder folder;
  ImportOptions viewing;
  viewing.allow_unknown = true;
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    for (const unsigned char value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[n] = static_cast<char>(value);
      test::write_bytes(folder / "m.onnx", damaged);
      for (const ImportOptions& options : {ImportOptions{}, viewing}) {
        const Result<ImportedModel> imported = import_onnx(folder / "m.onnx", options);
        if (imported.ok()) {
          EXPECT_TRUE(verify(imported->graph).ok()) << n;
        } else {
          EXPECT_TRUE(imported.error().code == Errc::bad_input || imported.error().code == Errc::limit)
              << imported.error().message;
        }
      }
    }
  }
}

TEST(ImportDamaged, FilesThatAreNotThere) {
  EXPECT_EQ(import_onnx("/nonexistent/model.onnx", {}).error().code, Errc::io);
  EXPECT_EQ(import_onnx(std::filesystem::temp_directory_path(), {}).error().code, Errc::io);
}

TEST(ImportDamaged, FilesOverTheLimit) {
  ImportOptions options;
  options.limits.file_bytes = 100;
  EXPECT_EQ(import_model(linear_model(), options).error().code, Errc::limit);
}

TEST(ImportDamaged, InputTypesThatCannotBeFed) {
  onnx::ModelProto model = linear_model();
  auto* type = model.mutable_graph()->mutable_input(0)->mutable_type();
  auto* dim = type->mutable_tensor_type()->mutable_shape()->mutable_dim(0);
  dim->set_dim_value(-3);
  expect_refused(import_model(model), Errc::bad_input, {"'x'", "-3"});
  dim->set_dim_value(std::int64_t{1} << 62);
  expect_refused(import_model(model), Errc::limit, {"'x'", "63 bits"});
  dim->set_dim_value(1);
  type->mutable_tensor_type()->set_elem_type(onnx::TensorProto::STRING);
  expect_refused(import_model(model), Errc::bad_input, {"'x'", "string"});
  type->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  for (int i = 0; i < 40; ++i) type->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(1);
  expect_refused(import_model(model), Errc::limit, {"rank"});
  type->mutable_tensor_type()->clear_shape();
  expect_refused(import_model(model), Errc::bad_input, {"'x'", "no shape"});
  type->mutable_sequence_type();
  expect_refused(import_model(model), Errc::bad_input, {"'x'", "not a tensor"});
}

TEST(ImportDamaged, ForeignNamesAreEscapedInMessages) {
  onnx::ModelProto model = model_from_text("g (float[2] x) => (float[2] y) { y = Relu(x) }");
  model.mutable_graph()->mutable_node(0)->set_op_type("\x1b[31mEvil\xff");
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_FALSE(imported.ok());
  EXPECT_EQ(imported.error().message.find('\x1b'), std::string::npos);
}

// onnxscript's form of a convolution that has no bias, where it is 3-d or its padding is text.
TEST(Import, ConvolutionWithABiasThatIsNoVector) {
  const char* text = "g (float[1, 2, 5] x, float[3, 2, 2] w) => (float[1, 3, 4] y) { y = Conv(x, w, b) }";
  onnx::ModelProto model = model_from_text(text);
  add_floats(model, "b", {3, 2}, {0, 0, 0, 0, 0, 0});
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_EQ(imported.graph.nodes[0].inputs.size(), 2u);
  EXPECT_TRUE(has_note(imported, "the bias of 1 convolution, zeros that are no vector"));
  model = model_from_text(text);
  add_floats(model, "b", {3, 2}, {0, 0, 0, 0, 0, 1});
  expect_refused(import_model(model), Errc::bad_input, {"bias [3, 2] does not fit 3"});
}

}  // namespace
}  // namespace gradloom
