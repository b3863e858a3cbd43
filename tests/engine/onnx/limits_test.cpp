// Limits by name: every field has one, numbers are checked, and messages name the flag that raises them.
#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using testing::expect_refused;
using testing::import_model;
using testing::model_from_text;

TEST(Limits, EveryFieldHasAName) {
  EXPECT_EQ(limit_fields().size() * sizeof(std::int64_t), sizeof(Limits));
  for (const LimitField& field : limit_fields()) {
    Limits limits;
    ASSERT_TRUE(set_limit(limits, field.name, 7).ok()) << field.name;
    EXPECT_EQ(limits.*field.value, 7);
  }
}

TEST(Limits, WrongNamesAndNumbersAreErrors) {
  Limits limits;
  const auto code = [&](const char* name, std::int64_t value) {
    const Status set = set_limit(limits, name, value);
    return set.ok() ? Errc::bug : set.error().code;
  };
  EXPECT_EQ(code("nodes", 0), Errc::usage);
  EXPECT_EQ(code("nodes", -1), Errc::usage);
  EXPECT_EQ(code("nodes", std::int64_t{1} << 41), Errc::usage);
  EXPECT_EQ(code("nesting", 1001), Errc::usage);
  EXPECT_EQ(code("wobbles", 5), Errc::usage);
  EXPECT_EQ(limits.nodes, Limits().nodes);
}

TEST(Limits, TheMessageNamesTheFlag) {
  const onnx::ModelProto model = model_from_text(
      "g (float[2] x) => (float[2] y) { m = Constant<value = int64 {30}>() t = Constant<value = bool {1}>()"
      " y = Loop <body = b (int64 i, bool c, float[2] v) => (bool k, float[2] w) { k = Identity(c) w = "
      "Relu(v) }>"
      "(m, t, x) }");
  ImportOptions options;
  options.limits.expanded_nodes = 59;
  expect_refused(import_model(model, options), Errc::limit,
                 {"--import-limit expanded_nodes=N raises the limit"});
  options.limits.expanded_nodes = 60;
  const auto imported = import_model(model, options);
  EXPECT_TRUE(imported.ok()) << imported.error().message;
}

}  // namespace
}  // namespace gradloom
