#include "engine/train/early_stop.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gradloom {
namespace {

TEST(EarlyStop, EndsAfterSoManyThatAreNoBetter) {
  EarlyStop stop(*parse_early_stop("patience=2,min_delta=0.1"));
  EXPECT_FALSE(stop.due());
  EXPECT_EQ(stop.best_step(), -1);
  EXPECT_TRUE(stop.add(10, 3));
  EXPECT_FALSE(stop.add(20, 2.95)) << "too small a gain";
  EXPECT_TRUE(stop.add(30, 2.8)) << "measured against the best, not the last";
  EXPECT_FALSE(stop.due());
  EXPECT_FALSE(stop.add(40, std::nan("")));
  EXPECT_FALSE(stop.due());
  EXPECT_FALSE(stop.add(50, 2.8));
  EXPECT_TRUE(stop.due());
  EXPECT_EQ(stop.best_step(), 30);
  EXPECT_EQ(stop.best_loss(), 2.8);
  EXPECT_EQ(stop.last_step(), 50);

  EarlyStop again(*parse_early_stop("patience=3"));
  again.restore(stop.state());
  EXPECT_EQ(again.state(), stop.state());
  EXPECT_FALSE(again.due()) << "more patience";
  EXPECT_FALSE(again.add(60, 2.9));
  EXPECT_TRUE(again.due());
}

TEST(EarlyStop, LossesThatAreNotFiniteAreNeverTheBest) {
  EarlyStop stop(*parse_early_stop("patience=2"));
  EXPECT_FALSE(stop.add(1, INFINITY));
  EXPECT_EQ(stop.best_step(), -1);
  EXPECT_TRUE(stop.add(2, 7));
}

TEST(EarlyStop, Texts) {
  EXPECT_EQ(parse_early_stop("")->patience, 0);
  EXPECT_EQ(parse_early_stop("patience=5")->patience, 5);
  EXPECT_EQ(parse_early_stop("patience=5,min_delta=0.5")->min_delta, 0.5);
  for (const char* bad :
       {"min_delta=1", "patience=0", "patience=x", "patients=3", "patience=2,min_delta=-1"}) {
    const auto spec = parse_early_stop(bad);
    ASSERT_FALSE(spec.ok()) << bad;
    EXPECT_EQ(spec.error().code, Errc::usage);
  }
  EXPECT_TRUE(parse_early_stop(early_stop_syntax()).ok());
}

}  // namespace
}  // namespace gradloom
