#include "engine/base/csv.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

TEST(Csv, QuotesWhatMustBe) {
  EXPECT_EQ(csv_field("plain /a/b.c"), "plain /a/b.c");
  EXPECT_EQ(csv_field(""), "");
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(csv_field("two\nlines\r"), "two\\x0alines\\x0d") << "no reader stumbles over them";
  EXPECT_EQ(csv_field("\xff"), "\\xff");
}

TEST(Csv, NoFormulas) {
  for (const char* text : {"=1+1", "+1", "-1", "@SUM(A1)"})
    EXPECT_EQ(csv_field(text), "'" + std::string(text));
  EXPECT_EQ(csv_field("=a,b"), "\"'=a,b\"");
}

TEST(Csv, Lines) {
  EXPECT_EQ(csv_line({"a", "1", ""}), "a,1,\n");
  EXPECT_EQ(csv_line({}), "\n");
}

}  // namespace
}  // namespace gradloom
