#include "app/train_steps.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace gradloom {
namespace {

StepResult step_of(std::int64_t step, double loss, std::int64_t step_ns) {
  StepResult result;
  result.step = step;
  result.loss = loss;
  result.step_ns = step_ns;
  return result;
}

TEST(StepHistory, TimesOfUntimedStepsCountWhenThereAreEnough) {
  StepHistory history;
  history.add(step_of(1, 3, 900), true);
  history.add(step_of(2, 2, 100), false);
  EXPECT_EQ(history.median_step_ns(), 500) << "one untimed step is too few";
  history.add(step_of(3, 2, 110), false);
  history.add(step_of(4, 1, 120), false);
  EXPECT_EQ(history.median_step_ns(), 110);
  EXPECT_EQ(history.losses, (std::vector<double>{3, 2, 2, 1}));
  for (std::int64_t step = 5; step < 9; ++step) history.add(step_of(step, 1, 10), false);
  EXPECT_EQ(history.median_step_ns(), 10) << "the first three are left out";
  EXPECT_EQ(history.fastest_ns(), 10);
  EXPECT_EQ(StepHistory().fastest_ns(), 0);
}

TEST(LossScaleWatch, GivesUpWhereTrainingHasFailed) {
  StepResult result = step_of(7, 1, 1);
  LossScaleWatch none;
  EXPECT_TRUE(none.check(result).ok());
  EXPECT_EQ(none.scale(), 0) << "a precision without loss scaling";
  result.loss_scale = 512;
  result.skipped = 1;
  LossScaleWatch watch;
  EXPECT_TRUE(watch.check(result).ok());
  EXPECT_EQ(watch.scale(), 512);
  EXPECT_EQ(watch.skipped(), 1);
  result.loss_scale = kLeastLossScale / 2;
  EXPECT_NE(watch.check(result).error().message.find("the loss scale fell to 0.5 at step 7"),
            std::string::npos);
  result.loss_scale = 2;
  result.skipped = static_cast<double>(kMostSkippedSteps);
  const Status failed = watch.check(result);
  EXPECT_EQ(failed.error().code, Errc::numeric);
  EXPECT_NE(failed.error().message.find("20 steps in a row were skipped at step 7"), std::string::npos);
}

TEST(LossScaleWatch, AScaleMayFallToTheLeastThatWasAskedFor) {
  StepResult result = step_of(7, 1, 1);
  for (const auto& [text, least] :
       {std::pair{"dynamic{min=0.25}", 0.25}, {"dynamic", 1.0}, {"dynamic{min=4}", 1.0}}) {
    LossScaleWatch watch(*parse_loss_scale(text));
    result.loss_scale = least;
    EXPECT_TRUE(watch.check(result).ok()) << text;
    result.loss_scale = least / 2;
    EXPECT_FALSE(watch.check(result).ok()) << text;
  }
}

TEST(CheckLoss, OnlyOfStepsThatCount) {
  EXPECT_TRUE(check_loss(step_of(1, 2, 1)).ok());
  StepResult result = step_of(3, std::numeric_limits<double>::quiet_NaN(), 1);
  EXPECT_EQ(check_loss(result).error().message, "the loss is NaN at step 3");
  EXPECT_EQ(check_loss(result).error().code, Errc::numeric);
  result.skipped = 1;  // loss scaling has left it out
  EXPECT_TRUE(check_loss(result).ok());
  result = step_of(4, std::numeric_limits<double>::infinity(), 1);
  EXPECT_EQ(check_loss(result).error().message, "the loss is infinite at step 4");
}

}  // namespace
}  // namespace gradloom
