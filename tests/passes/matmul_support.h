// What the tests of the matmul fusions share.
#pragma once

#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom::test {

using Perm = std::vector<std::int64_t>;
using Counts = std::map<std::string, int>;
constexpr DType f64 = DType::f64;
constexpr double kRounding = 1e-13;

struct MatMulTest : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId transposed(ValueId v, Perm perm) { return b.op("Transpose", {v}, {{"perm", std::move(perm)}}); }
  void expect_rejected(const char* pass, const std::string& reason, int matched = 0) {
    const PassReport report = run_and_compare(graph, pass, kRounding);
    EXPECT_EQ(report.matched, matched);
    EXPECT_NE(why_nots(report).find(reason), std::string::npos) << why_nots(report);
  }
  void expect_matched(const char* pass, const Counts& counts) {
    const PassReport report = run_and_compare(graph, pass, kRounding);
    EXPECT_GE(report.matched, 1) << why_nots(report);
    EXPECT_EQ(op_counts(graph), counts);
  }
};

}  // namespace gradloom::test
