// gradloom_recorder_*: a loop of this test as `gradloom show` tells it, and what a caller can do wrong.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/embed/gradloom.h"
#include "tests/folder.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

using json = nlohmann::json;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class RecorderApi : public ::testing::Test {
 protected:
  json show() const {
    FILE* const out = ::popen((GRADLOOM_COMMAND " show " + path_ + " --json").c_str(), "r");
    std::string text;
    std::array<char, 4096> piece{};
    for (std::size_t n; (n = std::fread(piece.data(), 1, piece.size(), out)) > 0;)
      text.append(piece.data(), n);
    EXPECT_EQ(::pclose(out), 0);
    return json::parse(text);
  }
  TemporaryFolder folder_;
  std::string path_ = folder_ / "s.db";
};

TEST_F(RecorderApi, ALoopAsTheCommandTellsIt) {
  gradloom_module* net = nullptr;
  const char* const dims[] = {"--dim", "batch=4", "--gradients", "off"};
  const std::string model = GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx";
  ASSERT_EQ(gradloom_module_open(model.c_str(), 4, dims, &net), GRADLOOM_OK) << gradloom_last_error();
  std::vector<std::vector<double>> held;
  std::vector<void*> memory[4];
  for (int kind = 0; kind <= GRADLOOM_STATISTIC; ++kind) {
    int count = 0;
    gradloom_module_count(net, kind, &count);
    for (int i = 0; i < count; ++i) {
      gradloom_value v;
      gradloom_module_value(net, kind, i, &v);
      memory[kind].push_back(held.emplace_back(static_cast<std::size_t>(v.bytes) / 8 + 1).data());
    }
  }
  std::int64_t bytes = 0, alignment = 0;
  ASSERT_EQ(gradloom_module_arena(net, 0, &bytes, &alignment), GRADLOOM_OK);
  std::vector<unsigned char> arena(static_cast<std::size_t>(bytes + alignment));
  const auto at = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(arena.data()));
  gradloom_call call{};
  call.size = sizeof call;
  call.inputs = memory[GRADLOOM_INPUT].data();
  call.parameters = memory[GRADLOOM_PARAMETER].data();
  call.outputs = memory[GRADLOOM_OUTPUT].data();
  call.arena = arena.data() + (alignment - at % alignment) % alignment;

  gradloom_recorder* recorder = nullptr;
  const char* const words[] = {"--profile", "all", "--name", "mine"};
  ASSERT_EQ(gradloom_recorder_open(path_.c_str(), 4, words, &recorder), GRADLOOM_OK) << gradloom_last_error();
  ASSERT_EQ(gradloom_recorder_watch(recorder, net, "net"), GRADLOOM_OK);
  for (int step = 1; step <= 6; ++step) {
    const std::int64_t begin = now_ns();
    ASSERT_EQ(gradloom_module_forward(net, &call), GRADLOOM_OK) << gradloom_last_error();
    EXPECT_EQ(gradloom_recorder_span(recorder, "gradloom", nullptr, begin, now_ns()), GRADLOOM_OK);
    EXPECT_EQ(gradloom_recorder_end_step(recorder, now_ns(), 0.5, 0.25), GRADLOOM_OK);
  }
  EXPECT_EQ(gradloom_recorder_tell(recorder, "language", "C"), GRADLOOM_OK);
  ASSERT_EQ(gradloom_recorder_close(recorder, nullptr), GRADLOOM_OK) << gradloom_last_error();
  gradloom_module_close(net);

  const json run = show();
  EXPECT_EQ(run["name"], "mine");
  EXPECT_EQ(run["steps"], 6);
  EXPECT_EQ(run["environment"]["loop.language"], "C");
  EXPECT_EQ(run["loop"]["steps"], 3);
  EXPECT_EQ(run["loop"]["rows"][0]["part"], "engine: kernels");
  EXPECT_GT(run["loop"]["engine_share"], 0);
  EXPECT_EQ(run["kernels"][0]["samples"], 3);
}

TEST_F(RecorderApi, ErrorsAreOneLine) {
  gradloom_recorder* recorder = nullptr;
  const auto fails = [&](int code, int expected, const char* part) {
    EXPECT_EQ(code, expected);
    EXPECT_NE(std::string(gradloom_last_error()).find(part), std::string::npos) << gradloom_last_error();
  };
  const std::string nowhere = folder_ / "no/s.db";
  fails(gradloom_recorder_open(nowhere.c_str(), 0, nullptr, &recorder), GRADLOOM_IO, "no folder");
  const char* const words[] = {"--profile", "some"};
  fails(gradloom_recorder_open(path_.c_str(), 2, words, &recorder), GRADLOOM_USAGE, "profile level");
  const char* const unknown[] = {"--colour", "red"};
  fails(gradloom_recorder_open(path_.c_str(), 2, unknown, &recorder), GRADLOOM_USAGE, "--colour");
  fails(gradloom_recorder_open(nullptr, 0, nullptr, &recorder), GRADLOOM_USAGE, "session is null");
  EXPECT_EQ(recorder, nullptr);
  fails(gradloom_recorder_end_step(nullptr, 0, 0, 0), GRADLOOM_USAGE, "recorder is null");
  ASSERT_EQ(gradloom_recorder_open(path_.c_str(), 0, nullptr, &recorder), GRADLOOM_OK)
      << gradloom_last_error();
  const std::int64_t now = now_ns();
  fails(gradloom_recorder_span(recorder, "lunch", "", now, now), GRADLOOM_USAGE, "lunch");
  fails(gradloom_recorder_span(recorder, "step", "", now, now), GRADLOOM_USAGE, "step");
  fails(gradloom_recorder_span(recorder, "data", "", now, now - 1), GRADLOOM_USAGE, "before it begins");
  fails(gradloom_recorder_span(recorder, nullptr, "", now, now), GRADLOOM_USAGE, "kind is null");
  fails(gradloom_recorder_end_step(recorder, 5, 0, 0), GRADLOOM_USAGE, "before it begins");
  fails(gradloom_recorder_watch(recorder, nullptr, ""), GRADLOOM_USAGE, "module is null");
  for (int i = 0; i < 100'002; ++i) gradloom_recorder_span(recorder, "python", "", now, now);
  fails(gradloom_recorder_end_step(recorder, now_ns(), 0, 0), GRADLOOM_LIMIT, "more than 100000 spans");
  fails(gradloom_recorder_end_step(recorder, now_ns(), 0, 0), GRADLOOM_LIMIT, "more than 100000 spans");
  fails(gradloom_recorder_close(recorder, nullptr), GRADLOOM_LIMIT, "more than 100000 spans");
  EXPECT_EQ(gradloom_recorder_close(nullptr, nullptr), GRADLOOM_OK);
}

}  // namespace
}  // namespace gradloom
