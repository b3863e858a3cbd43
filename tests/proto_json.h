// Files of protobuf messages, read by libprotobuf with a .proto file of the tests: the writers know nothing of it.
#pragma once

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/paths.h"

namespace gradloom {

class ProtoReader {
 public:
  // `file`: below tests/, one of those that tests/CMakeLists.txt compiles.
  explicit ProtoReader(const std::string& file) {
    std::ifstream in(GRADLOOM_TEST_PROTOS, std::ios::binary);
    google::protobuf::FileDescriptorSet set;
    EXPECT_TRUE(set.ParseFromIstream(&in));
    for (const google::protobuf::FileDescriptorProto& described : set.file())
      if (described.name() == file) file_ = pool_.BuildFile(described);
    EXPECT_NE(file_, nullptr);
  }
  // As JSON (64-bit integers are strings); fails where the message has what the .proto file does not know.
  nlohmann::json read(const std::string& message, const std::string& bytes) {
    const google::protobuf::Descriptor* type = file_->FindMessageTypeByName(message);
    const std::unique_ptr<google::protobuf::Message> made(factory_.GetPrototype(type)->New());
    EXPECT_TRUE(made->ParseFromString(bytes));
    const std::size_t size = made->ByteSizeLong();
    made->DiscardUnknownFields();
    EXPECT_EQ(made->ByteSizeLong(), size) << "unknown fields";
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    std::string text;
    EXPECT_TRUE(google::protobuf::util::MessageToJsonString(*made, &text, options).ok());
    return nlohmann::json::parse(text);
  }

 private:
  google::protobuf::DescriptorPool pool_;
  google::protobuf::DynamicMessageFactory factory_;
  const google::protobuf::FileDescriptor* file_ = nullptr;
};

}  // namespace gradloom
