#include "engine/onnx/file/model_file.h"

#include "engine/base/hash.h"
#include "engine/onnx/file/contents_in_file.h"
#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::model_from_text;
using test::write_bytes;

// Of more than a block, with contents at its edge.
onnx::ModelProto large_model() {
  onnx::ModelProto model =
      model_from_text("g (float[400000] x) => (float[400000] y) { h = Mul(x, w) y = Add(h, b) }");
  for (const char* name : {"w", "b"}) {
    onnx::TensorProto* tensor = model.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    tensor->add_dims(400'000);
    tensor->set_raw_data(std::string(1'600'000, *name));
  }
  return model;
}

TEST(ModelFile, LeavesLargeContentsInTheFile) {
  const TemporaryFolder folder;
  onnx::ModelProto model = large_model();
  const std::string bytes = model.SerializeAsString();
  write_bytes(folder / "m.onnx", bytes);
  Result<ModelFile> read = read_model_file(folder / "m.onnx", {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->content_hash, hash_hex(bytes));
  for (auto& tensor : *read->model.mutable_graph()->mutable_initializer()) {
    const auto range = contents_in_file(tensor);
    ASSERT_TRUE(range.has_value());
    EXPECT_EQ(tensor.raw_data(), "");
    EXPECT_EQ(bytes.substr(static_cast<std::size_t>(range->offset), static_cast<std::size_t>(range->bytes)),
              std::string(1'600'000, tensor.name()[0]));
    tensor.set_raw_data(std::string(1'600'000, tensor.name()[0]));
    forget_contents_in_file(tensor);
  }
  EXPECT_EQ(read->model.SerializeAsString(), bytes) << "nothing else is different";
}

TEST(ModelFile, NamesItsFileInErrors) {
  const TemporaryFolder folder;
  const std::string bytes = large_model().SerializeAsString();
  write_bytes(folder / "cut.onnx", bytes.substr(0, bytes.size() - 1'000'000));
  const Result<ModelFile> cut = read_model_file(folder / "cut.onnx", {});
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code, Errc::bad_input);
  EXPECT_NE(cut.error().message.find("cut.onnx: truncated"), std::string::npos) << cut.error().message;
  Limits limits;
  limits.file_bytes = 1000;
  write_bytes(folder / "m.onnx", bytes);
  const Result<ModelFile> large = read_model_file(folder / "m.onnx", limits);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, Errc::limit);
  EXPECT_NE(large.error().message.find("longer than the limit of 1000 bytes"), std::string::npos)
      << large.error().message;
  EXPECT_EQ(read_model_file(folder.path(), {}).error().code, Errc::io);
  EXPECT_EQ(read_model_file(folder / "none.onnx", {}).error().code, Errc::io);
}

TEST(ModelFile, TensorsOfTheirOwnComeWhole) {
  const TemporaryFolder folder;
  const onnx::TensorProto tensor = large_model().graph().initializer(0);
  write_bytes(folder / "t.pb", tensor.SerializeAsString());
  const Result<onnx::TensorProto> read = read_tensor_proto(folder / "t.pb", {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->raw_data(), tensor.raw_data());
}

}  // namespace
}  // namespace gradloom
