#include "engine/onnx/read/attributes.h"

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using onnx::AttributeProto;

onnx::NodeProto node_of_type(const std::string& op_type) {
  onnx::NodeProto node;
  node.set_op_type(op_type);
  return node;
}

AttributeProto* add(onnx::NodeProto& node, const std::string& name, AttributeProto::AttributeType type) {
  AttributeProto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(type);
  return attribute;
}

Result<ReadAttributes> read(const onnx::NodeProto& node, int opset = 17) {
  static const Limits limits;
  TensorReader tensors(limits, "");
  return read_attributes(node, opset, tensors);
}

void expect_refused(const onnx::NodeProto& node, const std::string& text) {
  const Result<ReadAttributes> attributes = read(node);
  ASSERT_FALSE(attributes.ok());
  EXPECT_EQ(attributes.error().code, Errc::bad_input);
  EXPECT_NE(attributes.error().message.find(text), std::string::npos) << attributes.error().message;
}

TEST(Attributes, EveryKind) {
  onnx::NodeProto conv = node_of_type("Conv");
  add(conv, "group", AttributeProto::INT)->set_i(2);
  add(conv, "auto_pad", AttributeProto::STRING)->set_s("VALID");
  AttributeProto* pads = add(conv, "pads", AttributeProto::INTS);
  for (int i = 0; i < 4; ++i) pads->add_ints(i);
  const Result<ReadAttributes> attributes = read(conv);
  ASSERT_TRUE(attributes.ok()) << attributes.error().message;
  EXPECT_TRUE(attributes->unsupported.empty());
  EXPECT_EQ(attributes->attrs.integer("group"), 2);
  EXPECT_EQ(attributes->attrs.text("auto_pad"), "VALID");
  EXPECT_EQ(attributes->attrs.integers("pads"), (std::vector<std::int64_t>{0, 1, 2, 3}));

  onnx::NodeProto gemm = node_of_type("Gemm");
  add(gemm, "alpha", AttributeProto::FLOAT)->set_f(0.1f);
  EXPECT_EQ(read(gemm)->attrs.real("alpha"), static_cast<double>(0.1f));

  onnx::NodeProto shape = node_of_type("ConstantOfShape");
  onnx::TensorProto* value = add(shape, "value", AttributeProto::TENSOR)->mutable_t();
  value->set_data_type(onnx::TensorProto::FLOAT);
  value->add_dims(1);
  value->add_float_data(3);
  EXPECT_EQ(read(shape)->attrs.tensor("value")->at(0), 3);
}

TEST(Attributes, WrongTypesAreRefused) {
  onnx::NodeProto node = node_of_type("Softmax");
  add(node, "axis", AttributeProto::FLOAT)->set_f(1);
  expect_refused(node, "'axis' is FLOAT, it must be INT");
  node.mutable_attribute(0)->set_type(AttributeProto::INT);
  expect_refused(node, "holds another type");
  node.mutable_attribute(0)->clear_f();
  node.mutable_attribute(0)->clear_type();
  expect_refused(node, "UNDEFINED");
  node.mutable_attribute(0)->set_type(AttributeProto::GRAPH);
  expect_refused(node, "it must be INT");
}

TEST(Attributes, TwiceNamelessMissingAndReferringAreRefused) {
  onnx::NodeProto node = node_of_type("Softmax");
  add(node, "axis", AttributeProto::INT)->set_i(1);
  add(node, "axis", AttributeProto::INT)->set_i(2);
  expect_refused(node, "twice");
  node.mutable_attribute(1)->set_name("");
  expect_refused(node, "no name");
  node.mutable_attribute()->RemoveLast();
  node.mutable_attribute(0)->set_ref_attr_name("outer");
  expect_refused(node, "outside a function");
  expect_refused(node_of_type("Concat"), "'axis' is missing");
  expect_refused(node_of_type("Cast"), "'to' is missing");
}

TEST(Attributes, UnknownNamesAreUnsupportedNotIgnored) {
  onnx::NodeProto node = node_of_type("Relu");
  add(node, "leak", AttributeProto::FLOAT)->set_f(1);
  ASSERT_TRUE(read(node).ok());
  EXPECT_EQ(read(node)->unsupported, "attribute 'leak' is not known");
}

TEST(Attributes, LaterOpsets) {
  onnx::NodeProto split = node_of_type("Split");
  add(split, "num_outputs", AttributeProto::INT)->set_i(2);
  EXPECT_FALSE(read(split, 17)->unsupported.empty());
  EXPECT_TRUE(read(split, 18)->unsupported.empty());
  onnx::NodeProto reduce = node_of_type("ReduceMean");
  add(reduce, "axes", AttributeProto::INTS)->add_ints(1);
  EXPECT_TRUE(read(reduce, 17)->unsupported.empty());
  EXPECT_FALSE(read(reduce, 18)->unsupported.empty()) << "an input since opset 18";
  onnx::NodeProto gelu = node_of_type("Gelu");
  add(gelu, "approximate", AttributeProto::STRING)->set_s("tanh");
  EXPECT_TRUE(read(gelu, 20)->unsupported.empty());
}

TEST(Attributes, PromotionToF64) {
  Attrs cast{{"to", std::int64_t{1}}};
  promote_attributes_to_f64("Cast", cast, false);
  EXPECT_EQ(cast.integer("to"), 11);
  Attrs to_int{{"to", std::int64_t{7}}};
  promote_attributes_to_f64("Cast", to_int, false);
  EXPECT_EQ(to_int.integer("to"), 7);
  for (const bool narrow : {false, true}) {
    Attrs to_half{{"to", std::int64_t{10}}};
    promote_attributes_to_f64("Cast", to_half, narrow);
    EXPECT_EQ(to_half.integer("to"), narrow ? 11 : 10);
  }
  Attrs filled;
  promote_attributes_to_f64("ConstantOfShape", filled, false);
  ASSERT_NE(filled.tensor("value"), nullptr);
  EXPECT_EQ(filled.tensor("value")->dtype(), DType::f64);
  Attrs ones{{"value", Tensor::from_f64(DType::f32, {1}, {1})}};
  promote_attributes_to_f64("ConstantOfShape", ones, false);
  EXPECT_EQ(ones.tensor("value")->dtype(), DType::f64);
  EXPECT_EQ(ones.tensor("value")->at(0), 1);
}

}  // namespace
}  // namespace gradloom
