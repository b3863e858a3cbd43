// Commands in the background: their files, their keeper, and `gradloom background`.
#include "app/background/background.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "app/background/background_output.h"
#include "tests/app/command_fixture.h"
#include "tests/app/kill_by_words.h"

namespace gradloom {
namespace {

using namespace std::chrono_literals;

class Background : public Commands {
 protected:
  void SetUp() override {
    setenv("XDG_DATA_HOME", path("data").c_str(), 1);
    fs::create_directory(path("work"));
  }
  void TearDown() override {
    for (const BackgroundCommand& command : list_background(root())) {
      if (command.running) (void)ask_background(command, BackgroundAsk::kill);
      EXPECT_TRUE(wait_for_end(command.number));
    }
    unsetenv("XDG_DATA_HOME");
  }
  std::string root() const { return path("data/gradloom/background"); }
  BackgroundCommand command(std::int64_t number) const {
    auto found = find_background(root(), number);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found.ok() ? *found : BackgroundCommand();
  }
  bool wait_for_end(std::int64_t number) const {
    for (int i = 0; i < 12000 && command(number).running; ++i) std::this_thread::sleep_for(5ms);
    return !command(number).running;
  }
  bool wait_for_line(std::int64_t number, const std::string& part) const {
    for (int i = 0; i < 12000; ++i) {
      if (read_file(command(number).out()).find(part) != std::string::npos) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  // `gradloom background -- train ..`; its number.
  std::int64_t start_training(std::vector<std::string> more) const {
    std::vector<std::string> words = train_mlp(std::move(more));
    words.insert(words.begin(), {"background", "--json", "--"});
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? o.lines().at(0)["background"].get<std::int64_t>() : 0;
  }
};

TEST_F(Background, ATrainingGoesOnByItselfAndIsFollowed) {
  const std::int64_t number =
      start_training({"--steps", "3", "--session", path("s.db"), "--exclude", "fuse-gelu:/layers.0/Gemm"});
  ASSERT_EQ(number, 1);
  const Outcome followed = run({"background", "--follow", "1", "--json"});
  EXPECT_EQ(followed.code, 0) << followed.err;
  EXPECT_NE(followed.err.find("note: pass fuse-gelu has nothing to switch off"), std::string::npos)
      << followed.err;
  EXPECT_TRUE(followed.lines().back().contains("summary"));
  ASSERT_TRUE(wait_for_end(1));
  const BackgroundCommand ended = command(1);
  ASSERT_TRUE(ended.end);
  EXPECT_EQ(ended.end->exit_code, 0);
  EXPECT_EQ(ended.session(), path("s.db"));
  EXPECT_EQ(run({"runs", path("s.db"), "--json"}).lines().at(0)["steps"], 3);
  const std::vector<json> all = run({"background", "--json"}).lines();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["state"], "ended");
  EXPECT_EQ(all[0]["exit_code"], 0);
  // For people: how far it came, and that it is gone once it is forgotten.
  const std::string text = run({"background", "--follow", "1"}).out;
  EXPECT_NE(text.find("step 3, loss "), std::string::npos) << text;
  EXPECT_EQ(run({"background", "--forget", "1"}).code, 0);
  EXPECT_FALSE(fs::exists(root() + "/1"));
  EXPECT_EQ(run({"background"}).out, "nothing is in the background\n");
}

TEST_F(Background, ItStopsAfterItsStepWhenItIsAsked) {
  const std::int64_t number = start_training({"--steps", "1000000", "--session", path("s.db")});
  ASSERT_TRUE(wait_for_line(number, "\"step\":2"));
  expect_error({"background", "--forget", "1"}, 2, "command 1 is running");
  EXPECT_NE(run({"background"}).out.find("running"), std::string::npos);
  EXPECT_EQ(run({"background", "--stop", "1"}).code, 0);
  ASSERT_TRUE(wait_for_end(number));
  EXPECT_EQ(command(number).end->exit_code, 130);
  const json recorded = run({"runs", path("s.db"), "--json"}).lines().at(0);
  EXPECT_EQ(recorded["status"], "stopped");
  EXPECT_GE(recorded["steps"], 2);
  expect_error({"background", "--stop", "1"}, 2, "command 1 has ended");
  EXPECT_EQ(run({"background", "--follow", "1"}).code, 130) << "as it ended";
}

// Its keeper writes how it ended and is gone a moment later: with a sanitizer, after a second.
TEST_F(Background, ItHasEndedWhileItsKeeperStillGoes) {
  EXPECT_EQ(run({"background", "--", "passes"}).code, 0);
  ASSERT_TRUE(wait_for_end(1));
  const int lock = open((root() + "/1/lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(lock, 0);
  ASSERT_EQ(flock(lock, LOCK_EX), 0) << "instead of the keeper";
  EXPECT_FALSE(command(1).running);
  expect_error({"background", "--stop", "1"}, 2, "command 1 has ended");
  EXPECT_EQ(run({"background", "--forget", "1"}).code, 0);
  EXPECT_FALSE(fs::exists(root() + "/1"));
  close(lock);
}

TEST_F(Background, WhatFollowsItEndsAlone) {
  const std::int64_t number = start_training({"--steps", "1000000", "--session", path("s.db")});
  const pid_t follower = start({"background", "--follow", "1"});
  ASSERT_TRUE(wait_for("stdout", "step 2,"));
  kill(follower, SIGINT);
  const Outcome o = wait(follower);
  EXPECT_EQ(o.code, 130);
  EXPECT_NE(o.err.find("command 1 goes on"), std::string::npos) << o.err;
  EXPECT_TRUE(command(number).running);
  EXPECT_EQ(run({"background", "--kill", "1"}).code, 0);
  ASSERT_TRUE(wait_for_end(number));
  EXPECT_EQ(command(number).end->signal, SIGKILL);
  const Outcome killed = run({"background", "--follow", "1"});
  EXPECT_EQ(killed.code, 70);
  EXPECT_NE(killed.err.find("a signal ended it: 9"), std::string::npos) << killed.err;
}

TEST_F(Background, ErrorsAreToldAtOnceOrKept) {
  expect_error({"background", "--", "tarin", "m.onnx"}, 2, "did you mean train");
  expect_error({"background", "--", "train", "m.onnx", "--stpes", "3"}, 2, "--stpes");
  expect_error({"background", "--", "open", "m.onnx"}, 2, "cannot run in the background");
  expect_error({"background", "--", "train", "--help"}, 2, "only explains");
  expect_error({"background", "--follow", "7"}, 2, "no command 7");
  expect_error({"background", "--stop", "1", "--kill", "1"}, 2, "--kill");
  EXPECT_FALSE(fs::exists(root())) << "nothing was started";
  EXPECT_EQ(run({"background", "--", "inspect", path("absent.onnx")}).code, 0);
  const Outcome o = run({"background", "--follow", "1"});
  EXPECT_EQ(o.code, 5) << "as it ended";
  EXPECT_NE(o.err.find("absent.onnx: cannot open"), std::string::npos) << o.err;
}

// Its keeper is killed, its files are damaged: told as what it is, and nothing else suffers.
TEST_F(Background, WhatIsLeftOfThemIsReadTolerantly) {
  const std::int64_t number = start_training({"--steps", "1000000", "--session", path("lost.db")});
  ASSERT_TRUE(wait_for_line(number, "\"step\":1"));
  EXPECT_EQ(kill_by_words({"background --keeper " + root() + "/1"}), 1);
  ASSERT_TRUE(wait_for_end(number));
  EXPECT_FALSE(command(number).end);
  EXPECT_NE(run({"background"}).out.find("lost"), std::string::npos);
  EXPECT_EQ(kill_by_words({"train", path("lost.db")}), 1);  // it has no keeper any more
  fs::create_directories(root() + "/2");
  std::ofstream(root() + "/2/command.json") << "{\"words\": [3]}";
  fs::create_directories(root() + "/3");
  fs::create_directories(root() + "/other");
  EXPECT_EQ(list_background(root()).size(), 1u);
  EXPECT_EQ(run({"background", "--", "passes"}).code, 0);
  ASSERT_TRUE(wait_for_end(4)) << "the first folder that is free";
  EXPECT_EQ(command(4).end->exit_code, 0);
}

TEST_F(Background, NothingOfItIsLeftWhereItCannotStart) {
  std::ofstream(path("file")) << "x";
  const auto refused = start_in_background(path("file") + "/root", GRADLOOM_COMMAND, {"passes"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::io);
  const auto missing = start_in_background(root(), "/nonexistent/gradloom", {"passes"});
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("/nonexistent/gradloom"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(root()));
}

TEST(BackgroundOutput, SaysHowFar) {
  EXPECT_EQ(progress_text(R"({"step":120,"loss":2.25,"step_ns":5})"), "step 120, loss 2.25");
  EXPECT_EQ(progress_text(R"({"step":3,"loss":"NaN"})"), "step 3");
  EXPECT_EQ(progress_text(R"({"event":"progress","fraction":0.35,"what":"measuring"})"), "35.0 %, measuring");
  EXPECT_EQ(progress_text(R"({"summary":{}})"), "");
  EXPECT_EQ(progress_text("no JSON"), "");
}

TEST(BackgroundCommand, NamesItsSession) {
  BackgroundCommand command;
  command.folder = "/jobs/a";
  command.words = {"train", "m.onnx", "--session", "../s.db"};
  EXPECT_EQ(command.session(), "/jobs/s.db");
  command.words = {"train", "it's.onnx", "--session=/s.db"};
  EXPECT_EQ(command.session(), "/s.db");
  EXPECT_EQ(command.command_line(), "gradloom train 'it'\\''s.onnx' --session=/s.db");
  command.words = {"verify", "m.onnx"};
  EXPECT_EQ(command.session(), "");
}

}  // namespace
}  // namespace gradloom
