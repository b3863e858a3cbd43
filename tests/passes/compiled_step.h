// Compiled training steps, for tests of passes.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "passes/compile.h"

namespace gradloom::test {

// The step of a model whose loss is "loss", with sgd. On an error the test fails, and it is empty.
inline Graph compiled_step(const Graph& model, const std::string& passes) {
  CompileOptions options;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer("sgd{lr=0.1}");
  options.pipeline = *parse_pipeline(passes);
  const auto compiled = compile(model, options);
  EXPECT_TRUE(compiled.ok()) << (compiled.ok() ? "" : compiled.error().message);
  return compiled.ok() ? compiled->train.graph : Graph{};
}

}  // namespace gradloom::test
