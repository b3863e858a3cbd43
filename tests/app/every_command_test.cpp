// What holds for every command: its output is checked, its errors are JSON too, and Ctrl-C ends it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <set>
#include <sstream>

#include "app/command.h"
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class EveryCommand : public Commands {
 protected:
  void SetUp() override {
    setenv("XDG_DATA_HOME", path("data").c_str(), 1);
    const Outcome o = run({"background", "--", "passes"});
    ASSERT_EQ(o.code, 0) << o.err;
    ASSERT_EQ(run({"background", "--follow", "1"}).code, 0);
  }
  void TearDown() override { unsetenv("XDG_DATA_HOME"); }
  // Arguments with which each command says something and succeeds.
  std::map<std::string, std::vector<std::string>> working() {
    const std::string mlp = model("mlp/model.onnx"), session = path("s.db");
    std::ofstream(path("k.json"))
        << R"([{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":0,"dur":9},)"
           R"({"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":5}])";
    if (!fs::exists(session)) {
      const Outcome made = run(train_mlp({"--steps", "4", "--session", session}));
      EXPECT_EQ(made.code, 0) << made.err;
    }
    return {{"inspect", {mlp, "--dim", "batch=4"}},
            {"plan", {mlp, "--dim", "batch=4", "--loss", "ce:logits,labels"}},
            {"check", {model("mlp")}},
            {"verify", {mlp, "--dim", "batch=4", "--loss", "ce:logits,labels"}},
            {"train", {mlp, "--dim", "batch=4", "--loss", "ce:logits,labels", "--steps", "3"}},
            {"tune",
             {mlp, "--dim", "batch=4", "--loss", "ce:logits,labels", "--seconds", "1", "--session",
              path("t.db")}},
            {"advise", {mlp, "--dim", "batch=4", "--loss", "ce:logits,labels", "--seconds", "0"}},
            {"what-if", {session, "--b", "seed=2", "--forget"}},
            {"trends", {session}},
            {"compare", {"1", "1", "--stored", "--session", session}},
            {"runs", {session}},
            {"background", {}},  // there is one: SetUp
            {"show", {session}},
            {"trace", {session, "-o", path("t.json")}},
            {"report", {session, "-o", path("r.html")}},
            {"export", {session}},
            {"import", {path("k.json"), "--session", path("i.db")}},
            {"update-session", {session}},
            {"recipe", {}},
            {"passes", {}},
            {"ops", {}},
            {"devices", {}},
            {"help", {"plan"}}};
  }
  static std::vector<std::string> with(const std::string& command, std::vector<std::string> args,
                                       bool as_json) {
    args.insert(args.begin(), command);
    if (as_json) args.emplace_back("--json");
    return args;
  }
};

// The window says nothing on stdout, and serve what windows understand; every other command is in the table.
TEST_F(EveryCommand, IsTriedHere) {
  const auto commands = working();
  for (const CommandDef& def : all_commands())
    EXPECT_TRUE(std::string(def.name) == "open" || std::string(def.name) == "serve" ||
                commands.count(def.name) == 1)
        << def.name;
}

TEST_F(EveryCommand, FailsWhereStdoutIsFull) {
  for (const auto& [command, args] : working())
    for (const bool as_json : {false, true}) {
      SCOPED_TRACE(command + (as_json ? " --json" : ""));
      const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
      ASSERT_GE(full, 0);
      const Outcome o = wait(start(with(command, args, as_json), RLIM_INFINITY, full));
      close(full);
      EXPECT_EQ(o.code, 5);
      std::istringstream lines(o.err);  // notes of a busy machine may come before it
      std::string last, line;
      while (std::getline(lines, line))
        if (!line.starts_with("note: ")) last += line;
      EXPECT_EQ(last, "gradloom: cannot write to standard output: No space left on device");
    }
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(wait(start({"--help"}, RLIM_INFINITY, full)).code, 5);
  EXPECT_EQ(wait(start({"show", "--help"}, RLIM_INFINITY, full)).code, 5);
  EXPECT_EQ(wait(start({"--version"}, RLIM_INFINITY, full)).code, 5);
  close(full);
}

TEST_F(EveryCommand, TellsErrorsAsJsonToo) {
  const auto check = [&](const std::vector<std::string>& args, int code) {
    const Outcome o = run(args);
    EXPECT_EQ(o.code, code) << o.err;
    ASSERT_FALSE(o.out.empty());
    const json last = o.lines().back();
    ASSERT_TRUE(last.contains("error")) << last.dump();
    EXPECT_EQ(last["error"]["code"], code);
    EXPECT_EQ("gradloom: " + last["error"]["message"].get<std::string>() + "\n", o.err);
  };
  for (const CommandDef& def : all_commands()) {
    SCOPED_TRACE(def.name);
    check({def.name, "--json", "--no-such-flag"}, 2);
  }
  check({"fly", "--json"}, 2);
  for (const char* command : {"inspect", "plan", "train", "advise"})
    check({command, path("absent.onnx"), "--json"}, 5);
  for (const char* command : {"runs", "show", "export"}) check({command, path("absent.db"), "--json"}, 5);
  check({"trace", path("absent.db"), "-o", path("t.json"), "--json"}, 5);
  check({"passes", "no-such-pass", "--json"}, 2);
  EXPECT_EQ(run({"inspect", path("absent.onnx")}).out, "") << "only where JSON is asked for";
}

// A pipe that is full keeps each command at its first word for as long as the test wants.
TEST_F(EveryCommand, CtrlCEndsIt) {
  for (const auto& [command, args] : working()) {
    SCOPED_TRACE(command);
    int pipe_fds[2];
    ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
    ASSERT_EQ(fcntl(pipe_fds[1], F_SETFL, O_NONBLOCK), 0);
    const std::string filling(4096, 'x');
    while (write(pipe_fds[1], filling.data(), filling.size()) > 0) {
    }
    ASSERT_EQ(fcntl(pipe_fds[1], F_SETFL, 0), 0);
    const pid_t child = start(with(command, args, true), RLIM_INFINITY, pipe_fds[1]);
    close(pipe_fds[1]);
    // It listens for the signal once it blocks it.
    const auto listens = [&] {
      std::ifstream status("/proc/" + std::to_string(child) + "/status");
      for (std::string line; std::getline(status, line);)
        if (line.rfind("SigBlk:", 0) == 0)
          return (std::stoull(line.substr(7), nullptr, 16) & (1ull << (SIGINT - 1))) != 0;
      return false;
    };
    for (int i = 0; i < 6000 && !listens(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    kill(child, SIGINT);
    const Outcome o = wait(child);
    close(pipe_fds[0]);
    EXPECT_EQ(o.code, 130) << o.err;
    EXPECT_LE(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

TEST_F(EveryCommand, AReaderThatGoesAwayEndsItQuietly) {
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
  close(pipe_fds[0]);
  const Outcome o = wait(start({"ops"}, RLIM_INFINITY, pipe_fds[1]));
  close(pipe_fds[1]);
  EXPECT_EQ(o.code, 130);
  EXPECT_EQ(o.err, "");
}

// Without a display nobody sees the message that the window shows:
// what cannot be opened is the command's error.
TEST_F(EveryCommand, OpenWithoutADisplayTellsWhatCannotBeOpened) {
  const auto open_file = [&](const std::string& file) { return run({"open", file, "--headless"}); };
  const Outcome good = open_file(model("mlp/model.onnx"));
  if (good.code == 6) GTEST_SKIP() << good.err;
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(run({"open", model("mlp/model.onnx"), "--headless", "--screenshot", path("p.jpg")}).code, 2);
  for (const char* name : {"absent.db", "absent.json"}) {
    const Outcome o = run({"open", path(name), "--passes", "none", "--headless"});
    EXPECT_EQ(o.code, 2) << "the flag would do nothing: " << o.err;
    EXPECT_NE(o.err.find("--recipe"), std::string::npos) << o.err;
  }
  for (const char* name : {"absent.onnx", "absent.db", "absent.json", "absent"}) {
    const Outcome o = open_file(path(name));
    EXPECT_EQ(o.code, 5) << name << ": " << o.err;
    EXPECT_NE(o.err.find(name), std::string::npos) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
  for (const char* name : {"foreign.onnx", "foreign.db", "foreign.json", "foreign.txt"}) {
    std::ofstream(path(name)) << "neither a model nor anything else of ours, and longer than any header is: "
                              << std::string(200, '.');
    const Outcome o = open_file(path(name));
    EXPECT_EQ(o.code, 3) << name << ": " << o.err;
    EXPECT_NE(o.err.find(name), std::string::npos) << o.err;
  }
}

}  // namespace
}  // namespace gradloom
