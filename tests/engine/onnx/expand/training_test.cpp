// Optimizers as operators.
#include "engine/onnx/expand/expansion.h"

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

TEST(ExpandTraining, GroupsOfTensorsMustFit) {
  const auto model = [](const std::string& node) {
    onnx::ModelProto m = model_from_text(
        "g (float r, int64 t, float[2] x, float[2] d, float[2] h) => (float[2] y)"
        "{ y = ai.onnx.preview.training." +
        node + " }");
    auto* import = m.add_opset_import();
    import->set_domain("ai.onnx.preview.training");
    import->set_version(1);
    return m;
  };
  EXPECT_TRUE(import_model(model("Adagrad(r, t, x, d, h)")).ok());
  expect_refused(import_model(model("Adagrad(r, t, x, d)")), Errc::bad_input, {"2 tensors are no 3 groups"});
  expect_refused(import_model(model("Adam(r, t, x, d, h)")), Errc::bad_input, {"3 tensors are no 4 groups"});
  expect_refused(import_model(model("Momentum<mode = \"other\">(r, t, x, d, h)")), Errc::bad_input,
                 {"'other'"});
}

}  // namespace
}  // namespace gradloom::expand_test
