// The built command under settings of the environment that change how threads are started: the same losses,
// bit for bit, or one clear error.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <sstream>
#include <string>

#include "tests/paths.h"

namespace gradloom {
namespace {

struct Answer {
  int code = -1;
  std::string text;  // of both streams
};

Answer answer_of(const std::string& command) {
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {};
  Answer answer;
  std::array<char, 4096> part{};
  for (std::size_t n; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    answer.text.append(part.data(), n);
  const int status = pclose(pipe);
  answer.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return answer;
}

// Two threads, whatever the machine has: a team that is too small must show on one processor too.
Answer train(const std::string& setting, const std::string& model) {
  const std::string folder = GRADLOOM_SOURCE_DIR "/tests/models/" + model;
  return answer_of(
      setting + " '" GRADLOOM_COMMAND "' train '" + folder +
      "/model.onnx' --loss ce:logits,labels --optimizer 'adamw{lr=1e-3}' --data 'npz:" + folder +
      "/batches.npz' --steps 4 --json --threads 2 --dim batch=" + (model == "gpt-char" ? "4" : "8"));
}

// Every "loss": as it was printed, in the order of the steps.
std::string losses(const Answer& answer) {
  std::string found;
  for (std::size_t at = 0; (at = answer.text.find("\"loss\":", at)) != std::string::npos; ++at)
    found += answer.text.substr(at, answer.text.find_first_of(",}", at) - at) + "\n";
  return found;
}

class ThreadSettings : public testing::TestWithParam<const char*> {};

TEST_P(ThreadSettings, ChangeNoBitOfTheLosses) {
  for (const char* model : {"gpt-char", "cnn-digits", "mlp"}) {
    const Answer plain = train("", model), other = train(GetParam(), model);
    ASSERT_EQ(plain.code, 0) << model << ": " << plain.text;
    EXPECT_EQ(other.code, 0) << model << ": " << other.text;
    EXPECT_GE(std::count(plain.text.begin(), plain.text.end(), '\n'), 4) << plain.text;
    ASSERT_NE(losses(plain), "");
    EXPECT_EQ(losses(plain), losses(other)) << model << " with " << GetParam();
  }
}

INSTANTIATE_TEST_SUITE_P(Environment, ThreadSettings,
                         testing::Values("OMP_DYNAMIC=true", "OMP_THREAD_LIMIT=1", "OMP_MAX_ACTIVE_LEVELS=0",
                                         "OMP_NESTED=true", "OMP_NUM_THREADS=1", "OMP_NUM_THREADS=3",
                                         "OMP_STACKSIZE=64k", "GOMP_STACKSIZE=16", "OMP_WAIT_POLICY=passive",
                                         "OMP_SCHEDULE=dynamic,1"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& ch : name)
                             if (std::isalnum(static_cast<unsigned char>(ch)) == 0) ch = '_';
                           return name;
                         });

TEST(OmpNumThreads, IsHowManyThreadsThereAre) {
  for (const char* number : {"1", "3", "2,4"}) {
    const Answer answer =
        answer_of(std::string("OMP_NUM_THREADS=") + number + " '" GRADLOOM_COMMAND "' devices --json");
    EXPECT_EQ(answer.code, 0) << answer.text;
    EXPECT_NE(answer.text.find(std::string("\"threads\":") + number[0]), std::string::npos) << answer.text;
  }
}

TEST(OmpNumThreads, IsRefusedWhereItIsNoNumber) {
  for (const char* number : {"two", "0", "-1", "1025", "2x"}) {
    const std::string setting = std::string("OMP_NUM_THREADS=") + number;
    const Answer answer = train(setting, "mlp"),
                 other = answer_of(setting + " '" GRADLOOM_COMMAND "' devices");
    EXPECT_EQ(answer.code, 0) << "--threads goes before it: " << answer.text;
    EXPECT_EQ(other.code, 2) << other.text;
    EXPECT_NE(other.text.find("gradloom: " + setting + " in the environment"), std::string::npos)
        << other.text;
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Where the address space ends, from what loads the program to what is enough, is one error of ours.
TEST(LittleMemory, EndsWithOneLine) {
  int refused = 0;
  for (int megabytes = 90; megabytes <= 150; megabytes += 10)
    for (const char* model : {"mlp", "cnn-digits", "gpt-char"}) {
      const Answer answer = train("ulimit -v " + std::to_string(megabytes * 1000) + ";", model);
      if (answer.code == 0 || answer.code == 127) continue;  // 127: of the loader
      // It ended while libonnx was loaded, before main: what its registry then prints is not ours to prevent.
      if (answer.text.find("Schema error: ") != std::string::npos) continue;
      ++refused;
      EXPECT_TRUE(answer.code == 4 || answer.code == 6)
          << model << ", " << megabytes << " MB: " << answer.code << "\n"
          << answer.text;
      int errors = 0;
      std::istringstream lines(answer.text);
      for (std::string line; std::getline(lines, line);) {
        errors += line.rfind("gradloom: ", 0) == 0 ? 1 : 0;
        EXPECT_TRUE(line.rfind("gradloom: ", 0) == 0 || line.rfind("{", 0) == 0 ||
                    line.rfind("note: computes on 1 of 2 threads", 0) == 0)
            << line;
      }
      EXPECT_EQ(errors, 1) << answer.text;
    }
  EXPECT_GT(refused, 0);
}
#endif

}  // namespace
}  // namespace gradloom
