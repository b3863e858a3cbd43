#include "sessions/tensorboard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "tests/proto_json.h"

namespace gradloom {
namespace {

using json = nlohmann::json;

// Bit by bit: shares nothing with the writer's table.
std::uint32_t masked_crc(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82f63b78 & (0 - (crc & 1)));
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

template <class T>
T number_at(const std::string& bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The events of a file; both checksums of every record must be right.
std::vector<json> events(const std::string& bytes) {
  ProtoReader reader("sessions/tensorboard.proto");
  std::vector<json> list;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto length = number_at<std::uint64_t>(bytes, at);
    EXPECT_EQ(number_at<std::uint32_t>(bytes, at + 8), masked_crc(bytes.substr(at, 8)));
    EXPECT_LE(at + 16 + length, bytes.size());
    const std::string data = bytes.substr(at + 12, length);
    EXPECT_EQ(number_at<std::uint32_t>(bytes, at + 12 + length), masked_crc(data));
    list.push_back(reader.read("Event", data));
    at += 16 + length;
  }
  EXPECT_EQ(at, bytes.size());
  return list;
}

std::map<std::string, json> scalars(const json& event) {
  std::map<std::string, json> made;
  for (const json& value : event["summary"]["value"])
    made[value["tag"]] = value.value("simple_value", json(0));
  return made;
}

RunRecord record() {
  RunRecord run;
  run.summary.id = 3;
  run.summary.name = "tuned";
  run.summary.started_utc = "2026-11-20T04:31:05Z";
  run.steps = {{1, 2.5, 100'000'000, 0.1, 7.5, false, 1024, 0},
               {2, std::nan(""), 50'000'000, 0.05, -1, true, 0, 0},
               {3, std::numeric_limits<double>::infinity(), 0, 0.025, -1, false, 512, 2}};
  run.evaluations = {{0, 3.0, 4, 1'000'000'000}, {2, 2.25, 4, 2'000'000'000}};
  return run;
}

TEST(TensorBoard, KnownChecksums) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
}

TEST(TensorBoard, EveryStepAndEvaluationIsAnEvent) {
  const std::vector<json> list = events(tensorboard_events(record()));
  ASSERT_EQ(list.size(), 6u);
  EXPECT_EQ(list[0]["file_version"], "brain.Event:2");
  const double start = 1'795'149'065;  // 2026-11-20T04:31:05Z
  EXPECT_EQ(list[0]["wall_time"], start);
  const auto before = scalars(list[1]), first = scalars(list[2]), second = scalars(list[3]),
             held_out = scalars(list[4]), third = scalars(list[5]);
  EXPECT_EQ(before, (std::map<std::string, json>{{"loss/held_out", 3.0}, {"time/evaluation_ms", 1000.0}}));
  EXPECT_FALSE(list[1].contains("step")) << "0: before the first";
  EXPECT_EQ(list[2]["step"], "1");
  EXPECT_DOUBLE_EQ(list[2]["wall_time"].get<double>(), start + 1.1);
  EXPECT_EQ(first.at("loss/train"), 2.5);
  EXPECT_FLOAT_EQ(first.at("optimizer/learning_rate").get<float>(), 0.1F);
  EXPECT_EQ(first.at("optimizer/gradient_norm"), 7.5);
  EXPECT_EQ(first.at("optimizer/loss_scale"), 1024.0);
  EXPECT_EQ(first.at("optimizer/skipped_steps"), 0);
  EXPECT_EQ(first.at("time/step_ms"), 100.0);
  EXPECT_EQ(first.at("time/steps_per_second"), 10.0);
  EXPECT_EQ(second.at("loss/train"), "NaN");
  EXPECT_EQ(second.count("optimizer/gradient_norm"), 0u) << "was not computed";
  EXPECT_EQ(second.count("optimizer/loss_scale"), 0u);
  EXPECT_EQ(list[4]["step"], "2") << "after its step";
  EXPECT_EQ(held_out.at("loss/held_out"), 2.25);
  EXPECT_DOUBLE_EQ(list[4]["wall_time"].get<double>(), start + 3.15);
  EXPECT_EQ(third.at("loss/train"), "Infinity");
  EXPECT_EQ(third.at("optimizer/skipped_steps"), 2.0);
  EXPECT_EQ(third.count("time/step_ms"), 0u) << "was not measured";
}

// Of a loop of another program, nobody told the losses.
TEST(TensorBoard, WithoutLosses) {
  RunRecord run = record();
  run.summary.data = kLoopData;
  for (StepRow& step : run.steps) step.loss = std::nan("");
  run.summary.first_loss = run.summary.last_loss = std::nan("");
  ASSERT_FALSE(run.summary.has_loss());
  const auto first = scalars(events(tensorboard_events(run))[2]);
  EXPECT_EQ(first.count("loss/train"), 0u);
  EXPECT_EQ(first.count("optimizer/learning_rate"), 0u);
  EXPECT_EQ(first.at("time/step_ms"), 100.0);
}

TEST(TensorBoard, TheFileNamesItsRun) {
  RunSummary run = record().summary;
  EXPECT_EQ(tensorboard_file(run), "run-3-tuned/events.out.tfevents.1795149065.gradloom");
  for (const char* name : {"../../etc", "a/b", "a b", ""}) {
    run.name = name;
    run.started_utc = "long ago";
    EXPECT_EQ(tensorboard_file(run), "run-3/events.out.tfevents.0000000000.gradloom") << name;
  }
  run.name = std::string(100, 'x');
  EXPECT_EQ(tensorboard_file(run).rfind("run-3/", 0), 0u);
}

}  // namespace
}  // namespace gradloom
