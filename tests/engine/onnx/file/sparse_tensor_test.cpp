// Sparse initializers: both forms of indices, contents, graphs inside graphs, errors.
#include "engine/onnx/file/sparse_tensor.h"

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::expect_refused;
using test::import_model;
using test::model_from_text;
using test::value_of;

void fill(onnx::SparseTensorProto& sparse, const std::string& name, const std::vector<float>& values,
          const std::vector<std::int64_t>& shape_of_indices, const std::vector<std::int64_t>& indices,
          const std::vector<std::int64_t>& dims) {
  onnx::TensorProto& v = *sparse.mutable_values();
  v.set_name(name);
  v.set_data_type(onnx::TensorProto::FLOAT);
  v.add_dims(static_cast<std::int64_t>(values.size()));
  for (const float x : values) v.add_float_data(x);
  onnx::TensorProto& i = *sparse.mutable_indices();
  i.set_data_type(onnx::TensorProto::INT64);
  for (const std::int64_t dim : shape_of_indices) i.add_dims(dim);
  for (const std::int64_t x : indices) i.add_int64_data(x);
  for (const std::int64_t dim : dims) sparse.add_dims(dim);
}

onnx::ModelProto model_with(const std::vector<float>& values,
                            const std::vector<std::int64_t>& shape_of_indices,
                            const std::vector<std::int64_t>& indices, const std::vector<std::int64_t>& dims) {
  onnx::ModelProto model = model_from_text("g (float[2, 3] x) => (float y) { y = Add(x, w) }");
  model.mutable_graph()->mutable_output(0)->clear_type();
  fill(*model.mutable_graph()->add_sparse_initializer(), "w", values, shape_of_indices, indices, dims);
  return model;
}

TEST(Sparse, PositionsAndCoordinates) {
  for (const bool linear : {true, false}) {
    const auto imported = linear ? import_model(model_with({5, -1}, {2}, {1, 5}, {2, 3}))
                                 : import_model(model_with({5, -1}, {2, 2}, {0, 1, 1, 2}, {2, 3}));
    ASSERT_TRUE(imported.ok()) << imported.error().message;
    const Value& w = value_of(imported->graph, "w");
    EXPECT_EQ(w.role, Role::parameter);
    EXPECT_EQ(to_string(w.type), "f32[2, 3]");
    EXPECT_EQ(w.data.to_f64(), (std::vector<double>{0, 5, 0, 0, 0, -1}));
    ASSERT_FALSE(imported->notes.empty());
    EXPECT_NE(imported->notes[0].find("1 sparse initializer is made dense"), std::string::npos)
        << imported->notes[0];
  }
}

TEST(Sparse, PackedValues) {
  onnx::ModelProto model = model_with({}, {2}, {1, 4}, {5});
  model.mutable_graph()->mutable_node(0)->set_op_type("Cast");
  model.mutable_graph()->mutable_node(0)->clear_input();
  model.mutable_graph()->mutable_node(0)->add_input("w");
  onnx::AttributeProto& to = *model.mutable_graph()->mutable_node(0)->add_attribute();
  to.set_name("to");
  to.set_type(onnx::AttributeProto::INT);
  to.set_i(onnx::TensorProto::FLOAT);
  onnx::TensorProto& values = *model.mutable_graph()->mutable_sparse_initializer(0)->mutable_values();
  values.set_data_type(22);  // int4
  values.set_dims(0, 2);
  values.set_raw_data("\x98");
  const auto imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(value_of(imported->graph, "w").data.to_i64(), (std::vector<std::int64_t>{0, -8, 0, 0, -7}));
}

TEST(Sparse, NothingButZeros) {
  const auto imported = import_model(model_with({}, {0}, {}, {3}));
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(value_of(imported->graph, "w").data.to_f64(), (std::vector<double>{0, 0, 0}));
}

TEST(Sparse, InsideOfGraphs) {
  onnx::ModelProto model = model_from_text(
      "g (float[2] x) => (float[2] y) { t = Constant<value = bool {1}>() y = If(t) <then_branch = p () => "
      "(float[2] a) { a = Mul(x, w) }, else_branch = q () => (float[2] b) { b = Relu(x) }> }");
  onnx::NodeProto& node = *model.mutable_graph()->mutable_node(1);
  for (auto& attribute : *node.mutable_attribute())
    if (attribute.name() == "then_branch")
      fill(*attribute.mutable_g()->add_sparse_initializer(), "w", {4}, {1}, {1}, {2});
  const auto imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(value_of(imported->graph, "w").data.to_f64(), (std::vector<double>{0, 4}));
}

TEST(Sparse, RefusesWhatDoesNotFit) {
  const auto refused = [](const onnx::ModelProto& model, Errc code, const std::string& text) {
    expect_refused(import_model(model), code, {"sparse initializer 'w'", text});
  };
  refused(model_with({5, 1}, {2}, {1, 6}, {2, 3}), Errc::bad_input, "index 6 of value 1 is outside of 0..5");
  refused(model_with({5}, {1}, {-1}, {2, 3}), Errc::bad_input, "index -1");
  refused(model_with({5}, {1, 2}, {1, 3}, {2, 3}), Errc::bad_input, "index 3 of value 0 is outside of 0..2");
  refused(model_with({5, 1}, {2}, {3, 3}, {2, 3}), Errc::bad_input, "do not ascend at value 1");
  refused(model_with({5, 1}, {2, 2}, {1, 0, 0, 2}, {2, 3}), Errc::bad_input, "do not ascend at value 1");
  refused(model_with({5, 1}, {3}, {0, 1, 2}, {2, 3}), Errc::bad_input, "its indices are i64[3]");
  refused(model_with({5}, {1, 3}, {0, 1, 2}, {2, 3}), Errc::bad_input, "1 values need i64[1] or i64[1, 2]");
  refused(model_with({5}, {1}, {0}, {1 << 20, 1 << 20}), Errc::limit, "folded_bytes");
  refused(model_with({5}, {1}, {0}, {-2, 3}), Errc::bad_input, "-2");
  onnx::ModelProto floats = model_with({5}, {1}, {}, {2, 3});
  floats.mutable_graph()->mutable_sparse_initializer(0)->mutable_indices()->set_data_type(
      onnx::TensorProto::FLOAT);
  floats.mutable_graph()->mutable_sparse_initializer(0)->mutable_indices()->add_float_data(0);
  refused(floats, Errc::bad_input, "its indices are f32[1]");
  onnx::ModelProto twice = model_with({5}, {1}, {0}, {2, 3});
  test::add_floats(twice, "w", {2, 3}, {1, 2, 3, 4, 5, 6});
  expect_refused(import_model(twice), Errc::bad_input, {"'w' is defined twice"});
}

}  // namespace
}  // namespace gradloom
