// The memory tab: what could leave the peak, and the memory budget as a choice on the curve of what recompute can do.
#include <filesystem>

#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopMemory : public WindowScript {
 protected:
  int open(const std::string& script) {
    return WindowScript::open(
        GRADLOOM_SOURCE_DIR
        "/tests/models/gpt-char/model.onnx --dim batch=8 --loss loss --pieces off --size 1600x1000",
        "wait idle\nclick tab.Memory\nwait idle\n" + script);
  }
};

TEST_F(DesktopMemory, WhatCouldLeaveThePeakIsMadeAgain) {
  const std::string picture = file("findings.png");
  EXPECT_EQ(
      open("click \"memory.part/Could leave\"\nwait 3\n"
           "expect memory.findings./blocks.0/fc/Add_output_0 \"kept over * for one reader*\"\nscreenshot " +
           picture +
           "\nexpect status.kernels \"166 kernels*\"\n"
           "click memory.again./blocks.0/fc/Add\nwait idle\nexpect status.kernels \"167 kernels*\"\n"
           "absent memory.findings./blocks.0/fc/Add_output_0\n"
           "key ctrl+z\nwait idle\nexpect status.kernels \"166 kernels*\"\n"),
      0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture), 20'000u);
}

TEST_F(DesktopMemory, ABudgetIsChosenOnTheCurve) {
  const std::string picture = file("budget.png");
  EXPECT_EQ(
      open(
          "click memory.part/Budget\nwait until budget.now\nexpect budget.now \"*nothing runs again\"\n"
          "click budget.less\nwait idle\nwait until budget.now\nexpect budget.now *again*\n"
          "click budget.less\nwait idle\nwait until budget.now\nexpect budget.now *again*\nscreenshot " +
          picture +
          "\nclick budget.point.1\nwait idle\nwait until budget.now\nexpect budget.now \"*nothing runs again\"\n"
          "key ctrl+z\nwait idle\nexpect budget.now *again*\n"),
      0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture), 20'000u);
}

}  // namespace
}  // namespace gradloom
