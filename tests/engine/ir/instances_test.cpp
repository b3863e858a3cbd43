#include "engine/ir/instances.h"

#include <gtest/gtest.h>

#include "engine/ir/op.h"

namespace gradloom {
namespace {

// tanh(x * w) of a source node `name`; `before` other nodes stand first.
Graph product(int before, std::int64_t batch, const std::string& name, const std::string& parameter,
              DType dtype = DType::f32) {
  Graph graph;
  graph.sources.push_back({name, "MatMul", "", ""});
  GraphBuilder b(graph, {.origin = {{0}}});
  ValueId x = b.input("x", {dtype, {batch, 4}});
  for (int i = 0; i < before; ++i) x = b.op("Neg", {x});
  const ValueId w = b.parameter(parameter, Tensor(dtype, {4, 4}));
  graph.outputs = {b.op("Tanh", {b.op("MatMul", {x, w})})};
  return graph;
}

std::string fingerprint(const Graph& graph) {
  const auto last = static_cast<NodeId>(graph.nodes.size() - 1);
  const std::vector<NodeId> matched = {last, last - 1};
  return fingerprint_of(graph, "rule", last, matched);
}

TEST(Instances, FingerprintsTellWhatIsMatchedAndWhereItComesFrom) {
  const std::string first = fingerprint(product(0, 8, "/a", "w"));
  EXPECT_TRUE(is_fingerprint(first)) << first;
  EXPECT_EQ(first, fingerprint(product(3, 8, "/a", "w"))) << "other nodes before it";
  EXPECT_EQ(first, fingerprint(product(0, 2, "/a", "w"))) << "another batch";
  EXPECT_EQ(first, fingerprint(product(0, 8, "/a", "w", DType::f64))) << "another precision";
  EXPECT_NE(first, fingerprint(product(0, 8, "/b", "w"))) << "another ONNX node";
  EXPECT_NE(first, fingerprint(product(0, 8, "/a", "v"))) << "another parameter";
  const Graph graph = product(0, 8, "/a", "w");
  EXPECT_NE(first, fingerprint_of(graph, "other", 1, std::vector<NodeId>{1, 0}));
  EXPECT_NE(first, fingerprint_of(graph, "rule", 1, std::vector<NodeId>{1}));
  EXPECT_EQ(first, fingerprint_of(graph, "rule", 1, std::vector<NodeId>{0, 1})) << "in any order";
}

TEST(Instances, EqualOnesAreNumbered) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4}});
  graph.outputs = {b.op("Neg", {x}), b.op("Neg", {x})};
  InstanceNamer namer;
  const std::string first = namer.name(graph, "rule", 0, {});
  EXPECT_EQ(namer.name(graph, "rule", 1, {}), first + ".2");
  EXPECT_EQ(namer.name(graph, "rule", 0, {}), first) << "asked again";
  EXPECT_EQ(namer.known("rule", 1), first + ".2");
  EXPECT_EQ(namer.known("other", 1), "");
  EXPECT_TRUE(is_fingerprint(first + ".2"));
  for (const char* none : {"", "@", "@12", "@3f9a1c20b7d4f", "@3f9a1c20b7d4.", "@3f9a1c20b7d4.x", "/a/Mul"})
    EXPECT_FALSE(is_fingerprint(none)) << none;
}

TEST(Instances, AreChosenByNameGlobOrFingerprint) {
  const InstanceChoice all;
  EXPECT_TRUE(all.wants("/a/Mul", "@3f9a1c20b7d4"));
  const InstanceChoice but{{"/a/*", "@000000000000"}};
  EXPECT_FALSE(but.wants("/a/Mul", "@3f9a1c20b7d4"));
  EXPECT_FALSE(but.wants("/b/Mul", "@000000000000"));
  EXPECT_TRUE(but.wants("/b/Mul", "@3f9a1c20b7d4"));
  const InstanceChoice alone{{"/a/Add"}, {"/a/*"}};
  EXPECT_TRUE(alone.wants("/a/Mul", ""));
  EXPECT_FALSE(alone.wants("/a/Add", "")) << "switched off all the same";
  EXPECT_FALSE(alone.wants("/b/Mul", ""));
}

}  // namespace
}  // namespace gradloom
