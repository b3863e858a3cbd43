#include "passes/scanner.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

TEST(Scanner, WordsNumbersSignsAndTexts) {
  Scanner scanner("rule a-b { // why\n y = 1.5e-3 -> \"te xt\" <= }", "f.rules");
  EXPECT_EQ(scanner.take().text, "rule");
  EXPECT_EQ(scanner.dashed_word(), "a-b");
  EXPECT_TRUE(scanner.expect("{").ok());
  const Scanner::Token y = scanner.take();
  EXPECT_EQ(y.line, 2);
  EXPECT_EQ(y.column, 2);
  EXPECT_TRUE(scanner.take_if("="));
  EXPECT_EQ(scanner.take().number, 1.5e-3);
  EXPECT_TRUE(scanner.at("->"));
  EXPECT_EQ(scanner.between(y), "y = 1.5e-3");
  scanner.take();
  EXPECT_EQ(scanner.token().kind, Scanner::Kind::string);
  EXPECT_EQ(scanner.take().text, "te xt");
  EXPECT_TRUE(scanner.take_if("<="));
  EXPECT_FALSE(scanner.at_end());
  EXPECT_EQ(scanner.expect("]").error().message, "f.rules:2:27: expected ']', got '}'");
  scanner.take();
  EXPECT_TRUE(scanner.at_end());
}

TEST(Scanner, WhatIsNoTokenIsASign) {
  for (const char* text : {"\"open", "1e999", "\x01", "\xff", "?"}) {
    Scanner scanner(text);
    EXPECT_EQ(scanner.token().kind, Scanner::Kind::sign) << text;
    while (!scanner.at_end()) scanner.take();
  }
}

}  // namespace
}  // namespace gradloom
