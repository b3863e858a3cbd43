#include "app/nccl_times.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gradloom {
namespace {

constexpr Link kNvlink{360, 2000}, kNetwork{50, 5000};

// Eight GPUs of one machine: 2 * 7 / 8 * 1e9 / 360 and 14 steps of 2 us.
TEST(NcclTimes, AreTheFormulaInOneMachine) {
  EXPECT_NEAR(nccl_ns(NcclCall::all_reduce, 1e9, 8, 8, kNvlink, kNetwork), 2000 + 4861111.1 + 28000, 1);
  EXPECT_NEAR(nccl_ns(NcclCall::one_way, 1e9, 8, 8, kNvlink, kNetwork), 2000 + 2430555.6 + 14000, 1);
  EXPECT_NEAR(nccl_ns(NcclCall::all_reduce, 1e9, 2, 8, kNvlink, kNetwork), 2000 + 1e9 / 360 + 4000, 1)
      << "what is not there takes no part";
}

// 64 in eight machines: a ring has 2 * 56 steps inside and 2 * 7 between, trees 2 * 7 and 2 * 3; all at the network's rate.
TEST(NcclTimes, AreTheFormulaInEightMachines) {
  EXPECT_NEAR(nccl_ns(NcclCall::all_reduce, 1e9, 64, 8, kNvlink, kNetwork), 2000 + 39375000 + 224000 + 70000,
              1);
  EXPECT_NEAR(nccl_ns(NcclCall::all_reduce, 8192, 64, 8, kNvlink, kNetwork), 2000 + 364.1 + 28000 + 30000, 1)
      << "trees, as it is latency";
  EXPECT_NEAR(nccl_ns(NcclCall::one_way, 1e9, 64, 8, kNvlink, kNetwork), 2000 + 19687500 + 112000 + 35000, 1);
  // One to a machine: nothing is inside.
  EXPECT_NEAR(nccl_ns(NcclCall::all_reduce, 1e9, 4, 1, {1e-3, 1e9}, kNetwork), 2000 + 3e7 + 30000, 1);
}

TEST(NcclTimes, GrowWithGpusAndBytesAndFallWithTheLink) {
  for (const NcclCall call : {NcclCall::all_reduce, NcclCall::one_way})
    for (const double bytes : {1e3, 1e5, 1e7, 1e9}) {
      EXPECT_EQ(nccl_ns(call, bytes, 1, 8, kNvlink, kNetwork), 0);
      for (std::int64_t n = 2; n <= 1024; n *= 2) {
        const double ns = nccl_ns(call, bytes, n, 8, kNvlink, kNetwork);
        EXPECT_LT(ns, nccl_ns(call, bytes, 2 * n, 8, kNvlink, kNetwork)) << n << " " << bytes;
        EXPECT_LT(ns, nccl_ns(call, 2 * bytes, n, 8, kNvlink, kNetwork)) << n << " " << bytes;
        EXPECT_LE(nccl_ns(call, bytes, n, 8, kNvlink, {100, 5000}), ns) << n << " " << bytes;
        EXPECT_LE(nccl_ns(call, bytes, n, 8, kNvlink, {50, 2500}), ns) << n << " " << bytes;
      }
    }
  // Nothing is added apart: of many bytes all is the link's.
  EXPECT_NEAR(nccl_ns(NcclCall::all_reduce, 1e12, 1024, 8, kNvlink, kNetwork), 2 * 1023 / 1024.0 * 1e12 / 50,
              1e7);
}

}  // namespace
}  // namespace gradloom
