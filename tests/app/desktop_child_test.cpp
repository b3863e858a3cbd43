#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "app/desktop/child.h"
#include "app/recipe_flags.h"

namespace gradloom {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<Child> shell(const std::string& script) {
  auto child = Child::start("/bin/sh", {"-c", script}, nullptr);
  EXPECT_TRUE(child.ok()) << child.error().message;
  return std::move(child).value();
}

bool wait_for_end(const Child& child) {
  for (int i = 0; i < 20000 && child.running(); ++i) std::this_thread::sleep_for(1ms);
  return !child.running();
}

TEST(SplitCommandLine, UndoesTheQuoting) {
  for (const std::string word :
       {"plain", "two words", "it's", "a\\b", "adamw{lr=0.001}", "\"", "$HOME `x`", "'"}) {
    const auto words = split_command_line("gradloom train " + shell_quoted(word) + "  --x");
    ASSERT_TRUE(words.ok());
    EXPECT_EQ(*words, (std::vector<std::string>{"gradloom", "train", word, "--x"}));
  }
  EXPECT_EQ(split_command_line("a '' b")->size(), 3u);
  EXPECT_FALSE(split_command_line("a 'b").ok());
}

TEST(Child, DeliversLinesAndTheExitCode) {
  const auto child = shell(
      "echo one; echo two; printf three; echo; echo noise >&2; echo 'gradloom: model x: truncated' >&2; exit "
      "3");
  ASSERT_TRUE(wait_for_end(*child));
  EXPECT_EQ(child->take_lines(), (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(child->exit().code, 3);
  EXPECT_FALSE(child->exit().crashed);
  EXPECT_EQ(child->exit().error, "model x: truncated");
  EXPECT_TRUE(child->take_lines().empty());
}

TEST(Child, ACrashIsReportedNotShared) {
  const auto child = shell("echo before; kill -SEGV $$");
  ASSERT_TRUE(wait_for_end(*child));
  EXPECT_EQ(child->take_lines(), std::vector<std::string>{"before"});
  EXPECT_TRUE(child->exit().crashed);
  EXPECT_EQ(child->exit().code, 128 + SIGSEGV);
  EXPECT_NE(child->exit().error.find("crashed"), std::string::npos);
}

TEST(Child, InterruptIsNoCrash) {
  const auto child = shell("trap 'echo stopping; exit 130' INT; echo ready; while :; do sleep 0.01; done");
  std::vector<std::string> lines;
  for (int i = 0; i < 20000 && lines.empty(); ++i) {
    lines = child->take_lines();
    std::this_thread::sleep_for(1ms);
  }
  ASSERT_EQ(lines, std::vector<std::string>{"ready"});
  child->interrupt();
  ASSERT_TRUE(wait_for_end(*child));
  EXPECT_EQ(child->take_lines(), std::vector<std::string>{"stopping"});
  EXPECT_EQ(child->exit().code, 130);
  EXPECT_FALSE(child->exit().crashed);
}

TEST(Child, LargeOutputOnBothPipesDoesNotBlock) {
  const auto child =
      shell("i=0; while [ $i -lt 3000 ]; do echo line $i; echo error $i >&2; i=$((i+1)); done");
  ASSERT_TRUE(wait_for_end(*child));
  EXPECT_EQ(child->take_lines().size(), 3000u);
  EXPECT_EQ(child->exit().error, "error 2999");
}

TEST(Child, AMissingProgramIsAnError) {
  const auto child = Child::start("/nonexistent/gradloom", {"train"}, nullptr);
  ASSERT_FALSE(child.ok());
  EXPECT_EQ(child.error().code, Errc::io);
  EXPECT_NE(child.error().message.find("/nonexistent/gradloom"), std::string::npos);
}

TEST(Child, DestructionEndsTheProcess) {
  auto child = shell("sleep 600 & sleep 600; echo never");  // with what it started
  const auto pid = static_cast<pid_t>(child->pid());
  child.reset();
  EXPECT_NE(::kill(pid, 0), 0);
}

}  // namespace
}  // namespace gradloom
