#include "engine/onnx/read/fold.h"

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::add_floats;
using test::add_ints;
using test::import_model;
using test::imported_or_fail;
using test::model_from_text;
using test::value_of;

// What torch writes for x.view(x.size(0), x.size(1), 2, -1).
onnx::ModelProto view_model() {
  return model_from_text(
      "g (float[B, 3, 8] x) => (float y) {"
      " s = Shape(x) zero = Constant<value = int64 {0}>() b = Gather<axis = 0>(s, zero)"
      " one = Constant<value = int64 {1}>() t = Gather<axis = 0>(s, one)"
      " axes = Constant<value = int64[1] {0}>() ub = Unsqueeze(b, axes) ut = Unsqueeze(t, axes)"
      " tail = Constant<value = int64[2] {2, -1}>() shape = Concat<axis = 0>(ub, ut, tail)"
      " r = Reshape(x, shape) y = ReduceMean<keepdims = 0>(r) }");
}

TEST(Fold, ShapeArithmeticBecomesKnown) {
  ImportOptions options;
  options.dims["B"] = 5;
  const ImportedModel imported = imported_or_fail(view_model(), options);
  const Graph& graph = imported.graph;
  EXPECT_EQ(value_of(graph, "s").data.to_i64(), (std::vector<std::int64_t>{5, 3, 8}));
  EXPECT_EQ(value_of(graph, "shape").data.to_i64(), (std::vector<std::int64_t>{5, 3, 2, -1}));
  EXPECT_TRUE(is_constant(graph, find_value(graph, "shape")));
  EXPECT_EQ(value_of(graph, "shape").role, Role::activation)
      << "the node stays until fold-constants removes it";
  EXPECT_EQ(to_string(value_of(graph, "r").type), "f32[5, 3, 2, 4]");
  EXPECT_FALSE(value_of(graph, "r").data.defined());
  EXPECT_TRUE(verify(graph).ok());
}

TEST(Fold, UnboundShapesAreNotKnown) {
  const ImportedModel imported = imported_or_fail(view_model());
  EXPECT_FALSE(value_of(imported.graph, "s").data.defined());
  EXPECT_EQ(imported.unbound_dims, std::vector<std::string>{"B"});
}

TEST(Fold, ShapeAttributesAndSize) {
  const ImportedModel imported =
      imported_or_fail(model_from_text("g (float[2, 3, 4] x) => (int64[1] a, int64[2] b, int64 n) { a = "
                                       "Shape<start = -1>(x) b = Shape<end = 2>(x) n = Size(x) }"));
  EXPECT_EQ(value_of(imported.graph, "a").data.to_i64(), std::vector<std::int64_t>{4});
  EXPECT_EQ(value_of(imported.graph, "b").data.to_i64(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(value_of(imported.graph, "n").data.int_at(0), 24);
}

TEST(Fold, ParametersAndRandomNumbersAreNeverFolded) {
  onnx::ModelProto model = model_from_text(
      "g (float[2] x) => (float[2] y) { t = Transpose<perm = [0]>(w) c = Constant<value = float[2] {1, 2}>()"
      " ratio = Constant<value = float {0.5}>() on = Constant<value = bool {1}>() d = Dropout(c, ratio, on) "
      "u = Add(t, d) y = Add(x, u) }");
  add_floats(model, "w", {2}, {1, 2});
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_FALSE(value_of(imported.graph, "t").data.defined());
  EXPECT_FALSE(value_of(imported.graph, "d").data.defined());
}

TEST(Fold, ShapeOfAParameterIsKnown) {
  onnx::ModelProto model =
      model_from_text("g (float[2] x) => (float[2] y, int64[1] s) { y = Add(x, w) s = Shape(w) }");
  add_floats(model, "w", {2}, {1, 2});
  EXPECT_EQ(value_of(imported_or_fail(model).graph, "s").data.to_i64(), std::vector<std::int64_t>{2});
}

TEST(Fold, LargeResultsAreLeftToTheRun) {
  onnx::ModelProto model =
      model_from_text("g (float[1] x) => (float[N] y) { c = ConstantOfShape(shape) y = Add(x, c) }");
  model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  add_ints(model, "shape", {2}, {std::int64_t{1} << 20, 1 << 10});
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_FALSE(value_of(imported.graph, "c").data.defined());
  EXPECT_TRUE(test::has_note(imported, "left to the run"));
  EXPECT_EQ(to_string(value_of(imported.graph, "y").type), "f32[1048576, 1024]");
}

TEST(Fold, FoldedBytesIsExact) {
  onnx::ModelProto model =
      model_from_text("g (float[1] x) => (float[256] y) { c = ConstantOfShape(shape) y = Add(x, c) }");
  add_ints(model, "shape", {1}, {256});
  ImportOptions options;
  options.limits.folded_bytes = 1024;
  EXPECT_TRUE(value_of(imported_or_fail(model, options).graph, "c").data.defined());
  options.limits.folded_bytes = 1023;
  EXPECT_FALSE(value_of(imported_or_fail(model, options).graph, "c").data.defined());
}

TEST(Fold, ShapesThatOverflowAreRefused) {
  onnx::ModelProto model =
      model_from_text("g (float[1] x) => (float[N] y) { c = ConstantOfShape(shape) y = Add(x, c) }");
  add_ints(model, "shape", {2}, {std::int64_t{1} << 40, std::int64_t{1} << 40});
  const Result<ImportedModel> imported = import_model(model);
  ASSERT_FALSE(imported.ok());
  EXPECT_TRUE(imported.error().code == Errc::limit || imported.error().code == Errc::bad_input);
}

TEST(Fold, DivisionByZeroDoesNotCrash) {
  for (const char* op : {"Div", "Mod"}) {
    onnx::ModelProto model =
        model_from_text(std::string("g (float[1] x) => (int64[2] y) { y = ") + op + "(a, b) }");
    add_ints(model, "a", {2}, {std::numeric_limits<std::int64_t>::min(), 1});
    add_ints(model, "b", {2}, {-1, 0});
    const Result<ImportedModel> imported = import_model(model);
    EXPECT_TRUE(imported.ok() || imported.error().code == Errc::bad_input);
  }
}

}  // namespace
}  // namespace gradloom
