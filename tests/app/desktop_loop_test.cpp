// A recorded loop in the window: its shares, and what its thread did above the kernels.
#include "tests/app/window_script.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom {
namespace {

class DesktopLoop : public WindowScript {};

TEST_F(DesktopLoop, ItsTimelineComesToTheFrontAndSaysWhatTheEngineHas) {
  test::write_tiny_loop(file("s.db"), 9, true);
  EXPECT_EQ(open(file("s.db"),
                 "wait idle\n"
                 "expect loop.verdict \"the engine computes 40.0 %*1.25x\"\n"
                 "expect loop.engine \"40.0 %\"\n"
                 "expect loop.data \"10.0 %\"\n"
                 "expect loop.step \"25.0 %\"\n"
                 "expect timeline.canvas 8\n"
                 "expect bar.set\n"
                 "expect \"bar.net forward\"\n"
                 "expect bar.SGD\n"
                 "expect bar.net#2/fc\n"
                 "hover bar.SGD\n"
                 "wait 2\n"
                 "hover loop.data\n"
                 "wait 2\n"
                 "click tab.Kernels\n"
                 "wait idle\n"
                 "click tab.Timeline\n"
                 "expect loop.verdict\n"),
            0)
      << error_;
}

TEST_F(DesktopLoop, WithoutTimedKernelsTheStepsAreThere) {
  test::write_tiny_loop(file("s.db"), 5, false);
  EXPECT_EQ(open(file("s.db"),
                 "wait idle\n"
                 "expect timeline.canvas 5\n"
                 "expect bar.set\n"
                 "expect loop.verdict \"the engine computes 40.0 %*\"\n"),
            0)
      << error_;
}

}  // namespace
}  // namespace gradloom
