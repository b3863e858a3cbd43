#include "viz/model/search.h"

#include <gtest/gtest.h>

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
