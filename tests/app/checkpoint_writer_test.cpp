#include "app/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "tests/folder.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

std::unique_ptr<Job> make_job() {
  const std::string folder = GRADLOOM_SOURCE_DIR "/tests/models/mlp";
  Recipe recipe;
  recipe.model = folder + "/model.onnx";
  recipe.data = "npz:" + folder + "/batches.npz";
  recipe.loss = "ce:logits,labels";
  recipe.dims = {{"batch", 8}};
  auto prepared = prepare(recipe);
  EXPECT_TRUE(prepared.ok()) << prepared.error().message;
  auto job = Job::create(std::move(prepared).value());
  EXPECT_TRUE(job.ok()) << job.error().message;
  return std::move(job).value();
}

std::unique_ptr<CheckpointWriter> make_writer(const CheckpointOptions& options, const Job& job,
                                              const Output& out) {
  auto writer = CheckpointWriter::create(options, job, out);
  EXPECT_TRUE(writer.ok()) << writer.error().message;
  return writer.ok() ? std::move(writer).value() : nullptr;
}

TEST(CheckpointWriter, IsDueEverySoManySteps) {
  const TemporaryFolder folder;
  const auto job = make_job();
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
  third->finish(*job, 3);
  EXPECT_EQ(third->written(), 1);
  last->finish(*job, 4);
  EXPECT_EQ(last->latest_step(), 4);
  nothing->finish(*job, 4);
  EXPECT_TRUE(nothing->latest().empty());
}

TEST(CheckpointWriter, AFailureIsKeptUntilOneIsWritten) {
  const TemporaryFolder folder;
  const auto job = make_job();
  const Output out;
  const CheckpointOptions options{folder / "c", 1, 2};
  const auto writer = make_writer(options, *job, out);
  std::filesystem::remove(folder / "c");
  testing::internal::CaptureStderr();
  writer->write(*job, 1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cannot make"), std::string::npos);
  EXPECT_EQ(writer->status().error().code, Errc::io);
  EXPECT_FALSE(writer->due(1)) << "the next is tried when it is due";
  EXPECT_TRUE(writer->due(2));
  std::filesystem::create_directory(folder / "c");
  testing::internal::CaptureStdout();
  writer->write(*job, 2);
  testing::internal::GetCapturedStdout();
  EXPECT_TRUE(writer->status().ok());
}

TEST(CheckpointWriter, SpoiledParametersAreNotWritten) {
  const TemporaryFolder folder;
  const auto job = make_job();
  const Output out;
  const CheckpointOptions options{folder / "c", 1, 2};
  const auto writer = make_writer(options, *job, out);
  const ValueId id = job->compiled().train.graph.parameters[0];
  Tensor spoiled = *job->executor().read(id);
  spoiled.mutable_as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(job->executor().write(id, spoiled).ok());
  testing::internal::CaptureStderr();
  writer->write(*job, 1);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(writer->status().error().code, Errc::numeric);
  EXPECT_TRUE(checkpoint_steps(folder / "c").empty());
}

}  // namespace
}  // namespace gradloom
