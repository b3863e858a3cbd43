// Runs the program as a user does: arguments in, exit code and both outputs back.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "app/output.h"  // before the name json below, which it uses for parameters
#include "tests/folder.h"
#include "tests/paths.h"

namespace gradloom {

namespace fs = std::filesystem;
using nlohmann::json;

struct Outcome {
  int code = -1;
  std::string out, err;
  std::vector<json> lines() const {
    std::vector<json> list;
    std::istringstream in(out);
    for (std::string line; std::getline(in, line);) list.push_back(json::parse(line));
    return list;
  }
};

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Commands : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  static std::string model(const std::string& name) { return GRADLOOM_SOURCE_DIR "/tests/models/" + name; }

  // `out_fd`: a descriptor that becomes the program's stdout; -1: the file "stdout" of the folder.
  pid_t start(std::vector<std::string> args, rlim_t file_limit = RLIM_INFINITY, int out_fd = -1) const {
    args.insert(args.begin(), GRADLOOM_COMMAND);
    const std::string out = path("stdout"), err = path("stderr");
    const pid_t child = fork();
    if (child != 0) return child;
    if (!freopen(out.c_str(), "w", stdout) || !freopen(err.c_str(), "w", stderr)) _exit(99);
    if (out_fd >= 0 && dup2(out_fd, STDOUT_FILENO) < 0) _exit(97);
    signal(SIGINT, SIG_DFL);  // the test may have been started in the background, which ignores it
    if (file_limit != RLIM_INFINITY) {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{file_limit, file_limit};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(98);
  }
  Outcome wait(pid_t child) const {
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(path("stdout")),
            read_file(path("stderr"))};
  }
  Outcome run(const std::vector<std::string>& args) const { return wait(start(args)); }
  // Until what the program has said on `stream` ("stdout", "stderr") contains `part`.
  bool wait_for(const std::string& stream, const std::string& part) const {
    for (int i = 0; i < 1200; ++i) {
      if (read_file(path(stream)).find(part) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
  // One clear line on stderr and the documented exit code.
  void expect_error(const std::vector<std::string>& args, int code, const std::string& part) const {
    const Outcome o = run(args);
    EXPECT_EQ(o.code, code) << o.err;
    EXPECT_NE(o.err.find(part), std::string::npos) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_EQ(o.err.rfind("gradloom: ", 0), 0u) << o.err;
  }
  std::vector<std::string> train_mlp(std::vector<std::string> more) const {
    std::vector<std::string> args{"train",       model("mlp") + "/model.onnx",
                                  "--dim",       "batch=8",
                                  "--loss",      "ce:logits,labels",
                                  "--optimizer", "adam{lr=1e-3}",
                                  "--data",      "npz:" + model("mlp") + "/batches.npz",
                                  "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  TemporaryFolder folder_;
};

}  // namespace gradloom
