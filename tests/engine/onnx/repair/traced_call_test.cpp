#include "engine/onnx/repair/traced_call.h"

#include <gtest/gtest.h>

#include "engine/onnx/file/newer_fields.h"

namespace gradloom {
namespace {

std::optional<TracedCall> call_of(const std::string& text) {
  onnx::NodeProto node;
  add_metadata(node, "pkg.torch.onnx.fx_node", text);
  return traced_call_of(node);
}

TEST(TracedCall, ResultFunctionAndArguments) {
  const auto call = call_of(
      "%cat_1 : [num_users=2] = call_function[target=torch.ops.aten.cat.default](args = ([%x, %p_w], -1, 0.25, None), kwargs = {})");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->result, "cat_1");
  EXPECT_EQ(call->function, "aten.cat.default");
  EXPECT_EQ(call->arguments, (std::vector<std::string>{"[%x, %p_w]", "-1", "0.25", "None"}));
  EXPECT_EQ(call->values, (std::vector<std::string>{"x", "p_w"}));
  EXPECT_EQ(call->integer(1), -1);
  EXPECT_EQ(call->number(2), 0.25);
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}, std::size_t{3}, std::size_t{9}})
    EXPECT_FALSE(call->integer(i)) << i;
}

TEST(TracedCall, OfOneArgument) {
  const auto call = call_of(
      "%d : [num_users=1] = call_function[target=torch.ops.aten.detach.default](args = (%x,), kwargs = {})");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->values, std::vector<std::string>{"x"});
}

TEST(TracedCall, OtherTextIsNone) {
  for (const char* text :
       {"", "%", "%x", "x = call_function[target=torch.ops.aten.a](args = (), kwargs = {})",
        "%x : = call_function[target=torch.ops.aten.a", "%x = call_module[target=fc](args = (%y,))"})
    EXPECT_FALSE(call_of(text)) << text;
  const auto open = call_of("%x : [] = call_function[target=torch.ops.aten.a](args = (%y, [1");
  ASSERT_TRUE(open);
  EXPECT_EQ(open->values, std::vector<std::string>{"y"});
  EXPECT_FALSE(traced_call_of(onnx::NodeProto()));
}

}  // namespace
}  // namespace gradloom
