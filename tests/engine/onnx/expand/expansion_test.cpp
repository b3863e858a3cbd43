// The table of bodies, and how an expansion reports and takes back.
#include "engine/onnx/expand/expansion.h"

#include <algorithm>

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

TEST(Expansion, NoneHidesARow) {
  for (const Expansion* e : all_expansions()) {
    for (int opset = std::max(e->since, 7); opset <= std::min(e->until, 24); ++opset)
      EXPECT_EQ(find_op(e->name, e->domain, opset), nullptr) << e->name << " has a row at opset " << opset;
  }
}

TEST(Expansion, PartsCarryTheNodesScope) {
  onnx::ModelProto model =
      microsoft_model("g (float[2, 4] x) => (float[2, 4] y) { y = com.microsoft.QuickGelu(x) }");
  model.mutable_graph()->mutable_node(0)->set_name("/layers.3/mlp/act/QuickGelu");
  const auto imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  const Graph& graph = imported->graph;
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].name, "/layers.3/mlp/act/QuickGelu/Swish");
  const SourceNode& source = graph.sources[graph.nodes[0].origin.sources[0]];
  EXPECT_EQ(source.op_type, "QuickGelu");
  EXPECT_EQ(source.domain, "com.microsoft");
  EXPECT_EQ(source.scope, "layers.3/mlp/act");
  EXPECT_EQ(graph.value(graph.outputs[0]).name, "y");
}

TEST(Expansion, UnknownAttributesAreNamed) {
  expect_refused(import_model(microsoft_model("g (float[2, 4] x) => (float[2, 4] y)"
                                              "{ y = com.microsoft.QuickGelu<beta = 1.0>(x) }")),
                 Errc::bad_input, {"com.microsoft.QuickGelu", "'beta' is not known"});
}

TEST(Expansion, AFailedBodyIsTakenBackWhenViewing) {
  ImportOptions options;
  options.allow_unknown = true;
  const auto imported =
      import_model(model_from_text("g (float[2, 4, 3, 5] q, float[2, 4, 6, 7] k) => (float[2, 4, 3, 7] y)"
                                   "{ y = Attention(q, k, k) }",
                                   23),
                   options);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(live_node_count(imported->graph), 1u);
  ASSERT_EQ(imported->untyped.size(), 1u);
  EXPECT_EQ(imported->untyped[0].op_type, "Attention");
  EXPECT_TRUE(verify(imported->graph).ok());
}

}  // namespace
}  // namespace gradloom::expand_test
