#include "sessions/json_schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gradloom {
namespace {

using json = nlohmann::json;

std::string verdict(const char* value, const char* schema) {
  const Status status = validate_json(json::parse(value), json::parse(schema));
  return status.ok() ? "ok" : status.error().message;
}

TEST(JsonSchema, Types) {
  EXPECT_EQ(verdict("1.0", R"({"type":"integer"})"), "ok") << "JSON Schema counts 1.0 as an integer";
  EXPECT_EQ(verdict("1.5", R"({"type":"integer"})"), "/: must be of type integer, not number");
  EXPECT_EQ(verdict("1", R"({"type":"number"})"), "ok");
  EXPECT_EQ(verdict("null", R"({"type":["string","null"]})"), "ok");
  EXPECT_EQ(verdict("true", R"({"type":["string","number"]})"),
            "/: must be of type string or number, not boolean");
}

TEST(JsonSchema, RangesAreExactFor64BitIntegers) {
  EXPECT_EQ(verdict("18446744073709551615", R"({"maximum":18446744073709551615})"), "ok");
  EXPECT_EQ(verdict("9223372036854775808", R"({"maximum":9223372036854775807})"),
            "/: must be at most 9223372036854775807");
  EXPECT_EQ(verdict("-1", R"({"minimum":0})"), "/: must be at least 0");
}

TEST(JsonSchema, StringsCountCodePoints) {
  EXPECT_EQ(verdict("\"\xc3\xa9\xc3\xa9\"", R"({"maxLength":2})"), "ok");
  EXPECT_EQ(verdict("\"abc\"", R"({"maxLength":2})"), "/: longer than 2 characters");
}

TEST(JsonSchema, PatternsOfOneClass) {
  const char* schema = R"({"pattern":"^[0-9a-fX]{3}$"})";
  EXPECT_EQ(verdict("\"0fX\"", schema), "ok");
  for (const char* bad : {"\"0f\"", "\"0fXX\"", "\"0g1\"", "\"0-1\"", "\"\""}) {
    EXPECT_EQ(verdict(bad, schema), "/: must match ^[0-9a-fX]{3}$") << bad;
  }
}

TEST(JsonSchema, ObjectsAndArraysNamePaths) {
  const char* schema =
      R"({"properties":{"a":{"items":{"type":"string"},"maxItems":2}},"required":["a"],"additionalProperties":false})";
  EXPECT_EQ(verdict(R"({"a":["x"]})", schema), "ok");
  EXPECT_EQ(verdict(R"({"a":["x",1]})", schema), "/a/1: must be of type string, not number");
  EXPECT_EQ(verdict(R"({"a":["x","y","z"]})", schema), "/a: more than 2 items");
  EXPECT_EQ(verdict(R"({"a":[],"b/c~":1})", schema), "/b~1c~0: unknown key");
  EXPECT_EQ(verdict("{}", schema), "/: key \"a\" is missing");
}

TEST(JsonSchema, StrictParsing) {
  EXPECT_TRUE(parse_json_strict(R"({"a":{"x":1},"b":{"x":2}})", 100).ok())
      << "equal keys of different objects";
  EXPECT_EQ(parse_json_strict(R"({"a":1,"b":[{"a":1}],"a":2})", 100).error().message,
            "key \"a\" is there twice");
  EXPECT_EQ(parse_json_strict("{}", 1).error().code, Errc::limit);
  std::string deep;
  for (int i = 0; i < 33; ++i) deep += "{\"k\":";
  EXPECT_EQ(parse_json_strict(deep, 1000).error().message, "nested deeper than 32");
  EXPECT_NE(parse_json_strict("{\n  \"a\": tru,\n}", 100).error().message.find("line 2"), std::string::npos);
}

}  // namespace
}  // namespace gradloom
