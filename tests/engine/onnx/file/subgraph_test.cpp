#include "engine/onnx/file/subgraph.h"

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using Strings = std::vector<std::string>;

onnx::ModelProto nested() {
  return test::model_from_text(
      "g (float[2] x, float[2] z, bool c) => (float[2] y) {"
      " y = If (c) <then_branch = t () => (float[2] r) { h = Neg(x) r = If (c) <"
      "   then_branch = tt () => (float[2] s) { s = Add(h, z) }, else_branch = te () => (float[2] x) {}> },"
      " else_branch = e () => (float[2] r) { r = Neg(x) }> }");
}

TEST(Subgraph, CapturesAreWhatIsNotDefinedInside) {
  const onnx::ModelProto model = nested();
  EXPECT_EQ(captured_names(model.graph().node(0)), (Strings{"x", "c", "z"}));
  const onnx::ModelProto plain = test::model_from_text("g (float[2] x) => (float[2] y) { y = Neg(x) }");
  EXPECT_TRUE(captured_names(plain.graph().node(0)).empty());
}

TEST(Subgraph, GraphsAreVisitedFromTheOutside) {
  const onnx::ModelProto model = nested();
  Strings names;
  for_each_graph(model.graph(), [&](const onnx::GraphProto& graph) { names.push_back(graph.name()); });
  EXPECT_EQ(names, (Strings{"g", "t", "tt", "te", "e"}));
  EXPECT_EQ(subgraphs_of(model.graph().node(0)).size(), 2u);
}

}  // namespace
}  // namespace gradloom
