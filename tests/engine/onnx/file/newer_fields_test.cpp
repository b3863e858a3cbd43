#include "engine/onnx/file/newer_fields.h"

#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

namespace gradloom {
namespace {

google::protobuf::UnknownFieldSet* fields_of(google::protobuf::Message& message) {
  return message.GetReflection()->MutableUnknownFields(&message);
}

TEST(NewerFields, OverloadsAndMetadata) {
  onnx::NodeProto node;
  EXPECT_EQ(overload_of(node), "");
  fields_of(node)->AddLengthDelimited(8, "second");
  for (const char* key : {"a", "b"}) {
    onnx::StringStringEntryProto entry;
    entry.set_key(key);
    entry.set_value(std::string("value of ") + key);
    fields_of(node)->AddLengthDelimited(9, entry.SerializeAsString());
  }
  fields_of(node)->AddLengthDelimited(9, "\xff\xff");
  EXPECT_EQ(overload_of(node), "second");
  EXPECT_EQ(metadata_of(node, "b"), "value of b");
  EXPECT_EQ(metadata_of(node, "c"), "");
}

TEST(NewerFields, OtherWireTypesAreNotThem) {
  onnx::NodeProto node;
  fields_of(node)->AddVarint(8, 7);
  EXPECT_EQ(overload_of(node), "");
}

TEST(NewerFields, DefaultsOfFunctions) {
  onnx::FunctionProto function;
  std::vector<onnx::AttributeProto> defaults;
  EXPECT_TRUE(attribute_defaults(function, &defaults));
  onnx::AttributeProto alpha;
  alpha.set_name("alpha");
  alpha.set_f(0.5f);
  fields_of(function)->AddLengthDelimited(11, alpha.SerializeAsString());
  ASSERT_TRUE(attribute_defaults(function, &defaults));
  ASSERT_EQ(defaults.size(), 1u);
  EXPECT_EQ(defaults[0].f(), 0.5f);
  fields_of(function)->AddLengthDelimited(11, "\xff\xff");
  EXPECT_FALSE(attribute_defaults(function, &defaults));
}

}  // namespace
}  // namespace gradloom
