#include "engine/onnx/repair/added_nodes.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

TEST(AddedNodes, NodesAttributesAndInitializersAreAsAFileHasThem) {
  onnx::GraphProto graph;
  onnx::NodeProto& node = add_node(graph, "Op", {"a", "b"}, "c");
  add_attribute(node, "axis", std::int64_t{-1});
  add_attribute(node, "perm", {1, 0});
  add_attribute(node, "value", Tensor::from_i64({7, 8}));
  ASSERT_EQ(graph.node_size(), 1);
  EXPECT_EQ(graph.node(0).op_type(), "Op");
  EXPECT_EQ(graph.node(0).name(), "c");
  ASSERT_EQ(graph.node(0).input_size(), 2);
  EXPECT_EQ(graph.node(0).input(1), "b");
  ASSERT_EQ(graph.node(0).output_size(), 1);
  EXPECT_EQ(graph.node(0).output(0), "c");
  ASSERT_EQ(node.attribute_size(), 3);
  EXPECT_EQ(node.attribute(0).type(), onnx::AttributeProto::INT);
  EXPECT_EQ(node.attribute(0).i(), -1);
  EXPECT_EQ(node.attribute(1).type(), onnx::AttributeProto::INTS);
  ASSERT_EQ(node.attribute(1).ints_size(), 2);
  EXPECT_EQ(node.attribute(1).ints(0), 1);
  EXPECT_EQ(node.attribute(2).type(), onnx::AttributeProto::TENSOR);
  EXPECT_EQ(node.attribute(2).t().dims(0), 2);

  add_initializer(graph, "w", Tensor::scalar(DType::f32, 2));
  ASSERT_EQ(graph.initializer_size(), 1);
  EXPECT_EQ(graph.initializer(0).name(), "w");
  EXPECT_EQ(graph.initializer(0).data_type(), onnx::TensorProto::FLOAT);
}

}  // namespace
}  // namespace gradloom
