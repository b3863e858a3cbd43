#include "app/run_recorder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/folder.h"

namespace gradloom {
namespace {

constexpr std::int64_t kLong = 3'600'000'000'000;

// A session that is moved away takes nothing, at once, until it is back.
class RecorderTest : public testing::Test {
 protected:
  std::unique_ptr<RunRecorder> begin(std::int64_t pause_ns) {
    auto store = Store::open(session_, StoreMode::write);
    EXPECT_TRUE(store.ok()) << store.error().message;
    auto writer = (*store)->begin_run({});
    EXPECT_TRUE(writer.ok()) << writer.error().message;
    return std::make_unique<RunRecorder>(std::move(*store), std::move(*writer), out_, pause_ns);
  }
  // Rows are written after 64 steps at the latest.
  void add_steps(RunRecorder& recorder, std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step <= last; ++step) {
      StepRow row;
      row.step = step;
      row.loss = 1.0 / static_cast<double>(step);
      row.step_ns = 1000;
      recorder.add_step(row, {}, {});
    }
  }
  RunRecord record() {
    auto store = Store::open(session_, StoreMode::read);
    EXPECT_TRUE(store.ok()) << store.error().message;
    auto run = (*store)->load_run(1);
    EXPECT_TRUE(run.ok()) << run.error().message;
    return std::move(run).value();
  }
  void move_away() { std::filesystem::rename(session_, away_); }
  void move_back() { std::filesystem::rename(away_, session_); }

  TemporaryFolder folder_;
  std::string session_ = folder_ / "s.db", away_ = folder_ / "away.db";
  Output out_;
};

TEST_F(RecorderTest, TellsOnceAndCatchesUpWhenTheSessionIsBack) {
  const auto recorder = begin(0);
  add_steps(*recorder, 1, 10);
  EXPECT_TRUE(recorder->recording());
  move_away();
  testing::internal::CaptureStderr();
  add_steps(*recorder, 11, 200);
  EXPECT_FALSE(recorder->recording());
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("the training goes on without the session"), std::string::npos) << told;
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  move_back();
  add_steps(*recorder, 201, 300);
  EXPECT_TRUE(recorder->recording());
  const Status finished = recorder->finish({});
  ASSERT_TRUE(finished.ok()) << finished.error().message;
  const RunRecord run = record();
  EXPECT_EQ(run.summary.status, "done");
  ASSERT_EQ(run.steps.size(), 300u);
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    EXPECT_EQ(run.steps[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(run.steps[i].loss, 1.0 / static_cast<double>(i + 1));
  }
  EXPECT_NE(run.summary.message.find("could not be timed"), std::string::npos) << run.summary.message;
}

TEST_F(RecorderTest, TriesOnceMoreAtTheEnd) {
  const auto recorder = begin(kLong);
  move_away();
  add_steps(*recorder, 1, 100);
  move_back();
  recorder->add_evaluation({100, 1.5, 4, 1000});
  add_steps(*recorder, 101, 120);
  EXPECT_FALSE(recorder->recording()) << "the pause is not over";
  ASSERT_TRUE(recorder->finish({}).ok());
  const RunRecord run = record();
  EXPECT_EQ(run.steps.size(), 120u);
  ASSERT_EQ(run.evaluations.size(), 1u);
  EXPECT_EQ(run.evaluations[0].step, 100);
}

TEST_F(RecorderTest, EndsWithTheErrorThatWasTold) {
  const auto recorder = begin(kLong);
  move_away();
  testing::internal::CaptureStderr();
  add_steps(*recorder, 1, 100);
  const Status finished = recorder->finish({});
  const std::string told = testing::internal::GetCapturedStderr();
  ASSERT_FALSE(finished.ok());
  EXPECT_EQ(finished.error().code, Errc::io);
  EXPECT_EQ("gradloom: " + finished.error().message + "\n", told) << "the end needs no second line";
  move_back();
  EXPECT_EQ(record().summary.status, "running") << "this process is alive; later it reads as interrupted";
}

}  // namespace
}  // namespace gradloom
