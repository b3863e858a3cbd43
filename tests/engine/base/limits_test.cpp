// Limits by name: every field has one, numbers are checked, and messages name the flag that raises them.
#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::expect_refused;
using test::import_model;
using test::model_from_text;

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

struct Bounded {
  const char* limit;
  std::int64_t least;  // that lets the model through
  onnx::ModelProto (*model)();
};

onnx::ModelProto chain() {
  std::string nodes;
  for (int i = 0; i < 40; ++i) nodes += "v" + std::to_string(i + 1) + " = Relu(v" + std::to_string(i) + ") ";
  return model_from_text("g (float[2] v0) => (float[2] v40) { " + nodes + "}");
}
onnx::ModelProto nested() {
  const std::string yes = "t = Constant<value = bool {1}>() ";
  std::string body = "y = Relu(x)";
  for (const char* name : {"a", "b", "c"})
    body = std::string("u") + name + " = Identity(t) y = If(u" + name + ") <then_branch = p" + name +
           " () => (float[2] y) { " + body + " }, else_branch = q" + name +
           " () => (float[2] z) { z = Neg(x) }>";
  return model_from_text("g (float[2] x) => (float[2] y) { " + yes + body + " }");
}
onnx::ModelProto deep_tensor() {
  return model_from_text("g (float[1, 2, 1, 2, 1, 2] x) => (float[1, 2, 1, 2, 1, 2] y) { y = Relu(x) }");
}
onnx::ModelProto long_name() {
  const std::string name(100, 'n');
  return model_from_text("g (float[2] x) => (float[2] y) { " + name + " = Relu(x) y = Neg(" + name + ") }");
}
onnx::ModelProto loop() {
  return model_from_text(
      "g (float[2] x) => (float[2] y) { m = Constant<value = int64 {30}>() t = Constant<value = bool {1}>()"
      " y = Loop <body = b (int64 i, bool c, float[2] v) => (bool k, float[2] w) { k = Identity(c) w = "
      "Relu(v) }>"
      "(m, t, x) }");
}

class EachLimit : public ::testing::TestWithParam<Bounded> {};

// One below the least number that is enough is refused, that number and one more are not.
TEST_P(EachLimit, EndsAtItsNumber) {
  const Bounded& row = GetParam();
  const onnx::ModelProto model = row.model();
  const auto imported = [&](std::int64_t n) {
    ImportOptions options;
    EXPECT_TRUE(set_limit(options.limits, row.limit, n).ok());
    return import_model(model, options);
  };
  const std::int64_t least =
      row.least > 0 ? row.least : static_cast<std::int64_t>(model.SerializeAsString().size());
  expect_refused(imported(least - 1), Errc::limit,
                 {std::string("--import-limit ") + row.limit + "=N raises the limit"});
  for (const std::int64_t n : {least, least + 1}) {
    const auto result = imported(n);
    EXPECT_TRUE(result.ok()) << row.limit << " = " << n << ": " << result.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachLimit,
                         ::testing::Values(Bounded{"file_bytes", 0, chain},  // 0: the bytes of the file
                                           Bounded{"nodes", 40, chain}, Bounded{"nesting", 4, nested},
                                           Bounded{"rank", 6, deep_tensor},
                                           Bounded{"name_bytes", 100, long_name},
                                           Bounded{"expanded_nodes", 60, loop}),
                         [](const auto& row) { return std::string(row.param.limit); });

}  // namespace
}  // namespace gradloom
