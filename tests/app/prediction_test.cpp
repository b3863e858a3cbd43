// What another type is predicted to gain.
#include "app/advice/prediction.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

KernelInfo launch(const std::string& node, const std::string& op, const std::string& kernel,
                  const std::string& types, double flops, double bytes) {
  KernelInfo info;
  info.node = node;
  info.op = op;
  info.kernel = kernel;
  info.types = types;
  info.flops = flops;
  info.bytes_read = bytes / 2;
  info.bytes_written = bytes / 2;
  return info;
}

// A product of 1 ms and an addition of 100 us.
const std::vector<KernelInfo> kJob = {launch("m", "MatMul", "matmul f32", "f32[64, 64]", 1e6, 4e4),
                                      launch("a", "Add", "elementwise Add", "f32[64, 64]", 4096, 4e4)};
const std::vector<KernelInfo> kHalf = {launch("m", "MatMul", "matmul bf16", "bf16[64, 64]", 1e6, 2e4),
                                       launch("a", "Add", "elementwise Add", "bf16[64, 64]", 4096, 2e4)};

Predictor predictor(const TypeTimes& types, bool measured) {
  Predictor p;
  p.add(kJob, {{0, 0, 0, 1'000'000}, {1, 0, 0, 100'000}});
  p.set_types(types, measured);
  p.set_job(kJob, 1'100'000);
  return p;
}

TEST(Prediction, AnotherTypeIsWhatItWasMeasuredToBe) {
  const TypeTimes types({{"MatMul", "f32", 1e6, 10},
                         {"MatMul", "bf16", 1e6, 4},
                         {"Add", "f32", 4e4, 10},
                         {"Add", "bf16", 4e4, 15}});
  const Predictor p = predictor(types, true);
  EXPECT_NEAR(p.ns(kHalf[0]), 400'000, 1e-6);
  EXPECT_NEAR(p.ns(kHalf[1]), 150'000, 1e-6) << "half of its bytes, and slower all the same";
  const Gain gain = p.gain(kHalf, 1);
  EXPECT_NEAR(gain.ns, 550'000, 1);
  EXPECT_NEAR(gain.low_ns, 550'000 - 0.25 * 550'000, 1);
  EXPECT_NEAR(gain.high_ns, 550'000 + 0.2 * 550'000, 1);
  // A usual processor says less of this one.
  const Gain usual = predictor(types, false).gain(kHalf, 1);
  EXPECT_NEAR(usual.ns, gain.ns, 1);
  EXPECT_LT(usual.low_ns, gain.low_ns);
  EXPECT_GT(usual.high_ns, gain.high_ns);
}

TEST(Prediction, AnotherSizeInAnotherTypeIsBoth) {
  const TypeTimes types({{"MatMul", "f32", 1e6, 10}, {"MatMul", "bf16", 1e6, 4}});
  const Predictor p = predictor(types, true);
  const KernelInfo twice = launch("m", "MatMul", "matmul bf16", "bf16[128, 64]", 2e6, 3e4);
  const KernelInfo twice_f32 = launch("m", "MatMul", "matmul f32", "f32[128, 64]", 2e6, 6e4);
  EXPECT_GT(p.ns(twice_f32), 1'900'000);
  EXPECT_NEAR(p.ns(twice), 0.4 * p.ns(twice_f32), 1);
}

TEST(Prediction, WithoutThemATypeOfHalfTheWidthIsHalf) {
  const Predictor p = predictor({}, false);
  EXPECT_NEAR(p.ns(kHalf[0]), 500'000, 25'000);
  EXPECT_NEAR(p.ns(kHalf[1]), 50'000, 20'000);
}

}  // namespace
}  // namespace gradloom
