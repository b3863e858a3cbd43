#include "engine/onnx/file/contents_in_file.h"

#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

namespace gradloom {
namespace {

TEST(ContentsInFile, AreToldOnTheWireAndByCopies) {
  onnx::TensorProto tensor;
  tensor.set_name("w");
  EXPECT_FALSE(contents_in_file(tensor).has_value());
  const std::string wire = wire_of({(std::int64_t{1} << 40) + 3, 4096});
  EXPECT_EQ(wire.size(), kFileRangeWireBytes);
  onnx::TensorProto read;
  ASSERT_TRUE(read.ParseFromString(tensor.SerializeAsString() + wire));
  onnx::TensorProto copy = read;
  ASSERT_TRUE(contents_in_file(copy).has_value());
  EXPECT_EQ(contents_in_file(copy)->offset, (std::int64_t{1} << 40) + 3);
  EXPECT_EQ(contents_in_file(copy)->bytes, 4096);
  forget_contents_in_file(copy);
  EXPECT_EQ(copy.SerializeAsString(), tensor.SerializeAsString());
}

}  // namespace
}  // namespace gradloom
