#include "engine/onnx/file/wire_scan.h"

#include "engine/onnx/file/contents_in_file.h"
#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::model_from_text;

onnx::ModelProto small_model() {
  onnx::ModelProto model =
      model_from_text("g (float[2, 4] x) => (float[2, 4] y) { h = Relu(x) y = Add(h, w) }");
  test::add_floats(model, "w", {4}, {1, 2, 3, 4});
  return model;
}

Error scan_error(const std::string& bytes, const Limits& limits = {}) {
  const Status status = scan_wire(bytes, WireRoot::model, limits);
  EXPECT_FALSE(status.ok());
  return status.ok() ? Error{} : status.error();
}

TEST(WireScan, AcceptsAModel) {
  EXPECT_TRUE(scan_wire(small_model().SerializeAsString(), WireRoot::model, {}).ok());
}

TEST(WireScan, AcceptsEveryFieldOfTheSchema) {
  onnx::ModelProto model = small_model();
  model.set_doc_string("d");
  model.set_model_version(-1);
  auto* metadata = model.add_metadata_props();
  metadata->set_key("k");
  metadata->set_value("v");
  auto* attribute = model.mutable_graph()->mutable_node(0)->add_attribute();
  attribute->set_name("all");
  attribute->add_floats(1);
  attribute->add_ints(-5);
  attribute->add_strings("s");
  attribute->mutable_g()->set_name("inner");
  attribute->mutable_tp()->mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(
      1);
  attribute->mutable_sparse_tensor()->mutable_values()->add_double_data(2);
  model.add_functions()->add_attribute("a");
  model.add_training_info()->mutable_algorithm()->set_name("t");
  const Status status = scan_wire(model.SerializeAsString(), WireRoot::model, {});
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
}

TEST(WireScan, RefusesEmptyAndForeignFiles) {
  EXPECT_EQ(scan_error("").code, Errc::bad_input);
  EXPECT_NE(scan_error(std::string("\x89PNG\r\n\x1a\n", 8)).message.find("not an ONNX"), std::string::npos);
  EXPECT_NE(scan_error("{\"a\": 1}").message.find("not an ONNX"), std::string::npos);
  EXPECT_NE(scan_error(std::string("\x08\x08", 2)).message.find("no graph"), std::string::npos);
}

TEST(WireScan, NamesWhereATruncatedFileEnds) {
  const std::string bytes = small_model().SerializeAsString();
  const Error error = scan_error(bytes.substr(0, bytes.size() - 1));
  EXPECT_EQ(error.code, Errc::bad_input);
  EXPECT_NE(error.message.find("truncated"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("byte"), std::string::npos) << error.message;
}

TEST(WireScan, RefusesASecondGraph) {
  const std::string bytes = small_model().SerializeAsString();
  EXPECT_NE(scan_error(bytes + bytes).message.find("second time"), std::string::npos);
}

TEST(WireScan, RefusesUnknownFields) {
  EXPECT_NE(
      scan_error(small_model().SerializeAsString() + std::string("\x9a\x01\x00", 3)).message.find("field 19"),
      std::string::npos);
}

TEST(WireScan, RefusesGroupsAndWrongWireTypes) {
  EXPECT_NE(scan_error(std::string("\x3b\x3c", 2)).message.find("wire type 3"), std::string::npos);
  EXPECT_NE(scan_error(std::string("\x38\x01", 2)).message.find("wire type 0"), std::string::npos);
}

TEST(WireScan, LimitsNodes) {
  onnx::ModelProto model;
  for (int i = 0; i < 10; ++i) model.mutable_graph()->add_node();
  Limits limits;
  limits.nodes = 10;
  EXPECT_TRUE(scan_wire(model.SerializeAsString(), WireRoot::model, limits).ok());
  model.mutable_graph()->add_node();
  EXPECT_EQ(scan_error(model.SerializeAsString(), limits).code, Errc::limit);
}

TEST(WireScan, LimitsObjectsThatAreNotNodes) {
  onnx::ModelProto model;
  onnx::NodeProto* node = model.mutable_graph()->add_node();
  for (int i = 0; i < 200; ++i) node->add_input("");
  Limits limits;
  limits.nodes = 10;  // 16 objects a node
  EXPECT_EQ(scan_error(model.SerializeAsString(), limits).code, Errc::limit);
}

TEST(WireScan, LimitsMemoryThatAFileWouldGrowTo) {
  onnx::ModelProto model;
  onnx::NodeProto* node = model.mutable_graph()->add_node();
  for (int i = 0; i < 600000; ++i) node->add_attribute();
  EXPECT_TRUE(scan_wire(model.SerializeAsString(), WireRoot::model, {}).ok());
  for (int i = 0; i < 400000; ++i) node->add_attribute();
  EXPECT_EQ(scan_error(model.SerializeAsString()).code, Errc::limit);
  // Contents that stay as large as they are do not pay for it.
  model.set_doc_string(std::string(64 << 20, 'd'));
  EXPECT_EQ(scan_error(model.SerializeAsString()).code, Errc::limit);
}

TEST(WireScan, LimitsMemoryThatListsOfNumbersWouldGrowTo) {
  onnx::ModelProto model;
  onnx::TensorProto* tensor = model.mutable_graph()->add_initializer();
  for (int i = 0; i < 9000000; ++i) tensor->add_int64_data(1);
  EXPECT_TRUE(scan_wire(model.SerializeAsString(), WireRoot::model, {}).ok());
  for (int i = 0; i < 36000000; ++i) tensor->add_int64_data(1);
  EXPECT_EQ(scan_error(model.SerializeAsString()).code, Errc::limit);
}

TEST(WireScan, RefusesTwoAlternativesAtOnce) {
  // graph { input { type { tensor_type { shape { dim { dim_value: 1 dim_param: "n" } } } } } }
  const std::string dim("\x08\x01\x12\x01n", 5);
  const auto field = [](char number, const std::string& contents) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(contents.size())} + contents;
  };
  const std::string type = field(1, field(2, field(1, dim)));
  EXPECT_NE(scan_error(field(7, field(11, field(2, type)))).message.find("in two ways"), std::string::npos);
  EXPECT_NE(
      scan_error(field(7, field(11, field(2, field(1, "") + field(4, ""))))).message.find("in two ways"),
      std::string::npos);
}

TEST(WireScan, LimitsNesting) {
  const auto nested = [](int levels) {
    onnx::ModelProto model;
    onnx::GraphProto* graph = model.mutable_graph();
    for (int i = 1; i < levels; ++i) graph = graph->add_node()->add_attribute()->mutable_g();
    return model.SerializeAsString();
  };
  Limits limits;
  EXPECT_TRUE(scan_wire(nested(32), WireRoot::model, limits).ok());
  EXPECT_EQ(scan_error(nested(33), limits).code, Errc::limit);
}

TEST(WireScan, LimitsNestingOfTypes) {
  onnx::ModelProto model;
  onnx::TypeProto* type = model.mutable_graph()->add_input()->mutable_type();
  for (int i = 0; i < 500; ++i) type = type->mutable_sequence_type()->mutable_elem_type();
  EXPECT_EQ(scan_error(model.SerializeAsString()).code, Errc::limit);
}

TEST(WireScan, LimitsNames) {
  onnx::ModelProto model;
  model.mutable_graph()->add_node()->set_name(std::string(4096, 'n'));
  EXPECT_TRUE(scan_wire(model.SerializeAsString(), WireRoot::model, {}).ok());
  model.mutable_graph()->add_node()->set_name(std::string(4097, 'n'));
  EXPECT_EQ(scan_error(model.SerializeAsString()).code, Errc::limit);
}

TEST(WireScan, RefusesPartsOfPackedNumbers) {
  // graph { initializer { float_data: 3 bytes } } and int64_data that ends inside a varint.
  EXPECT_NE(scan_error(std::string("\x3a\x07\x2a\x05\x22\x03"
                                   "abc",
                                   9))
                .message.find("part of a number"),
            std::string::npos);
  EXPECT_NE(scan_error(std::string("\x3a\x05\x2a\x03\x3a\x01\x80", 7)).message.find("inside a number"),
            std::string::npos);
}

// The model that the scan of `bytes`, in blocks of `block_bytes`, leaves for protobuf.
onnx::ModelProto scan_and_parse(const std::string& bytes, std::size_t block_bytes) {
  std::size_t done = 0;
  const WireBlocks blocks{static_cast<std::int64_t>(bytes.size()), [&]() -> Result<std::string_view> {
                            const auto block = std::string_view(bytes).substr(done, block_bytes);
                            EXPECT_FALSE(block.empty());
                            done += block.size();
                            return block;
                          }};
  KeptBytes kept;
  const Status status = scan_wire(blocks, WireRoot::model, {}, &kept, true);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  EXPECT_EQ(done, bytes.size());
  KeptBytesStream stream(std::move(kept));
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromZeroCopyStream(&stream));
  return model;
}

onnx::TensorProto raw_tensor(const char* name, std::size_t bytes) {
  onnx::TensorProto tensor;
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::UINT8);
  tensor.add_dims(static_cast<std::int64_t>(bytes));
  tensor.set_raw_data(std::string(bytes, *name));
  tensor.set_doc_string("after the contents");
  return tensor;
}

// Contents of initializers, in the graph and in a graph inside it, lie in `bytes` where the model says.
void expect_contents(onnx::GraphProto& graph, const std::string& bytes, int* found) {
  for (auto& tensor : *graph.mutable_initializer()) {
    if (const auto range = contents_in_file(tensor)) {
      tensor.set_raw_data(
          bytes.substr(static_cast<std::size_t>(range->offset), static_cast<std::size_t>(range->bytes)));
      forget_contents_in_file(tensor);
      ++*found;
    }
  }
  for (auto& node : *graph.mutable_node())
    for (auto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) expect_contents(*attribute.mutable_g(), bytes, found);
}

TEST(WireScan, LeavesContentsOfInitializersInTheFile) {
  onnx::ModelProto model = small_model();
  *model.mutable_graph()->add_initializer() = raw_tensor("a", 5000);
  *model.mutable_graph()->add_initializer() = raw_tensor("small", 4095);
  auto* attribute = model.mutable_graph()->mutable_node(0)->add_attribute();
  *attribute->mutable_g()->add_initializer() = raw_tensor("b", 300'000);
  *attribute->mutable_t() = raw_tensor("constant", 6000);
  *model.mutable_graph()->add_sparse_initializer()->mutable_values() = raw_tensor("sparse", 6000);
  auto* called = model.add_functions()->add_node()->add_attribute();
  *called->mutable_g()->add_initializer() = raw_tensor("of a function", 6000);
  *model.add_training_info()->mutable_algorithm()->add_initializer() = raw_tensor("of training", 6000);
  *model.mutable_graph()->add_initializer() = raw_tensor("c", 4096);
  const std::string bytes = model.SerializeAsString();
  for (const std::size_t block_bytes : {1ul, 7ul, 4096ul, bytes.size()}) {
    onnx::ModelProto left = scan_and_parse(bytes, block_bytes);
    int found = 0;
    expect_contents(*left.mutable_graph(), bytes, &found);
    EXPECT_EQ(found, 3) << "a, b and c";
    EXPECT_EQ(left.SerializeAsString(), bytes) << block_bytes;
  }
}

// Lengths may have more bytes than they need: whatever they have, they keep.
TEST(WireScan, MendsLengthsOfAnyWidth) {
  const auto wide = [](std::size_t length) {
    std::string text;
    for (int i = 0; i < 5; ++i, length >>= 7) text += static_cast<char>((length & 0x7f) | (i < 4 ? 0x80 : 0));
    return text;
  };
  const std::string tensor =
      "\x10\x02\x08" + std::string("\x88\x27") + "\x4a" + wide(5000) + std::string(5000, 'w');
  const std::string graph = "\x2a" + wide(tensor.size()) + tensor;
  const std::string bytes = "\x3a" + wide(graph.size()) + graph;
  for (const std::size_t block_bytes : {1ul, 3ul, 100'000ul}) {
    const onnx::ModelProto model = scan_and_parse(bytes, block_bytes);
    ASSERT_EQ(model.graph().initializer_size(), 1);
    const auto range = contents_in_file(model.graph().initializer(0));
    ASSERT_TRUE(range.has_value());
    EXPECT_EQ(range->bytes, 5000);
    EXPECT_EQ(range->offset, static_cast<std::int64_t>(bytes.size()) - 5000);
  }
}

TEST(WireScan, RefusesFilesThatSayWhereContentsAre) {
  onnx::ModelProto model = small_model();
  ASSERT_TRUE(model.mutable_graph()->mutable_initializer(0)->MergeFromString(wire_of({0, 4096})));
  EXPECT_NE(scan_error(model.SerializeAsString()).message.find("field 30"), std::string::npos);
}

}  // namespace
}  // namespace gradloom
