// Sessions of other machines: addresses, what the far end says and the near end keeps, and a window over an ssh that is a script.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "app/remote/address.h"
#include "app/remote/mirror.h"
#include "app/remote/protocol.h"
#include "app/remote/remote_session.h"
#include "app/remote/serve.h"
#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "sessions/copy_session.h"
#include "tests/app/command_fixture.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

TEST(RemoteAddress, IsReadAndWritten) {
  for (const char* text :
       {"ssh://host/s.db", "ssh://me@gpu-3.example.org:2222/home/me/s.db", "ssh://h/~/runs/s.db"}) {
    const auto address = parse_remote(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(address->text(), text);
  }
  EXPECT_EQ(parse_remote("ssh://h/~/runs/s.db")->path, "runs/s.db");
  EXPECT_EQ(parse_remote("ssh://me@h:22/s.db")->port, 22);
  for (const char* text :
       {"ssh://", "ssh:///s.db", "ssh://host", "ssh://host/", "ssh://-oProxyCommand=x/s.db", "ssh://a b/s.db",
        "ssh://h:0/s.db", "ssh://h:x/s.db", "ssh://h:99999/s.db", "ssh://-l@h/s.db", "ssh://@h/s.db",
        "http://h/s.db"}) {
    const auto address = parse_remote(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.error().code, Errc::usage);
  }
}

TEST(RemoteAddress, TheShellThereGetsTheWordsAsTheyAre) {
  RemoteAddress address{.user = "me", .host = "h", .path = "/s.db", .port = 2222};
  const std::vector<std::string> words = ssh_words(address, {"show", "it's $HOME.db"});
  EXPECT_EQ(words.front(), "ssh");
  EXPECT_EQ(words[words.size() - 3], "--");  // no name of a host is an option
  EXPECT_EQ(words[words.size() - 2], "h");
  EXPECT_EQ(words.back(), "gradloom show 'it'\\''s $HOME.db'");
}

TEST(RemoteAddress, PathsOfACommandAreThoseOfTheFarEnd) {
  RemoteSession::State state;
  state.session = "/cache/s.db";
  state.session_there = "/data/s.db";
  state.model = "/cache/model.onnx";
  state.model_there = "/models/a/model.onnx";
  const std::vector<std::string> there =
      words_there({"train", "/cache/model.onnx", "--session", "/cache/s.db", "--costs=/cache/s.db#3"}, state);
  EXPECT_EQ(there, (std::vector<std::string>{"train", "/models/a/model.onnx", "--session", "/data/s.db",
                                             "--costs=/data/s.db#3"}));
}

class MirrorTest : public testing::Test {
 protected:
  MirrorTest() : mirror_(folder_.path()) {}
  Status say(const std::string& text) { return mirror_.take(text.data(), text.size()); }
  Status hello(const std::string& model = "") {
    return say(R"({"gradloom":1,"version":"x","session":"/far/s.db","model":")" + model +
               R"(","model_hash":""})" + "\n");
  }
  std::string here(const std::string& name) { return *read_file_limited(folder_ / name, 1 << 20); }
  TemporaryFolder folder_;
  Mirror mirror_;
};

TEST_F(MirrorTest, KeepsStatesOfTheSessionAndFilesBesideIt) {
  ASSERT_TRUE(hello("/far/m.onnx").ok());
  EXPECT_EQ(mirror_.answer(), "{\"model\":true}\n");
  EXPECT_EQ(mirror_.answer(), std::nullopt);
  ASSERT_TRUE(
      say("{\"file\":\"w/data.bin\",\"size\":5}\n{\"at\":0,\"bytes\":5}\nhello{\"done\":\"w/data.bin\"}\n")
          .ok());
  EXPECT_EQ(here("w/data.bin"), "hello");
  EXPECT_EQ(mirror_.states(), 0);
  // In pieces of any length.
  for (const char c : std::string("{\"session_size\":8}\n{\"at\":0,\"bytes\":8}\nabcdefgh{\"done\":\"\"}\n"))
    ASSERT_TRUE(mirror_.take(&c, 1).ok());
  EXPECT_EQ(mirror_.states(), 1);
  EXPECT_EQ(here("s.db"), "abcdefgh");
  ASSERT_TRUE(say("{\"session_size\":10}\n{\"at\":2,\"bytes\":2}\nXY{\"at\":8,\"bytes\":2}\nij").ok());
  EXPECT_EQ(here("s.db"), "abcdefgh") << "a state that is not whole";
  ASSERT_TRUE(say("{\"done\":\"\"}\n").ok());
  EXPECT_EQ(here("s.db"), "abXYefghij");
  ASSERT_TRUE(say("{\"session_size\":4}\n{\"done\":\"\"}\n").ok());
  EXPECT_EQ(here("s.db"), "abXY");
}

TEST_F(MirrorTest, WhatIsNoMessageIsRefusedAndLeavesNothing) {
  const std::vector<std::string> odd = {"x\n",
                                        "[]\n",
                                        "{\"gradloom\":2}\n",
                                        "{\"session_size\":-1}\n",
                                        "{\"session_size\":9e18}\n",
                                        "{\"file\":\"/etc/passwd\",\"size\":1}\n",
                                        "{\"file\":\"../up\",\"size\":1}\n",
                                        "{\"file\":\"a/../../up\",\"size\":1}\n",
                                        "{\"file\":\"s.db\",\"size\":1}\n",
                                        "{\"file\":\"\",\"size\":1}\n",
                                        "{\"at\":0,\"bytes\":1}\n",
                                        "{\"done\":\"\"}\n",
                                        "{\"session_size\":4}\n{\"at\":3,\"bytes\":2}\n",
                                        "{\"session_size\":4}\n{\"at\":-1,\"bytes\":2}\n",
                                        "{\"session_size\":4}\n{\"at\":0,\"bytes\":0}\n",
                                        "{\"session_size\":4}\n{\"session_size\":4}\n",
                                        "{\"file\":\"a\",\"size\":3}\n{\"done\":\"b\"}\n",
                                        "{\"file\":\"a\",\"size\":3}\n{\"done\":\"a\"}\n",
                                        std::string(kLongestRemoteLine + 1, 'x')};
  for (const std::string& text : odd) {
    TemporaryFolder folder;
    Mirror mirror(folder.path());
    const std::string first = "{\"gradloom\":1,\"session\":\"/far/s.db\",\"model\":\"\"}\n";
    if (text.find("gradloom") == std::string::npos) {
      ASSERT_TRUE(mirror.take(first.data(), first.size()).ok());
    }
    const Status status = mirror.take(text.data(), text.size());
    ASSERT_FALSE(status.ok()) << text.substr(0, 80);
    EXPECT_EQ(status.error().code, Errc::bad_input) << text.substr(0, 80);
    EXPECT_FALSE(std::filesystem::exists(folder / "s.db"));
  }
  const Status said = say("{\"error\":\"no \\u001b[31m room\"}\n");
  ASSERT_FALSE(said.ok());
  EXPECT_EQ(said.error().message.find('\x1b'), std::string::npos);
}

class Remote : public Commands {
 protected:
  void record(const char* name, int steps) {
    const Outcome made =
        run(train_mlp({"--steps", std::to_string(steps), "--name", name, "--session", path("s.db")}));
    ASSERT_EQ(made.code, 0) << made.err;
  }
};

TEST_F(Remote, TheNearEndHasTheSessionAsItGrows) {
  record("one", 4);
  int in[2], out[2];
  ASSERT_EQ(::pipe(in), 0);
  ASSERT_EQ(::pipe(out), 0);
  Status served;
  std::thread far([&] {
    served = serve_session(path("s.db"), in[0], out[1], {});
    ::close(out[1]);
  });
  std::filesystem::create_directory(path("near"));
  Mirror mirror(path("near"));
  std::int64_t bytes_of_states[3] = {0, 0, 0};
  std::vector<char> bytes(4096);
  const auto read_until = [&](std::int64_t states) {
    while (mirror.states() < states) {
      const ssize_t n = ::read(out[0], bytes.data(), bytes.size());
      ASSERT_GT(n, 0);
      bytes_of_states[mirror.states()] += n;
      const Status taken = mirror.take(bytes.data(), static_cast<std::size_t>(n));
      ASSERT_TRUE(taken.ok()) << taken.error().message;
      if (const auto answer = mirror.answer()) {
        ASSERT_EQ(::write(in[1], answer->data(), answer->size()), static_cast<ssize_t>(answer->size()));
      }
    }
  };
  read_until(1);
  EXPECT_EQ(run({"runs", mirror.session()}).code, 0);
  EXPECT_EQ(*hash_file_hex(mirror.model()), *hash_file_hex(mirror.model_there()));
  record("two", 2);
  read_until(2);
  ::close(in[1]);  // the window has gone
  far.join();
  EXPECT_TRUE(served.ok());
  const Outcome runs = run({"runs", mirror.session(), "--json"});
  ASSERT_EQ(runs.code, 0) << runs.err;
  EXPECT_NE(runs.out.find("\"two\""), std::string::npos);
  EXPECT_EQ(run({"show", mirror.session(), "--run", "two", "--json"}).out,
            run({"show", path("s.db"), "--run", "two", "--json"}).out);
  EXPECT_LT(bytes_of_states[1], bytes_of_states[0]) << "only what changed is sent";
  ::close(in[0]);
  ::close(out[0]);
}

// A window whose ssh is a script that runs the line here, in a folder that stands for the other machine.
class RemoteWindow : public WindowScript {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(file("bin"));
    std::filesystem::create_directories(file("far"));
    std::ofstream(file("bin/ssh"))
        << "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\n[ \"$2\" = far ] || { echo \"ssh: no host $2\" >&2; exit 255; }\ncd "
        << file("far") << " && exec sh -c \"$3\"\n";
    std::filesystem::permissions(file("bin/ssh"), std::filesystem::perms::owner_all);
    std::filesystem::create_symlink(GRADLOOM_COMMAND, file("bin/gradloom"));
    const char* path = std::getenv("PATH");
    path_ = path ? path : "";
    ::setenv("PATH", (file("bin") + ":" + path_).c_str(), 1);
    ::setenv("GRADLOOM_CACHE", file("cache").c_str(), 1);
  }
  void TearDown() override {
    ::setenv("PATH", path_.c_str(), 1);
    ::unsetenv("GRADLOOM_CACHE");
  }
  std::string path_;
};

TEST_F(RemoteWindow, ShowsASessionOfAnotherMachineAndRunsThere) {
  std::filesystem::copy_file(GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx", file("far/model.onnx"));
  const std::string train =
      "cd " + file("far") +
      " && " GRADLOOM_COMMAND
      " train model.onnx --dim batch=8 --loss ce:logits,labels --optimizer sgd --steps 6 --profile all --name there "
      "--session s.db > /dev/null";
  ASSERT_EQ(std::system(train.c_str()), 0);
  ASSERT_EQ(open("ssh://far/~/s.db",
                 "size 1280 720\n"
                 "wait until status.remote\n"
                 "wait idle\n"
                 "expect status.remote ssh://far/~/s.db\n"
                 "expect status.run\n"
                 "expect status.kernels\n"
                 "click run.start\n"
                 "wait until run.outcome\n"
                 "wait until status.run \"run 2*\"\n"
                 "wait idle\n"),
            0)
      << error_;
  const std::string runs = GRADLOOM_COMMAND " runs " + file("far/s.db") + " --json > " + file("runs");
  ASSERT_EQ(std::system(runs.c_str()), 0);
  EXPECT_NE(read_file_limited(file("runs"), 1 << 20)->find("\"run_id\":2"), std::string::npos)
      << "the run is of the far end";
}

TEST_F(RemoteWindow, ASessionThatIsNotThereYetIsWaitedFor) {
  std::filesystem::copy_file(GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx", file("far/model.onnx"));
  std::jthread later([&] {  // once the window has said that it waits
    while (!std::filesystem::exists(file("waits.png")))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::string train =
        "cd " + file("far") +
        " && " GRADLOOM_COMMAND
        " train model.onnx --dim batch=8 --loss ce:logits,labels --steps 2 --session s.db > /dev/null";
    EXPECT_EQ(std::system(train.c_str()), 0);
  });
  const int code = open("ssh://far/~/s.db",
                        "wait until status.busy \"waiting for a session at the far end*\"\nscreenshot " +
                            file("waits.png") + "\nwait until status.run \"run 1*\"\nwait idle\n");
  if (!std::filesystem::exists(file("waits.png"))) std::ofstream(file("waits.png")) << "nothing";
  EXPECT_EQ(code, 0) << error_;
}

TEST_F(RemoteWindow, EveryWindowHasAFolderOfItsOwn) {
  const RemoteAddress address{.user = "", .host = "far", .path = "/s.db"};
  std::string taken;
  {
    const auto first = MirrorFolder::take(address), second = MirrorFolder::take(address);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_NE(first->path(), second->path());
    taken = first->path();
  }
  EXPECT_EQ(MirrorFolder::take(address)->path(), taken) << "a window that is gone has none";
}

TEST_F(RemoteWindow, AFarEndThatCannotBeReachedIsOneLine) {
  EXPECT_EQ(open("ssh://nobody/s.db", ""), static_cast<int>(Errc::io));
  EXPECT_NE(error_.find("no host nobody"), std::string::npos) << error_;
  EXPECT_EQ(open("ssh://-x/s.db", ""), static_cast<int>(Errc::usage)) << error_;
  EXPECT_EQ(open("ssh://far/~/s.db --remote-program ./none", ""), static_cast<int>(Errc::io));
  EXPECT_NE(error_.find("none"), std::string::npos) << error_;
}

}  // namespace
}  // namespace gradloom
