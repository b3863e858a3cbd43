#include "viz/model/search.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace gradloom {
namespace {

bool matches(const char* text, const SearchFields& fields) {
  const auto query = Query::parse(text);
  EXPECT_TRUE(query.ok()) << text;
  return query.ok() && query->matches(fields);
}

SearchFields matmul() {
  SearchFields f;
  f.name = "/layers.0/attn/MatMul_3";
  f.op = "FusedMatMul";
  f.phase = "backward";
  f.scope = "layers.0/attn";
  f.passes = "cse,fuse-scale-matmul";
  f.kernel = "matmul brg:avx512_core";
  f.type = "f32 8x64x128";
  f.time_ns = 1.5e6;
  f.bytes = 3 * 1024 * 1024;
  f.flops = 2e9;
  return f;
}

TEST(Search, TermsAreJoinedAndNegated) {
  for (const char* yes : {"",
                          "attn",
                          "ATTN matmul",
                          "op:fused",
                          "op:*MatMul",
                          "phase:bwd",
                          "phase:backward",
                          "scope:layers.0",
                          "pass:fuse-*",
                          "pass:cse",
                          "pass:c?e",
                          "kernel:avx512",
                          "type:f32",
                          "time>1ms",
                          "time>=1.5ms",
                          "time<1s",
                          "bytes>2MiB",
                          "flops>1G",
                          "-op:Conv",
                          "name:MatMul_3 -scope:embed",
                          "\"layers.0/attn\"",
                          "kernel:\"matmul brg\""}) {
    EXPECT_TRUE(matches(yes, matmul())) << yes;
  }
  for (const char* no : {"embed", "op:MatMul", "phase:fwd", "time>2ms", "bytes<1k", "-attn", "attn embed",
                         "pass:gelu", "pass:cse*matmul", "time<1.5ms"}) {
    EXPECT_FALSE(matches(no, matmul())) << no;
  }
}

TEST(Search, AlternativesGroupsAndRegexes) {
  for (const char* yes :
       {"embed or attn", "attn or embed", "op:Conv or op:Fused phase:bwd", "op:Conv phase:bwd or op:Fused",
        "attn (op:Conv or op:Fused)", "(op:Conv OR time>1ms) and attn", "-(op:Conv or time>2ms)",
        "-(op:Conv) -(-op:Fused)", "((attn))", "(embed or (attn and (time<1ms or bytes>2MiB)))",
        "name~^/layers\\.[0-3]/.*_3$", "~\"MatMul_(3|4)\"", "op~^fused", "-name~embed",
        "pass~^fuse-.*matmul$", "(name~a(t+)n or embed)", "scope:\"layers.0/attn\" | embed",
        "\"or\" or attn"})
    EXPECT_TRUE(matches(yes, matmul())) << yes;
  for (const char* no :
       {"embed or op:Conv", "attn (op:Conv or embed)", "-(attn or embed)", "op:Conv or op:Fused embed",
        "name~^MatMul", "op~^MatMul", "-~attn", "\"or\"", "(attn) (embed)", "phase~bwd"})
    EXPECT_FALSE(matches(no, matmul())) << no;
}

TEST(Search, WrongAlternativesGroupsAndRegexesSayWhy) {
  const std::pair<const char*, const char*> cases[] = {
      {"or attn", "a term is missing before or"},
      {"attn or", "a term is missing behind or"},
      {"attn or or embed", "a term is missing before or"},
      {"()", "a term is missing between parentheses"},
      {"(attn or )", "a term is missing behind or"},
      {"(attn", "a parenthesis is not closed"},
      {"(attn))", "a parenthesis is closed that none opened"},
      {"~[a", "'[a' is no regex: "},
      {"name~a{1,30000}", "counted repetition is not taken"},
      {"~(a)\\1", "back references are not taken"},
      {"~a++++++++++++++++++++++++++++++++++++++++", "more than 6 +"},
      {"~(((((((((a+)+)+)+)+)+)+)+)+)", "more than 6 +"},
      {"~", "'~' needs a text"},
      {"time~3", "time, bytes and flops take < or >"}};
  for (const auto& [text, why] : cases) {
    const auto query = Query::parse(text);
    ASSERT_FALSE(query.ok()) << text;
    EXPECT_NE(query.error().message.find(why), std::string::npos) << text << ": " << query.error().message;
  }
  const std::string deep = std::string(300, '(') + "a" + std::string(300, ')');
  EXPECT_EQ(Query::parse(deep).error().message, "too many parentheses");
  EXPECT_FALSE(Query::parse("~" + std::string(300, 'a')).ok());
  std::string many;
  for (int i = 0; i < 100; ++i) many += "(a) ";
  EXPECT_EQ(Query::parse(many).error().message, "too many parentheses");
  // In brackets they are characters.
  EXPECT_TRUE(Query::parse("~[]{+\\1]x").ok());
}

// Every search of the language against a reading of its own: terms a, b, c over all eight texts that hold some of them.
TEST(Search, AgreesWithALogicOfItsOwn) {
  const std::tuple<const char*, bool (*)(bool, bool, bool)> cases[] = {
      {"a b or c", [](bool a, bool b, bool c) { return (a && b) || c; }},
      {"a (b or c)", [](bool a, bool b, bool c) { return a && (b || c); }},
      {"a or b c", [](bool a, bool b, bool c) { return a || (b && c); }},
      {"-a or -(b c)", [](bool a, bool b, bool c) { return !a || !(b && c); }},
      {"-(a or b) or c a", [](bool a, bool b, bool c) { return !(a || b) || (c && a); }},
      {"(a or b) (b or c) (a or c)", [](bool a, bool b, bool c) { return int{a} + b + c >= 2; }},
      {"((a or b) -c or (c -(a or b)))", [](bool a, bool b, bool c) { return (a || b) != c; }}};
  for (const auto& [text, logic] : cases)
    for (int bits = 0; bits < 8; ++bits) {
      const bool a = (bits & 1) != 0, b = (bits & 2) != 0, c = (bits & 4) != 0;
      const std::string name = std::string(a ? "a" : "") + (b ? "b" : "") + (c ? "c" : "");
      SearchFields fields;
      fields.name = name;
      EXPECT_EQ(matches(text, fields), logic(a, b, c)) << text << " on '" << name << "'";
    }
}

TEST(Search, FiltersAreKeptByName) {
  std::vector<SavedFilter> filters;
  EXPECT_EQ(keep_filter(filters, "slow", "time>1ms"), "");
  EXPECT_EQ(keep_filter(filters, "", "op:Conv"), "");
  EXPECT_EQ(keep_filter(filters, "slow", "time>2ms"), "");
  EXPECT_EQ(filters, (std::vector<SavedFilter>{{"slow", "time>2ms"}, {"op:Conv", "op:Conv"}}));
  EXPECT_EQ(keep_filter(filters, "x", "  "), "There is no search to keep");
  EXPECT_NE(keep_filter(filters, "x", "tme>1ms").find("unknown key"), std::string::npos);
  for (int i = 0; filters.size() < kMostFilters; ++i) keep_filter(filters, std::to_string(i), "a");
  EXPECT_EQ(keep_filter(filters, "one more", "a"), "There are too many filters");
}

TEST(Search, NotMeasuredMatchesNoNumber) {
  SearchFields f = matmul();
  f.time_ns = std::nan("");
  EXPECT_FALSE(matches("time>0ns", f));
  EXPECT_FALSE(matches("time<1s", f));
}

TEST(Search, TheExampleFindsSomething) {
  SearchFields add;
  add.name = "add", add.op = "Add", add.phase = "forward", add.bytes = 100;
  SearchFields large = add;
  large.name = "mul", large.op = "Mul", large.phase = "backward", large.bytes = 5 << 20;
  std::vector<SearchFields> rows{add, large};
  EXPECT_EQ(example_query(rows), "op:Mul phase:bwd bytes>5000KiB");
  rows[0].time_ns = 1e6;  // measured times decide what costs most
  rows[1].time_ns = 2e3;
  EXPECT_EQ(example_query(rows), "op:Add phase:fwd time>500us");
  for (const SearchFields& f : {rows[0]}) EXPECT_TRUE(matches(example_query(rows).c_str(), f));
  rows = {add};
  rows[0].bytes = std::nan("");
  EXPECT_EQ(example_query(rows), "op:Add phase:fwd");
  EXPECT_EQ(example_query({}), "");
}

TEST(Search, ErrorsSayWhatIsWrong) {
  for (const char* bad :
       {"colour:red", "time:1ms", "op>3", "time>fast", "time>1parsec", "op:", "\"open", "bytes>"}) {
    const auto query = Query::parse(bad);
    ASSERT_FALSE(query.ok()) << bad;
    EXPECT_EQ(query.error().code, Errc::usage);
    EXPECT_FALSE(query.error().message.empty());
  }
}

}  // namespace
}  // namespace gradloom
