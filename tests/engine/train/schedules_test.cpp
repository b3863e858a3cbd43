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
  EXPECT_FALSE(parse_schedule("steps").ok());
}

TEST(Schedules, EachHasAWarmUp) {
  for (const ScheduleDef& def : all_schedules()) {
    std::string options = "warmup=4";
    for (const ScheduleOption& option : def.options) {
      if (option.name == std::string("total")) options += ",total=20";
      if (option.name == std::string("period")) options += ",period=20";
    }
    const auto spec = parse_schedule(std::string(def.name) + "{" + options + "}");
    ASSERT_TRUE(spec.ok()) << def.name;
    if (!def.own_warmup) {
      EXPECT_DOUBLE_EQ(spec->factor(2), 0.5) << def.name;
    }
    EXPECT_DOUBLE_EQ(spec->factor(4), 1) << def.name;
  }
}

TEST(Schedules, ErrorsSayWhatContradicts) {
  EXPECT_EQ(parse_schedule("cosin").error().message,
            "unknown schedule 'cosin' (known: constant, linear, cosine, polynomial, step, cosine-restarts, "
            "one-cycle); did you mean cosine?");
  for (const char* name : {"linear", "cosine", "polynomial", "one-cycle"})
    EXPECT_EQ(parse_schedule(std::string(name) + "{warmup=10,total=10}").error().message,
              std::string("schedule ") + name + ": total must be larger than warmup");
  EXPECT_EQ(parse_schedule("cosine-restarts").error().message,
            "schedule cosine-restarts: period must be at least 1");
  EXPECT_EQ(parse_schedule("one-cycle{total=10,pct_start=0.6,three_phase=true}").error().message,
            "schedule one-cycle: three_phase needs a rise of less than half of total");
  EXPECT_FALSE(parse_schedule("step{step_size=0}").ok());
  EXPECT_FALSE(parse_schedule("linear{power=2}").ok());
  EXPECT_FALSE(parse_schedule("one-cycle{total=10,div_factor=0}").ok());
}

struct TorchCase {
  const char* schedule;
  std::vector<double> factors;  // of steps 1, 2, ..
};

// Rates by torch.optim.lr_scheduler (1.13) at lr 1. With a warm-up: SequentialLR([LinearLR(start_factor=1 / 4,
// total_iters=3), ..], milestones=[4]); of OneCycleLR: pct_start=warmup / total.
std::vector<TorchCase> torch_cases() {
  return {
      {"polynomial{total=10,power=2}", {1.0, 0.81, 0.64, 0.49, 0.36, 0.25, 0.16, 0.09, 0.04, 0.01, 0.0, 0.0}},
      {"polynomial{warmup=4,total=14,power=0.5}",
       {0.25, 0.5, 0.75, 1.0, 1.0, 0.9486832980505138, 0.8944271909999159, 0.8366600265340756,
        0.7745966692414834, 0.7071067811865476, 0.6324555320336759, 0.5477225575051662, 0.4472135954999579,
        0.31622776601683794, 0.0}},
      {"step{step_size=3,gamma=0.5}", {1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125}},
      {"step{warmup=4,step_size=3,gamma=0.5}",
       {0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25}},
      {"cosine-restarts{period=4,end=0.1}",
       {1.0, 0.8681980515339464, 0.55, 0.23180194846605365, 1.0, 0.8681980515339464, 0.55,
        0.23180194846605365, 1.0, 0.8681980515339464}},
      {"cosine-restarts{period=3,period_factor=2,end=0.1}",
       {1.0,
        0.775,
        0.325,
        1.0,
        0.9397114317029974,
        0.775,
        0.55,
        0.325,
        0.16028856829700258,
        1.0,
        0.9846666218300807,
        0.9397114317029974,
        0.8681980515339464,
        0.775,
        0.6664685702961344,
        0.55,
        0.4335314297038657,
        0.325,
        0.23180194846605365,
        0.16028856829700258,
        0.11533337816991932,
        1.0}},
      {"cosine-restarts{warmup=4,period=3,period_factor=2}",
       {0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.25, 1.0, 0.9330127018922194, 0.75, 0.5, 0.25, 0.06698729810778065,
        1.0, 0.9829629131445341, 0.9330127018922194}},
      {"one-cycle{total=12}",
       {0.04, 0.3497896542195831, 0.8792851591221287, 0.9944154354509117, 0.9330129698414117,
        0.811745653949763, 0.6473789976951033, 0.46263710266697505, 0.28306099820869923, 0.1334775301888306,
        0.03456698742539522}},
      {"one-cycle{warmup=3,total=12}",
       {0.04, 0.52, 1.0, 0.9698464310077126, 0.8830226894706027, 0.750001, 0.58682574153711,
        0.4131782584628902, 0.250003, 0.1169813105293973, 0.030157568992287415}},
      {"one-cycle{total=10,pct_start=0.4,div_factor=5,final_div_factor=10,linear=true}",
       {0.2, 0.4666666666666667, 0.7333333333333334, 1.0, 0.8366666666666667, 0.6733333333333333, 0.51,
        0.3466666666666667, 0.18333333333333335}},
      {"one-cycle{total=12,three_phase=true}",
       {0.04, 0.3497896542195831, 0.8792851591221287, 0.9450188923135407, 0.4621423934774446,
        0.05394792763549498, 0.0381516932425798, 0.031224618933116923, 0.02108466989389118,
        0.010634768002885594, 0.0028665701910005545}},
  };
}

TEST(Schedules, EqualPyTorchs) {
  for (const TorchCase& c : torch_cases()) {
    const auto spec = parse_schedule(c.schedule);
    ASSERT_TRUE(spec.ok()) << c.schedule << ": " << spec.error().message;
    for (std::size_t i = 0; i < c.factors.size(); ++i)
      EXPECT_NEAR(spec->factor(static_cast<std::int64_t>(i) + 1), c.factors[i], 1e-12)
          << c.schedule << ", step " << i + 1;
  }
}

// The last step of a cycle, and what PyTorch refuses: the steps after it.
TEST(Schedules, OneCycleStaysAtItsEnd) {
  const auto spec = parse_schedule("one-cycle{total=12}");
  ASSERT_TRUE(spec.ok());
  for (const std::int64_t step : {12, 13, 1000}) EXPECT_NEAR(spec->factor(step), 0.04 / 1e4, 1e-15) << step;
}

// Periods that grow past what integers hold.
TEST(Schedules, RestartsOfAVeryLongTraining) {
  const auto spec = parse_schedule("cosine-restarts{period=1,period_factor=1000000}");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->factor(1), 1);
  EXPECT_NEAR(spec->factor(std::int64_t{1} << 62), 1, 1e-2);
  const auto equal = parse_schedule("cosine-restarts{period=2}");
  ASSERT_TRUE(equal.ok());
  EXPECT_NEAR(equal->factor(1000000000000), 0.5, 1e-12);
}

}  // namespace
}  // namespace gradloom
