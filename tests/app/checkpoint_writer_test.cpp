#include "app/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "tests/app/model_job.h"
#include "tests/folder.h"

namespace gradloom {
namespace {

std::unique_ptr<CheckpointWriter> make_writer(const CheckpointOptions& options, const Job& job,
                                              const Output& out) {
  auto writer = CheckpointWriter::create(options, job, out);
  EXPECT_TRUE(writer.ok()) << writer.error().message;
  return writer.ok() ? std::move(writer).value() : nullptr;
}

TEST(CheckpointWriter, IsDueEverySoManySteps) {
  const TemporaryFolder folder;
  const auto job = make_job(model_recipe("mlp"));
  const Output out;
  const CheckpointOptions none, every_third{folder / "c", 3, 2}, at_end{folder / "d", 0, 2};
  const auto nothing = make_writer(none, *job, out), third = make_writer(every_third, *job, out),
             last = make_writer(at_end, *job, out);
  for (std::int64_t step = 0; step < 10; ++step) {
    EXPECT_FALSE(nothing->due(step)) << step;
    EXPECT_FALSE(last->due(step)) << step;
    EXPECT_EQ(third->due(step), step > 0 && step % 3 == 0) << step;
  }
  third->write(*job, 3);
  EXPECT_FALSE(third->due(3)) << "it is written";
  third->finish(*job, 3, false);
  EXPECT_EQ(third->written(), 1);
  last->finish(*job, 4, false);
  EXPECT_EQ(last->latest_step(), 4);
  nothing->finish(*job, 4, false);
  EXPECT_TRUE(nothing->latest().empty());
}

// A job whose every step is due.
struct EveryStep {
  const TemporaryFolder folder{};
  const std::unique_ptr<Job> job = make_job(model_recipe("mlp"));
  const Output out{};
  const CheckpointOptions options{folder / "c", 1, 2};
  const std::unique_ptr<CheckpointWriter> writer = make_writer(options, *job, out);
};

TEST(CheckpointWriter, AFailureIsKeptUntilOneIsWritten) {
  const EveryStep at;
  std::filesystem::remove(at.folder / "c");
  testing::internal::CaptureStderr();
  at.writer->write(*at.job, 1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cannot make"), std::string::npos);
  EXPECT_EQ(at.writer->status().error().code, Errc::io);
  EXPECT_FALSE(at.writer->due(1)) << "the next is tried when it is due";
  EXPECT_TRUE(at.writer->due(2));
  std::filesystem::create_directory(at.folder / "c");
  testing::internal::CaptureStdout();
  at.writer->write(*at.job, 2);
  testing::internal::GetCapturedStdout();
  EXPECT_TRUE(at.writer->status().ok());
}

TEST(CheckpointWriter, SpoiledParametersAreNotWritten) {
  const EveryStep at;
  const ValueId id = at.job->compiled().train.graph.parameters[0];
  Tensor spoiled = *at.job->executor().read(id);
  spoiled.mutable_as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(at.job->executor().write(id, spoiled).ok());
  testing::internal::CaptureStderr();
  at.writer->write(*at.job, 1);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(at.writer->status().error().code, Errc::numeric);
  EXPECT_TRUE(checkpoint_steps(at.folder / "c").empty());
}

}  // namespace
}  // namespace gradloom
