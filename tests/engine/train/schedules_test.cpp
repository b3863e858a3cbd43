#include "engine/train/schedules.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

TEST(Schedules, Factors) {
  const auto linear = parse_schedule("linear{warmup=10,total=110}");
  ASSERT_TRUE(linear.ok());
  EXPECT_DOUBLE_EQ(linear->factor(5), 0.5);
  EXPECT_DOUBLE_EQ(linear->factor(10), 1.0);
  EXPECT_DOUBLE_EQ(linear->factor(60), 0.5);
  EXPECT_DOUBLE_EQ(linear->factor(500), 0.0);
  const auto cosine = parse_schedule("cosine{total=100,end=0.1}");
  ASSERT_TRUE(cosine.ok());
  EXPECT_NEAR(cosine->factor(50), 0.55, 1e-12);
  EXPECT_NEAR(cosine->factor(100), 0.1, 1e-12);
  EXPECT_FALSE(parse_schedule("linear{warmup=10,total=5}").ok());
  EXPECT_FALSE(parse_schedule("step").ok());
}

TEST(Schedules, EachRowFallsToItsEnd) {
  for (const ScheduleDef& def : all_schedules()) {
    const auto spec =
        parse_schedule(std::string(def.name) + (def.falls ? "{warmup=4,total=20,end=0.25}" : "{warmup=4}"));
    ASSERT_TRUE(spec.ok()) << def.name;
    EXPECT_DOUBLE_EQ(spec->factor(2), 0.5) << def.name;
    EXPECT_DOUBLE_EQ(spec->factor(4), 1) << def.name;
    EXPECT_DOUBLE_EQ(spec->factor(20), def.falls ? 0.25 : 1) << def.name;
  }
  EXPECT_EQ(parse_schedule("cosin").error().message,
            "unknown schedule 'cosin' (known: constant, linear, cosine); did you mean cosine?");
}

}  // namespace
}  // namespace gradloom
