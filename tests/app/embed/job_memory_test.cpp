// gradloom_job_open_on: parameters and running statistics in the caller's memory.
#include <cmath>
#include <cstring>
#include <map>

#include "app/embed/gradloom.h"
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

using Words = std::vector<std::string>;

class JobMemory : public Commands {
 protected:
  static std::vector<const char*> pointers(const Words& words) {
    std::vector<const char*> all;
    for (const std::string& word : words) all.push_back(word.c_str());
    return all;
  }
  static gradloom_job* opened(const Words& words) {
    gradloom_job* job = nullptr;
    EXPECT_EQ(gradloom_job_open(static_cast<int>(words.size()), pointers(words).data(), nullptr, &job),
              GRADLOOM_OK)
        << gradloom_last_error();
    return job;
  }
  static int open_on(const Words& words, std::vector<gradloom_memory>& memories, gradloom_job** job) {
    return gradloom_job_open_on(static_cast<int>(words.size()), pointers(words).data(), nullptr,
                                static_cast<int>(memories.size()), memories.data(), job);
  }
  Words of(const std::string& name, const Words& more = {}) const {
    Words words{model(name) + "/model.onnx",
                "--dim",
                "batch=8",
                "--loss",
                "ce:logits,labels",
                "--data",
                "npz:" + model(name) + "/batches.npz",
                "--optimizer",
                "adamw{lr=1e-3}"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // What a job has of these kinds, in memory of ours by name.
  static std::map<std::string, std::vector<std::byte>> contents(gradloom_job* job) {
    std::map<std::string, std::vector<std::byte>> found;
    for (const int kind : {GRADLOOM_PARAMETER, GRADLOOM_STATISTIC}) {
      int count = 0;
      EXPECT_EQ(gradloom_job_count(job, kind, &count), GRADLOOM_OK);
      for (int i = 0; i < count; ++i) {
        gradloom_value v{};
        EXPECT_EQ(gradloom_job_value(job, kind, i, &v), GRADLOOM_OK);
        std::vector<std::byte>& data = found[v.name];
        data.resize(static_cast<std::size_t>(v.bytes));
        EXPECT_EQ(gradloom_job_read(job, v.name, data.data(), data.size()), GRADLOOM_OK)
            << gradloom_last_error();
      }
    }
    return found;
  }
  static std::vector<gradloom_memory> places(std::map<std::string, std::vector<std::byte>>& contents) {
    std::vector<gradloom_memory> all;
    for (auto& [name, data] : contents) all.push_back({name.c_str(), data.data(), data.size(), -1});
    return all;
  }
  static std::vector<double> losses_of(gradloom_job* job, int steps) {
    std::vector<double> losses(static_cast<std::size_t>(steps));
    for (double& loss : losses)
      EXPECT_EQ(gradloom_job_step(job, &loss), GRADLOOM_OK) << gradloom_last_error();
    return losses;
  }
};

// The same bits as in the job's own memory, after each step, with BatchNorm's statistics and in 16 bits too.
TEST_F(JobMemory, StepsUpdateWhereItLies) {
  for (const std::string name : {"mlp", "cnn-digits"})
    for (const char* precision : {"f32", "bf16"}) {
      SCOPED_TRACE(name + " " + precision);
      const Words words = of(name, {"--precision", precision, "--steps", "6"});
      gradloom_job* const own = opened(words);
      auto memory = contents(own);
      auto given = places(memory);
      gradloom_job* job = nullptr;
      ASSERT_EQ(open_on(words, given, &job), GRADLOOM_OK) << gradloom_last_error();
      for (const gradloom_memory& place : given) EXPECT_EQ(place.used, 1) << place.name;
      for (int step = 0; step < 6; ++step) {
        EXPECT_EQ(losses_of(job, 1), losses_of(own, 1));
        EXPECT_EQ(memory, contents(own)) << "step " << step + 1;
      }
      EXPECT_EQ(contents(job), memory);
      EXPECT_EQ(gradloom_job_close(own), GRADLOOM_OK);
      EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
    }
}

// It begins with what stands there, and follows what the caller writes; 16-bit copies of weights once they are told.
TEST_F(JobMemory, WhatTheCallerWritesCounts) {
  for (const char* precision : {"f32", "bf16"}) {
    SCOPED_TRACE(precision);
    const Words words = of("mlp", {"--precision", precision, "--steps", "6"});
    gradloom_job* const own = opened(words);
    auto memory = contents(own);
    const auto change = [&](float factor) {
      for (auto& [name, data] : memory)
        for (std::size_t at = 0; at < data.size(); at += sizeof(float)) {
          float x = 0;
          std::memcpy(&x, &data[at], sizeof x);
          x *= factor;
          std::memcpy(&data[at], &x, sizeof x);
        }
    };
    const auto tell = [&](gradloom_job* job) {
      for (const auto& [name, data] : memory)
        EXPECT_EQ(gradloom_job_write(job, name.c_str(), data.data(), data.size()), GRADLOOM_OK);
    };
    change(0.75F);
    auto given = places(memory);
    gradloom_job* job = nullptr;
    ASSERT_EQ(open_on(words, given, &job), GRADLOOM_OK) << gradloom_last_error();
    tell(own);
    EXPECT_EQ(losses_of(job, 2), losses_of(own, 2));
    change(1.5F);
    tell(own);
    if (std::string(precision) == "bf16") tell(job);
    EXPECT_EQ(losses_of(job, 2), losses_of(own, 2));
    EXPECT_EQ(memory, contents(own));
    EXPECT_EQ(gradloom_job_close(own), GRADLOOM_OK);
    EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
  }
}

TEST_F(JobMemory, ACheckpointIsWrittenThereAndKeptFromThere) {
  const Words words =
      of("cnn-digits", {"--steps", "6", "--checkpoint", path("kept"), "--checkpoint-every", "3"});
  gradloom_job* const own = opened(of("cnn-digits", {"--steps", "6"}));
  const auto start = contents(own);
  auto memory = start;
  auto given = places(memory);
  gradloom_job* job = nullptr;
  ASSERT_EQ(open_on(words, given, &job), GRADLOOM_OK) << gradloom_last_error();
  losses_of(job, 3);
  losses_of(own, 3);
  const auto third = memory;
  EXPECT_EQ(gradloom_job_checkpoint(job), GRADLOOM_OK) << gradloom_last_error();
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
  memory = start;
  given = places(memory);
  ASSERT_EQ(open_on(of("cnn-digits", {"--steps", "6", "--resume", path("kept")}), given, &job), GRADLOOM_OK)
      << gradloom_last_error();
  EXPECT_EQ(memory, third);
  EXPECT_EQ(losses_of(job, 3), losses_of(own, 3));
  EXPECT_EQ(memory, contents(own));
  EXPECT_EQ(gradloom_job_close(own), GRADLOOM_OK);
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
}

// Files get the parameters before the step whose loss was not finite, and so does the memory.
TEST_F(JobMemory, ALossThatIsNotFiniteLeavesTheLastGoodParameters) {
  gradloom_job* const own = opened(of("mlp"));
  auto memory = contents(own);
  const auto start = memory;
  auto given = places(memory);
  gradloom_job* job = nullptr;
  ASSERT_EQ(
      open_on(of("mlp", {"--optimizer", "sgd{lr=1e30}", "--save-params", path("last.npz")}), given, &job),
      GRADLOOM_OK);
  int code = GRADLOOM_OK;
  for (int step = 0; step < 5 && code == GRADLOOM_OK; ++step) code = gradloom_job_step(job, nullptr);
  EXPECT_EQ(code, GRADLOOM_NUMERIC);
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_NUMERIC) << "it tells of the step again";
  EXPECT_TRUE(fs::exists(path("last.npz")));
  EXPECT_NE(memory, start) << "the first step's parameters are huge and finite";
  for (const auto& [name, bytes] : memory) {
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    for (const float number : numbers) ASSERT_TRUE(std::isfinite(number)) << name;
  }
  EXPECT_EQ(gradloom_job_close(own), GRADLOOM_OK);
}

TEST_F(JobMemory, ErrorsAreOneLineThatNamesTheValue) {
  gradloom_job* const own = opened(of("mlp"));
  auto memory = contents(own);
  EXPECT_EQ(gradloom_job_close(own), GRADLOOM_OK);
  const std::string first = memory.begin()->first;
  std::vector<std::byte>& data = memory.begin()->second;
  const auto refused = [&](std::vector<gradloom_memory> given, const std::string& why,
                           const Words& more = {}) {
    gradloom_job* job = nullptr;
    EXPECT_EQ(open_on(of("mlp", more), given, &job), GRADLOOM_USAGE) << why;
    EXPECT_EQ(job, nullptr);
    EXPECT_NE(std::string(gradloom_last_error()).find(why), std::string::npos) << gradloom_last_error();
  };
  const gradloom_memory right{first.c_str(), data.data(), data.size(), 0};
  const std::string name = "memory for '" + first + "' ";
  refused({{first.c_str(), data.data(), data.size() - 4, 0}},
          name + "has " + std::to_string(data.size() - 4) + " bytes, not the ");
  refused({{first.c_str(), nullptr, data.size(), 0}}, name + "has no address");
  refused({{first.c_str(), data.data() + 1, data.size(), 0}}, name + "is not aligned to the 4 bytes");
  refused({right, right}, name + "is given twice");
  refused({right, {memory.rbegin()->first.c_str(), data.data(), memory.rbegin()->second.size(), 0}},
          "overlaps that for");
  refused({{nullptr, data.data(), data.size(), 0}}, "name of memory 0");
  refused({right}, "on the CPU, not on host-gpu", {"--device", "host-gpu"});
  std::vector<gradloom_memory> other{{"nobody", data.data(), data.size(), 7}};
  gradloom_job* job = nullptr;
  ASSERT_EQ(open_on(of("mlp"), other, &job), GRADLOOM_OK) << gradloom_last_error();
  EXPECT_EQ(other[0].used, 0);
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
}

}  // namespace
}  // namespace gradloom
