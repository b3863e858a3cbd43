// What the node tab tells while no node is selected, as a user sees and presses it.
#include <filesystem>

#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopStepCard : public WindowScript {};

TEST_F(DesktopStepCard, TellsWhereTheTimeOfARunGoes) {
  train(bert() + "--steps 6 --profile all", file("s.db"));
  const std::string picture = file("card.png");
  EXPECT_EQ(open(file("s.db") + " --size 1600x900",
                 "wait idle\nexpect step-card.kernels\nexpect step-card.phase.forward\n"
                 "expect step-card.phase.backward\nexpect step-card.phase.optimizer\n"
                 "expect step-card.times \"measured in run 1\"\nexpect step-card.op.FusedMatMul \"* %\"\n"
                 "screenshot " +
                     picture +
                     "\n"
                     // An operator lists its kernels.
                     "click step-card.op.FusedMatMul\nexpect tab.Kernels on\n"
                     "expect kernels.search \"op~?^FusedMatMul$?\"\n"
                     // A kernel is selected: the tab is the node's, until nothing is.
                     "click step-card.longest.1\nexpect node-panel.name\nabsent step-card.kernels\n"
                     "click tab.Graph\nhover graph\nkey escape\nexpect step-card.kernels\n"
                     "click step-card.advice\nexpect tab.Advice on\nabsent toast.0\n"),
            0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture), 20'000u);
}

TEST_F(DesktopStepCard, BeforeTheFirstRunItTellsOfThePlan) {
  EXPECT_EQ(
      open(
          bert() + "--size 1280x720",
          "wait idle\nexpect step-card.kernels\nabsent step-card.times\nexpect step-card.op.FusedMatMul \"* MiB\"\n"
          "absent step-card.longest.1\n"),
      0)
      << error_;
}

TEST_F(DesktopStepCard, WithNothingOpenThereIsNone) {
  EXPECT_EQ(open("--size 1280x720", "wait idle\nabsent step-card.kernels\n"), 0) << error_;
}

}  // namespace
}  // namespace gradloom
