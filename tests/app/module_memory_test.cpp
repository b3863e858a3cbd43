// Recompute in modules: no bit of a gradient is another, and a memory budget is kept.
#include "tests/app/module_loop.h"

namespace gradloom {
namespace {

class ModuleMemory : public testing::TestWithParam<std::string> {};

// All that may run again does: nothing but where values come from is another.
TEST_P(ModuleMemory, WhatRunsAgainGivesTheSameBits) {
  const auto kept = open_folder(GetParam(), {}), again = open_folder(GetParam(), {"--recompute", "*"});
  ASSERT_NE(kept, nullptr);
  ASSERT_NE(again, nullptr);
  Loop one = kept->loop(), other = again->loop();
  for (Loop* const loop : {&one, &other}) {
    ASSERT_TRUE(loop->forward().ok());
    ASSERT_TRUE(loop->backward().ok());
  }
  expect_bits(other.statistics, one.statistics, "statistic");
  for (const auto& [kind, pair] :
       {std::pair{ModuleKind::parameter, std::pair{&one.parameter_gradients, &other.parameter_gradients}},
        std::pair{ModuleKind::input, std::pair{&one.input_gradients, &other.input_gradients}}})
    for (std::size_t i = 0; i < pair.first->size(); ++i) {
      const ModuleValue& value = kept->module->values(kind)[i];
      EXPECT_TRUE(!value.gradient || bit_equal((*pair.first)[i], (*pair.second)[i])) << value.name;
    }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, ModuleMemory, testing::ValuesIn(folder_names()), [](const auto& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(ModuleMemoryBudget, IsKept) {
  for (const char* name : {"gpt-char", "bert-tiny"}) {
    SCOPED_TRACE(name);
    const auto kept = open_folder(name, {});
    ASSERT_NE(kept, nullptr);
    const std::int64_t most = *kept->module->arena_bytes(false);
    std::int64_t besides = 0;  // parameters and their gradients, inputs, outputs
    for (const ModuleKind kind : {ModuleKind::input, ModuleKind::parameter, ModuleKind::output})
      for (const ModuleValue& v : kept->module->values(kind))
        besides += static_cast<std::int64_t>(byte_size(v.type)) * (kind == ModuleKind::parameter ? 2 : 1);
    const std::string budget = std::to_string(besides + most * 3 / 4);
    const auto again = open_folder(name, {"--memory-budget", budget});
    ASSERT_NE(again, nullptr);
    EXPECT_LE(*again->module->arena_bytes(false), most * 8 / 10);
    EXPECT_LE(*again->module->arena_bytes(true), *kept->module->arena_bytes(true));
    Loop one = kept->loop(), other = again->loop();
    for (Loop* const loop : {&one, &other}) {
      ASSERT_TRUE(loop->forward().ok());
      ASSERT_TRUE(loop->backward().ok());
    }
    expect_bits(other.parameter_gradients, one.parameter_gradients, "gradient of parameter");
  }
  auto module = ModelModule::open(folder_of_module("mlp") + "/model.onnx",
                                  {"--dim", "batch=8", "--memory-budget", "1000"});
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.error().code, Errc::device);
}

}  // namespace
}  // namespace gradloom
