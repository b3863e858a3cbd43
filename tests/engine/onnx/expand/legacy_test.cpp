// Forms of operators before opset 7.
#include "engine/onnx/expand/expansion.h"

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

TEST(ExpandLegacy, BroadcastsFromAnAxisOn) {
  const Expanded e = expanded(
      "g (float[2, 3, 2] a, float[3] b) => (float[2, 3, 2] y) { y = Sub<axis = 1, broadcast = 1>(a, b) }", 6);
  Array want = e.inputs.at("a");
  for (std::size_t i = 0; i < want.size(); ++i) want[i] -= e.inputs.at("b")[i / 2 % 3];
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
  expect_refused(import_model(model_from_text("g (float[2, 3] a, float[3] b) => (float[2, 3] y)"
                                              "{ y = Sub<axis = 2, broadcast = 1>(a, b) }",
                                              6)),
                 Errc::bad_input, {"axis"});
}

TEST(ExpandLegacy, SlopesPerChannel) {
  const Expanded e =
      expanded("g (float[2, 3, 2] x, float[3] s) => (float[2, 3, 2] y) { y = PRelu(x, s) }", 6);
  Array want = e.inputs.at("x");
  for (std::size_t i = 0; i < want.size(); ++i)
    if (want[i] < 0) want[i] *= e.inputs.at("s")[i / 2 % 3];
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandLegacy, TestFormsOfNormalizationAndDropout) {
  const Expanded e = expanded(
      "g (float[2, 3] x, float[3] w, float[3] b, float[3] m, float[3] v) => (float[2, 3] y)"
      "{ y = BatchNormalization<is_test = 1, epsilon = 4.0>(x, w, b, m, v) }",
      6);
  Array want = e.inputs.at("x");
  for (std::size_t i = 0; i < want.size(); ++i) {
    const std::size_t c = i % 3;
    const double deviation = std::sqrt(e.inputs.at("v")[c] + 4);
    want[i] = (want[i] - e.inputs.at("m")[c]) / deviation * e.inputs.at("w")[c] + e.inputs.at("b")[c];
  }
  expect_near(outputs_of(e)[0], want);
  expect_refused(import_model(model_from_text("g (float[2, 3] x, float[3] w) => (float[2, 3] y)"
                                              "{ y = BatchNormalization(x, w, w, w, w) }",
                                              6)),
                 Errc::bad_input, {"training form"});
  EXPECT_TRUE(
      import_model(model_from_text("g (float[2] x) => (float[2] y) { y = Dropout<is_test = 1>(x) }", 6))
          .ok());
}

TEST(ExpandLegacy, ConstantsOfAShape) {
  const auto filled = [](const std::string& call, const std::string& type = "float") {
    const auto model = import_model(
        model_from_text("g (float[2, 3] x) => (" + type +
                            "[N] y) { s = Constant<value = int64[2] {3, 2}>() y = " + call + " }",
                        8));
    EXPECT_TRUE(model.ok()) << call;
    return model->graph.value(model->graph.outputs[0]).data;
  };
  const auto expect_filled = [&](const std::string& call, const Shape& shape, double value) {
    const Tensor y = filled(call);
    EXPECT_EQ(y.shape(), shape) << call;
    expect_near(y.to_f64(), Array(static_cast<std::size_t>(element_count(shape)), value));
  };
  expect_filled("ConstantFill<input_as_shape = 1, value = 2.5>(s)", {3, 2}, 2.5);
  expect_filled("ConstantFill<value = 2.5>(x)", {2, 3}, 2.5);
  expect_filled("ConstantFill<shape = [4]>()", {4}, 0);
  expect_filled("ConstantFill<input_as_shape = 1, extra_shape = [5], value = -1.0>(s)", {3, 2, 5}, -1);
  EXPECT_EQ(filled("ConstantFill<shape = [2], dtype = 7>()", "int64").dtype(), DType::i64);
  expect_refused(import_model(model_from_text(
                     "g () => (float[2] y) { y = ConstantFill<shape = [2], dtype = 99>() }", 8)),
                 Errc::bad_input, {"99"});
}

TEST(ExpandLegacy, FormsBeforeOpsetSixAreReported) {
  expect_refused(import_model(model_from_text("g (float[2] x) => (float[2] y) { y = Relu(x) }", 5)),
                 Errc::bad_input, {"Relu", "form of opset 5"});
  EXPECT_TRUE(import_model(model_from_text("g (bool[2] x) => (bool[2] y) { y = Not(x) }", 1)).ok());
}

}  // namespace
}  // namespace gradloom::expand_test
