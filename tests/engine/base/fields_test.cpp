#include "engine/base/fields.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

struct Options {
  bool keep = true;
  std::int64_t max_nodes = 16;
  double rate = 0.1;
  std::string mode = "fast";
  void fields(FieldVisitor& v) {
    v.field("keep", keep, {.help = "keep it"});
    v.field("max_nodes", max_nodes, {.help = "largest region", .unit = "nodes", .min = 2, .max = 64});
    v.field("rate", rate, {});
    v.field("mode", mode, {.choices = {"fast", "small"}});
  }
};

TEST(Fields, SetAndPrintRoundTrip) {
  Options o;
  const Fields fields = [&](FieldVisitor& v) { o.fields(v); };
  ASSERT_TRUE(
      set_fields(fields,
                 {{"keep", "false"}, {"max_nodes", "32"}, {"rate", "0.30000000000000004"}, {"mode", "small"}},
                 "pass x")
          .ok());
  EXPECT_EQ(print_fields(fields), "keep=false,max_nodes=32,rate=0.30000000000000004,mode=small");
  Options again;
  const Fields other = [&](FieldVisitor& v) { again.fields(v); };
  const auto named = parse_named_options("x{" + print_fields(fields) + "}");
  ASSERT_TRUE(named.ok());
  ASSERT_TRUE(set_fields(other, named->values, "x").ok());
  EXPECT_EQ(print_fields(other), print_fields(fields));
}

TEST(Fields, ErrorsNameOwnerAndOption) {
  Options o;
  const Fields fields = [&](FieldVisitor& v) { o.fields(v); };
  const auto message = [&](const char* name, const char* value) {
    const Status s = set_fields(fields, {{name, value}}, "pass fuse");
    EXPECT_FALSE(s.ok());
    EXPECT_EQ(s.error().code, Errc::usage);
    return s.error().message;
  };
  EXPECT_NE(message("max", "3").find("pass fuse has no option 'max' (known: keep, max_nodes, rate, mode)"),
            std::string::npos);
  EXPECT_NE(message("max_nodes", "1").find("between 2 and 64"), std::string::npos);
  EXPECT_NE(message("max_nodes", "3.5").find("integer"), std::string::npos);
  EXPECT_NE(message("rate", "nan").find("number"), std::string::npos);
  EXPECT_NE(message("keep", "yes").find("true or false"), std::string::npos);
  EXPECT_NE(message("mode", "slow").find("fast small"), std::string::npos);
  EXPECT_EQ(o.max_nodes, 16);
}

TEST(Fields, SplitsOnlyAtTopLevel) {
  EXPECT_EQ(split_top_level("a{x=1,y=2},b"), (std::vector<std::string>{"a{x=1,y=2}", "b"}));
  EXPECT_EQ(parse_named_options("a{x=1").error().code, Errc::usage);
  EXPECT_EQ(parse_named_options("{x=1}").error().code, Errc::usage);
  EXPECT_EQ(parse_named_options("a{x}").error().code, Errc::usage);
  EXPECT_TRUE(parse_named_options(" a { } ")->values.empty());
}

}  // namespace
}  // namespace gradloom
