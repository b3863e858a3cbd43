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
  f.pass = "fuse-scale-matmul";
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
                         "pass:gelu", "time<1.5ms"}) {
    EXPECT_FALSE(matches(no, matmul())) << no;
  }
}

TEST(Search, NotMeasuredMatchesNoNumber) {
  SearchFields f = matmul();
  f.time_ns = std::nan("");
  EXPECT_FALSE(matches("time>0ns", f));
  EXPECT_FALSE(matches("time<1s", f));
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
