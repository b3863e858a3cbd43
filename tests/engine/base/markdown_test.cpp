#include "engine/base/markdown.h"

#include <gtest/gtest.h>

namespace gradloom::markdown {
namespace {

TEST(Markdown, TablesKeepTheBarsOfTheirCells) {
  EXPECT_EQ(head({"a", "b"}), "| a | b |\n|---|---|\n");
  EXPECT_EQ(row({code("on | off"), cell("x|y")}), "| `on \\| off` | x\\|y |\n");
  EXPECT_EQ(code(""), "");
}

}  // namespace
}  // namespace gradloom::markdown
