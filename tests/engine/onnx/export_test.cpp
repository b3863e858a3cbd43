#include "engine/onnx/export.h"
#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::add_floats;
using test::model_from_text;
using test::value_of;

onnx::ModelProto small_model() {
  onnx::ModelProto model = model_from_text("g (float[2] x) => (float[2] y) { h = Mul(x, w) y = Add(h, b) }");
  add_floats(model, "w", {2}, {1, 2});
  add_floats(model, "b", {2}, {3, 4});
  model.set_doc_string("kept");
  return model;
}

TEST(Export, ReplacesOnlyTheGivenParameters) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "in.onnx", small_model().SerializeAsString());
  const Status status = export_onnx(folder / "in.onnx", {{"w", Tensor::from_f64(DType::f64, {2}, {0.5, -1})}},
                                    folder / "out.onnx");
  ASSERT_TRUE(status.ok()) << status.error().message;
  const Result<ImportedModel> back = import_onnx(folder / "out.onnx", {});
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(to_string(value_of(back->graph, "w").type), "f32[2]") << "the model's element type is kept";
  EXPECT_EQ(value_of(back->graph, "w").data.to_f64(), (std::vector<double>{0.5, -1}));
  EXPECT_EQ(value_of(back->graph, "b").data.to_f64(), (std::vector<double>{3, 4}));
  onnx::ModelProto proto;
  ASSERT_TRUE(proto.ParseFromString(test::read_bytes(folder / "out.onnx")));
  EXPECT_EQ(proto.doc_string(), "kept");
}

TEST(Export, SparseInitializersBecomeDense) {
  const TemporaryFolder folder;
  onnx::ModelProto model = small_model();
  auto* sparse = model.mutable_graph()->add_sparse_initializer();
  *sparse->mutable_values() = model.graph().initializer(1);
  sparse->mutable_indices()->set_data_type(onnx::TensorProto::INT64);
  sparse->mutable_indices()->add_dims(2);
  for (const int i : {0, 1}) sparse->mutable_indices()->add_int64_data(i);
  sparse->add_dims(2);
  model.mutable_graph()->mutable_initializer()->RemoveLast();
  test::write_bytes(folder / "in.onnx", model.SerializeAsString());
  const Status status = export_onnx(folder / "in.onnx", {{"b", Tensor::from_f64(DType::f32, {2}, {7, 8})}},
                                    folder / "out.onnx");
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(value_of(import_onnx(folder / "out.onnx", {})->graph, "b").data.to_f64(),
            (std::vector<double>{7, 8}));
}

TEST(Export, MayOverwriteItsSource) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "m.onnx", small_model().SerializeAsString());
  ASSERT_TRUE(
      export_onnx(folder / "m.onnx", {{"b", Tensor::from_f64(DType::f32, {2}, {7, 8})}}, folder / "m.onnx")
          .ok());
  EXPECT_EQ(value_of(import_onnx(folder / "m.onnx", {})->graph, "b").data.to_f64(),
            (std::vector<double>{7, 8}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "no temporary file stays";
}

TEST(Export, UnknownNamesAndShapesWriteNothing) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "in.onnx", small_model().SerializeAsString());
  const Status unknown =
      export_onnx(folder / "in.onnx", {{"ghost", Tensor::from_i64({1})}}, folder / "out.onnx");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("'ghost'"), std::string::npos);
  const Status shape = export_onnx(folder / "in.onnx", {{"w", Tensor::from_f64(DType::f32, {1, 2}, {1, 2})}},
                                   folder / "out.onnx");
  ASSERT_FALSE(shape.ok());
  EXPECT_NE(shape.error().message.find("[1, 2]"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "out.onnx"));
}

TEST(Export, EmbedsExternalData) {
  const TemporaryFolder folder;
  onnx::ModelProto model = small_model();
  const float values[] = {5, 6};
  test::write_bytes(folder / "weights.bin", std::string(reinterpret_cast<const char*>(values), 8));
  onnx::TensorProto* b = model.mutable_graph()->mutable_initializer(1);
  b->clear_float_data();
  b->set_data_location(onnx::TensorProto::EXTERNAL);
  auto* location = b->add_external_data();
  location->set_key("location");
  location->set_value("weights.bin");
  test::write_bytes(folder / "in.onnx", model.SerializeAsString());
  EXPECT_EQ(value_of(import_onnx(folder / "in.onnx", {})->graph, "b").data.to_f64(),
            (std::vector<double>{5, 6}));
  std::filesystem::create_directory(folder / "elsewhere");
  ASSERT_TRUE(export_onnx(folder / "in.onnx", {}, folder / "elsewhere/out.onnx").ok());
  EXPECT_EQ(value_of(import_onnx(folder / "elsewhere/out.onnx", {})->graph, "b").data.to_f64(),
            (std::vector<double>{5, 6}));
}

TEST(Export, EmbedsExternalDataOfConstants) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "in");
  onnx::ModelProto model = model_from_text("g (float[2] x) => (float[2] y) { c = Constant() y = Mul(x, c) }");
  auto* attribute = model.mutable_graph()->mutable_node(0)->add_attribute();
  attribute->set_name("value");
  attribute->set_type(onnx::AttributeProto::TENSOR);
  onnx::TensorProto* tensor = attribute->mutable_t();
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  tensor->add_dims(2);
  tensor->set_data_location(onnx::TensorProto::EXTERNAL);
  tensor->add_external_data()->set_key("location");
  tensor->mutable_external_data(0)->set_value("c.bin");
  const float contents[] = {0.25f, -3};
  test::write_bytes(folder / "in/c.bin",
                    std::string(reinterpret_cast<const char*>(contents), sizeof contents));
  test::write_bytes(folder / "in/m.onnx", model.SerializeAsString());
  const Status status = export_onnx(folder / "in/m.onnx", {}, folder / "out.onnx");
  ASSERT_TRUE(status.ok()) << status.error().message;
  const Result<ImportedModel> back = import_onnx(folder / "out.onnx", {});
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(value_of(back->graph, "c").data.to_f64(), (std::vector<double>{0.25, -3}));
}

// Contents of 4 KiB and more are written from where they are: a parameter, the model's file, an external one.
TEST(Export, StreamsLargeContents) {
  constexpr std::int64_t kCount = 500'000;
  const TemporaryFolder folder;
  onnx::ModelProto model = model_from_text(
      "g (float[500000] x) => (float[500000] y) { h = Mul(x, w) i = Mul(h, b) y = Add(i, e) }");
  const auto numbers = [](double from) {
    std::vector<double> all(kCount);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = from + static_cast<double>(i);
    return Tensor::from_f64(DType::f32, {kCount}, all);
  };
  for (const char* name : {"w", "b", "e"}) {
    const Tensor contents = numbers(*name);
    onnx::TensorProto* tensor = add_floats(model, name, {kCount}, {});
    tensor->set_doc_string(name);
    if (*name != 'e') {
      tensor->set_raw_data(contents.data(), contents.bytes());
      continue;
    }
    test::write_bytes(folder / "e.bin",
                      std::string(static_cast<const char*>(contents.data()), contents.bytes()));
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    tensor->add_external_data()->set_key("location");
    tensor->mutable_external_data(0)->set_value("e.bin");
  }
  test::write_bytes(folder / "in.onnx", model.SerializeAsString());
  std::filesystem::create_directory(folder / "elsewhere");
  const std::string out = folder / "elsewhere/out.onnx";
  const Status status = export_onnx(folder / "in.onnx", {{"w", numbers(7).cast(DType::f64)}}, out);
  ASSERT_TRUE(status.ok()) << status.error().message;

  onnx::ModelProto written;
  ASSERT_TRUE(written.ParseFromString(test::read_bytes(out)));
  ASSERT_EQ(written.graph().initializer_size(), 3);
  const double from[] = {7, 'b', 'e'};
  for (int i = 0; i < 3; ++i) {
    const onnx::TensorProto& tensor = written.graph().initializer(i);
    EXPECT_EQ(tensor.data_type(), onnx::TensorProto::FLOAT) << "the model's element type is kept";
    EXPECT_EQ(tensor.doc_string(), tensor.name());
    EXPECT_EQ(tensor.external_data_size(), 0);
    const Tensor expected = numbers(from[i]);
    EXPECT_EQ(tensor.raw_data(), std::string(static_cast<const char*>(expected.data()), expected.bytes()));
  }
  EXPECT_EQ(written.graph().node_size(), 3);
  const Result<ImportedModel> back = import_onnx(out, {});
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(bit_equal(value_of(back->graph, "b").data, numbers('b')));
}

TEST(Export, FailsWhereItCannotWrite) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "in.onnx", small_model().SerializeAsString());
  EXPECT_EQ(export_onnx(folder / "in.onnx", {}, folder / "none/out.onnx").error().code, Errc::io);
  EXPECT_EQ(export_onnx(folder / "none.onnx", {}, folder / "out.onnx").error().code, Errc::io);
}

}  // namespace
}  // namespace gradloom
