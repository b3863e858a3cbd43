// The four models of tests/models, as their exporter wrote them.
#include <set>

#include "tests/engine/onnx/support.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

struct TestModel {
  const char* name;
  std::size_t parameters, states, updates;
  int opset;
  const char* logits;
};

class ExportedModels : public ::testing::TestWithParam<TestModel> {
 protected:
  static Result<ImportedModel> load(DType float_type = DType::f32, bool bound = true) {
    ImportOptions options;
    if (bound) options.dims["batch"] = 4;
    options.float_type = float_type;
    return import_onnx(std::string(GRADLOOM_SOURCE_DIR) + "/tests/models/" + GetParam().name + "/model.onnx",
                       options);
  }
};

TEST_P(ExportedModels, EveryValueHasAStaticType) {
  for (const DType float_type : {DType::f32, DType::f64}) {
    const Result<ImportedModel> imported = load(float_type);
    ASSERT_TRUE(imported.ok()) << imported.error().message;
    const Graph& graph = imported->graph;
    const Status verified = verify(graph);
    EXPECT_TRUE(verified.ok()) << verified.error().message;
    for (const Value& value : graph.values) {
      EXPECT_TRUE(value.has_type && is_static(value.type.shape))
          << value.name << " " << to_string(value.type);
      EXPECT_TRUE(float_type == DType::f32 || value.type.dtype != DType::f32) << value.name;
    }
    EXPECT_TRUE(imported->unknown.empty());
    EXPECT_TRUE(imported->unbound_dims.empty());
    EXPECT_EQ(to_string(graph.type(graph.outputs[0]).shape), "[]") << "the loss";
    EXPECT_EQ(to_string(graph.type(graph.outputs[1]).shape), GetParam().logits);
  }
}

TEST_P(ExportedModels, ParametersAndStates) {
  const Result<ImportedModel> imported = load();
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(imported->graph.opset, GetParam().opset);
  EXPECT_EQ(imported->graph.parameters.size(), GetParam().parameters);
  EXPECT_EQ(imported->graph.updates.size(), GetParam().updates);
  std::size_t states = 0;
  for (const Value& value : imported->graph.values) states += value.role == Role::state ? 1 : 0;
  EXPECT_EQ(states, GetParam().states);
}

TEST_P(ExportedModels, ShapeArithmeticIsKnown) {
  const Result<ImportedModel> imported = load();
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  for (const Node& node : imported->graph.nodes) {
    bool reads_contents = false;
    for (const ValueId input : node.inputs) {
      reads_contents =
          reads_contents || (imported->graph.value(input).role == Role::input && !node.op->has(kShapeOnly));
    }
    if (reads_contents) continue;
    for (const ValueId output : node.outputs) {
      const Value& value = imported->graph.value(output);
      if (value.type.dtype != DType::i64) continue;
      EXPECT_TRUE(value.data.defined())
          << value.name << ": integers that are not data are shapes and indices";
    }
  }
}

TEST_P(ExportedModels, OpenWithoutBindingsToo) {
  const Result<ImportedModel> imported = load(DType::f32, false);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(imported->unbound_dims, std::vector<std::string>{"batch"});
}

TEST_P(ExportedModels, ModulesAreTheScopes) {
  const Result<ImportedModel> imported = load();
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  std::set<std::string> scopes;
  for (const SourceNode& source : imported->graph.sources) scopes.insert(source.scope);
  const std::string expected = std::string(GetParam().name) == "gpt-char"    ? "blocks.3/attn/qkv"
                               : std::string(GetParam().name) == "bert-tiny" ? "layers.1/query"
                               : std::string(GetParam().name) == "mlp"       ? "layers.2"
                                                                             : "residual2_norm";
  EXPECT_TRUE(scopes.count(expected)) << expected;
}

INSTANTIATE_TEST_SUITE_P(All, ExportedModels,
                         ::testing::Values(TestModel{"mlp", 6, 0, 0, 17, "[4, 10]"},
                                           TestModel{"cnn-digits", 13, 6, 6, 17, "[4, 10]"},
                                           TestModel{"gpt-char", 52, 0, 0, 17, "[4, 64, 256]"},
                                           TestModel{"bert-tiny", 40, 0, 0, 13, "[4, 4]"}),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace gradloom
