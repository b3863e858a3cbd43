// Drives `gradloom open --headless` by a script, as a user would drive the window.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/folder.h"
#include "tests/paths.h"

namespace gradloom {

class WindowScript : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_ / name; }
  // Where a picture is left to be looked at: beside the program.
  static std::string picture(const std::string& name) {
    return (std::filesystem::path(GRADLOOM_COMMAND).parent_path() / name).string();
  }

  // Model and job of a small classifier, as arguments.
  static std::string bert() {
    return GRADLOOM_SOURCE_DIR
        "/tests/models/bert-tiny/model.onnx --dim batch=2 --loss ce:logits,labels --optimizer adamw ";
  }
  // `gradloom train ARGUMENTS` into a session file.
  static void train(const std::string& arguments, const std::string& session) {
    const std::string command =
        std::string(GRADLOOM_COMMAND) + " train " + arguments + " --session " + session + " > /dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }

  // Runs `gradloom open ARGUMENTS --headless --script ...`; returns the exit code, stderr in `error_`.
  int open(const std::string& arguments, const std::string& script) {
    std::ofstream(file("script")) << script;
    const std::string command = std::string("unset DISPLAY WAYLAND_DISPLAY; ") + shell_ + GRADLOOM_COMMAND +
                                " open " + arguments + " --headless --script " + file("script") + " 2> " +
                                file("stderr");
    const int status = std::system(command.c_str());
    std::ifstream in(file("stderr"));
    error_.assign(std::istreambuf_iterator<char>(in), {});
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  TemporaryFolder folder_;
  std::string error_;
  std::string shell_;  // what the shell does before, with its semicolon
};

}  // namespace gradloom
