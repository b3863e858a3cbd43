// Runs that outlive their window, and windows that find them again.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "app/background/background.h"
#include "sessions/store.h"
#include "tests/app/kill_by_words.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

using namespace std::chrono_literals;

class DesktopBackground : public WindowScript {
 protected:
  std::string root() const { return file("keep/background"); }
  std::string keeping() const { return " --keep " + file("keep") + " "; }
  std::string job() const {
    return GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx --dim batch=8 --loss loss --session " +
           file("s.db");
  }
  std::vector<BackgroundCommand> all() const { return list_background(root()); }
  bool wait_for_end() const {
    for (int i = 0; i < 24000; ++i) {
      bool running = false;
      for (const BackgroundCommand& command : all()) running = running || command.running;
      if (!running) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  void TearDown() override {
    for (const BackgroundCommand& command : all())
      if (command.running) (void)ask_background(command, BackgroundAsk::kill);
    EXPECT_TRUE(wait_for_end());
  }
  std::string status_of_run() const {
    auto store = Store::open(file("s.db"), StoreMode::read);
    EXPECT_TRUE(store.ok());
    const auto runs = store.ok() ? (*store)->list_runs().value() : std::vector<RunSummary>();
    return runs.size() == 1 ? runs[0].status : std::to_string(runs.size()) + " runs";
  }
  // A training that goes on until it is stopped.
  std::string started() const {
    return "size 1600 900\nwait idle\nclick tab.Run\nwait 3\nkey f5\nwait until status.busy \"running, step *\"\n";
  }
};

TEST_F(DesktopBackground, ARunIsKeptStoppedOrTheWindowStays) {
  // The dialog asks; Escape stays, "Keep it running" closes.
  ASSERT_EQ(
      open(
          job() + " --steps 1000000" + keeping(),
          started() +
              "key ctrl+q\nwait until closing.leave\nexpect closing.said \"It can go on*\"\nscreenshot " +
              file("closing.png") +
              "\nkey escape\nwait 3\nabsent closing.leave\nexpect status.busy \"running, step*\"\n"
              "key ctrl+q\nwait until closing.leave\nclick closing.leave\nwait 3\nexpect nothing.comes.here\n"),
      0)
      << error_;
  ASSERT_EQ(all().size(), 1u);
  EXPECT_TRUE(all()[0].running);
  EXPECT_EQ(status_of_run(), "running");
  // Its session shows it as it goes on; the first screen names it.
  ASSERT_EQ(
      open(keeping(), "size 1600 900\nwait until background.1 \"step *\"\nscreenshot " + file("first.png") +
                          "\nclick background.1\nwait until status.busy \"running, step *\"\nkey ctrl+q\n"
                          "wait until closing.stop\nclick closing.stop\nwait 3\nexpect nothing.comes.here\n"),
      0)
      << error_;
  ASSERT_TRUE(wait_for_end());
  EXPECT_EQ(status_of_run(), "stopped");
  // How it ended is told once: as soon as its session and model are read, or they could be left before.
  ASSERT_EQ(open(file("s.db") + keeping(),
                 "size 1600 900\nwait idle\nclick tab.Run\nwait 3\nexpect status.run \"run 1*\"\n"),
            0)
      << error_;
  EXPECT_TRUE(all().empty());
}

// A window that is killed takes nothing with it.
TEST_F(DesktopBackground, ARunOutlivesAWindowThatIsKilled) {
  shell_ = "timeout -s KILL 600 ";
  const std::string script =
      started() + "wait until status.busy \"running, step 2*\"\nkey ctrl+q\nwait 999999\n";
  std::thread killer([&] {
    for (int i = 0; i < 24000 && (all().empty() || !std::filesystem::exists(all()[0].out()) ||
                                  std::filesystem::file_size(all()[0].out()) < 500);
         ++i)
      std::this_thread::sleep_for(5ms);
    EXPECT_GE(kill_by_words({"--headless --script " + file("script")}), 1);
  });
  EXPECT_NE(open(job() + " --steps 1000000" + keeping(), script), 0);
  killer.join();
  ASSERT_EQ(all().size(), 1u);
  EXPECT_TRUE(all()[0].running);
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(all()[0].running);
}

}  // namespace
}  // namespace gradloom
