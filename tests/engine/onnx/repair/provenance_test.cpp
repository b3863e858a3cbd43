// What the dynamo exporter says of initializers decides what is trained.
#include "engine/onnx/repair/provenance.h"

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::add_floats;
using test::add_metadata;
using test::imported_or_fail;
using test::model_from_text;
using test::value_of;

using test::describe;
using test::kFoldedFrom;
using test::kSignature;

constexpr const char* kKind = "pkg.torch.export.graph_signature.InputSpec.kind";

// A module of weight w, whose norm's scale the optimizer computed as 1 + g, with a table and a buffer.
onnx::ModelProto exported_model() {
  onnx::ModelProto model = model_from_text(
      "g (float[2, 3] x) => (float[2, 3] y) { a = Mul(x, add_4) b = Mul(a, cos) c = Add(b, scale) y = Mul(c, w) }");
  for (const char* name : {"add_4", "cos", "w"}) add_floats(model, name, {3}, {1, 2, 3});
  add_floats(model, "scale", {3}, {4, 5, 6});
  add_metadata(model.mutable_graph(), 16, kSignature,
               "\n# inputs\np_w: PARAMETER target='w'\np_g: PARAMETER target='norm.g'\nb_scale: BUFFER "
               "target='scale' persistent=False\nx: USER_INPUT\n\n# outputs\ny: USER_OUTPUT\n");
  describe(model, "add_4", kFoldedFrom, "['norm.g', 'val_3']");
  describe(model, "cos", kFoldedFrom, "['arange', 'inv_freq', 'mul_1']");
  return model;
}

TEST(Provenance, OfTheSignatureAndOfWhatWasFolded) {
  const onnx::ModelProto model = exported_model();
  const auto all = provenance_of(model.graph());
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(all.at("w").kind, Provenance::Kind::parameter);
  EXPECT_EQ(all.at("scale").kind, Provenance::Kind::buffer);
  EXPECT_EQ(all.at("add_4").parameters, std::vector<std::string>{"norm.g"});
  EXPECT_EQ(all.at("cos").kind, Provenance::Kind::computed);
  EXPECT_TRUE(all.at("cos").parameters.empty());
}

TEST(Provenance, LostIsWhatNoInitializerComesFrom) {
  onnx::ModelProto model = exported_model();
  EXPECT_TRUE(lost_values(model.graph()).parameters.empty());
  model.mutable_graph()->mutable_initializer()->DeleteSubrange(0, 1);  // add_4, of norm.g
  EXPECT_EQ(lost_values(model.graph()).parameters, std::set<std::string>{"norm.g"});
  EXPECT_TRUE(lost_values(model.graph()).buffers.empty());
}

TEST(Provenance, OfInputSpecs) {
  onnx::ModelProto model = model_from_text("g (float[3] x) => (float[3] y) { a = Mul(x, w) y = Add(a, b) }");
  add_floats(model, "w", {3}, {1, 2, 3});
  add_floats(model, "b", {3}, {1, 2, 3});
  describe(model, "w", kKind, "PARAMETER");
  describe(model, "b", kKind, "CONSTANT_TENSOR");
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_EQ(value_of(imported.graph, "w").role, Role::parameter);
  EXPECT_EQ(value_of(imported.graph, "b").role, Role::constant);
}

TEST(Provenance, OtherExportersSayNothing) {
  onnx::ModelProto model = model_from_text("g (float[3] x) => (float[3] y) { y = Mul(x, w) }");
  add_floats(model, "w", {3}, {1, 2, 3});
  describe(model, "w", kFoldedFrom, "['norm.g', 'val_3']");
  EXPECT_TRUE(provenance_of(model.graph()).empty());
  EXPECT_EQ(imported_or_fail(model).graph.parameters.size(), 1u);
}

TEST(Provenance, DamagedTextIsNoError) {
  for (const char* text :
       {"p_w: PARAMETER target='w", "PARAMETER target=", ": target='", "a: target='b' : ", "'"}) {
    onnx::ModelProto model = exported_model();
    add_metadata(model.mutable_graph(), 16, kSignature, text);
    describe(model, "w", kFoldedFrom, text);
    imported_or_fail(model);
  }
}

TEST(Provenance, DecidesWhatIsTrained) {
  const ImportedModel imported = imported_or_fail(exported_model());
  EXPECT_EQ(value_of(imported.graph, "w").role, Role::parameter);
  EXPECT_EQ(value_of(imported.graph, "add_4").role, Role::parameter) << "computed from a parameter";
  EXPECT_EQ(value_of(imported.graph, "cos").role, Role::constant) << "computed from constants";
  EXPECT_EQ(value_of(imported.graph, "scale").role, Role::constant) << "a buffer";
  EXPECT_TRUE(test::has_note(imported, "1 weight that the exporter computed would train apart"));
  EXPECT_TRUE(test::has_note(imported, "add_4 is another form of 'norm.g'"));
}

TEST(Provenance, DetachStopsTheGradient) {
  onnx::ModelProto model = model_from_text(
      "g (float[3] x) => (float[3] y) { a = Identity(x) b = Identity(x) c = Neg(x) d = Add(a, b) y = Add(c, d) }");
  const char* key = "pkg.torch.onnx.class_hierarchy";
  add_metadata(model.mutable_graph()->mutable_node(0), 9, key, "['Net', 'aten.detach.default']");
  add_metadata(model.mutable_graph()->mutable_node(1), 9, key, "['Net', 'aten.alias.default']");
  add_metadata(model.mutable_graph()->mutable_node(2), 9, key, "['Net', 'aten.detach.default']");
  const ImportedModel imported = imported_or_fail(model);
  std::vector<std::string> ops;
  for (const Node& node : imported.graph.nodes) ops.push_back(node.op->name);
  EXPECT_EQ(ops, (std::vector<std::string>{"StopGradient", "Identity", "Neg", "Add", "Add"}));
}

}  // namespace
}  // namespace gradloom
