// Everything that stands in the way of training is found, all of it at once.
#include "app/model_summary.h"

#include <limits>

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using gradloom::test::add_floats;
using gradloom::test::model_from_text;

ImportedModel viewed(const onnx::ModelProto& model) {
  ImportOptions options;
  options.allow_unknown = true;
  return gradloom::test::imported_or_fail(model, options);
}

ModelSummary summary_of(const ImportedModel& model) { return summarize(model, model.graph.outputs); }

TEST(ModelSummary, CountsWhatThereIs) {
  onnx::ModelProto text =
      model_from_text("g (float[2, 3] x) => (float[2, 4] y) { h = MatMul(x, w) y = Relu(h) }");
  add_floats(text, "w", {3, 4}, std::vector<float>(12, 1));
  const ModelSummary s = summary_of(viewed(text));
  ASSERT_EQ(s.ops.size(), 2u);
  EXPECT_EQ(s.ops[0].op, "MatMul");
  EXPECT_EQ(s.ops[0].flops, 2 * 2 * 3 * 4);
  EXPECT_EQ(s.parameters, 12);
  EXPECT_EQ(s.parameter_bytes, 48);
  EXPECT_TRUE(s.no_gradient.empty() && s.no_cpu_kernel.empty() && s.sized_by_data.empty());
}

TEST(ModelSummary, WeightsThatAreNotFinite) {
  onnx::ModelProto text = model_from_text("g (float[2] x) => (float[2] y) { h = Mul(x, a) y = Add(h, b) }");
  add_floats(text, "a", {2}, {1, std::numeric_limits<float>::infinity()});
  add_floats(text, "b", {2}, {1e38f, 0});
  EXPECT_EQ(summary_of(viewed(text)).not_finite, std::vector<std::string>{"a"});
}

// Rules that refuse are asked, behind one another, and operators without a rule are among them.
// No operator of ONNX has a rule that refuses one of its outputs; the means of ours do.
TEST(ModelSummary, GradientsThatRulesRefuse) {
  onnx::ModelProto text = model_from_text("g (float[2, 4, 3] x) => (float[2, 4, 3] y) { y = Mul(x, w) }");
  add_floats(text, "w", {4, 1}, {1, 2, 3, 4});
  ImportedModel model = viewed(text);
  GraphBuilder b(model.graph);
  const ValueId scale = b.parameter("scale", Tensor(DType::f32, {4}));
  const auto norm = b.ops(op_by_name("GroupNormalization"), {model.graph.outputs[0], scale, scale},
                          {{"num_groups", std::int64_t{2}}}, 3);
  model.graph.outputs = {norm[0], norm[1]};
  const ModelSummary s = summary_of(model);
  ASSERT_EQ(s.no_gradient.size(), 1u);
  EXPECT_EQ(s.no_gradient[0].op, "GroupNormalization");
  EXPECT_NE(s.no_gradient[0].reason.find("output 1"), std::string::npos) << s.no_gradient[0].reason;
}

TEST(ModelSummary, SizesThatOnlyTheDataTells) {
  const ImportedModel model = viewed(model_from_text(
      "g (float[2, 3] x) => (int64[2, n] y, float[k] z) { y = NonZero(x) c = Greater(x, x) z = Compress(x, f)"
      " f = Reshape(c, s) s = Constant<value = int64[1] {-1}>() }"));
  const ModelSummary s = summary_of(model);
  ASSERT_EQ(s.sized_by_data.size(), 2u);
  EXPECT_EQ(s.sized_by_data[0].op, "NonZero");
  EXPECT_EQ(s.sized_by_data[1].op, "Compress");
}

TEST(ModelSummary, EveryNodeWithoutTypesIsNamed) {
  const ImportedModel model = viewed(model_from_text(
      "g (float[2, 3] x, float[4, 5] w) => (float a, float b) { a = MatMul(x, w) b = Add(x, w) }"));
  ASSERT_EQ(model.untyped.size(), 2u);
  EXPECT_EQ(model.untyped[0].op_type, "MatMul");
  EXPECT_EQ(model.untyped[1].op_type, "Add");
  EXPECT_FALSE(model.untyped[1].reason.empty());
}

}  // namespace
}  // namespace gradloom
