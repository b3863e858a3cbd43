#include "app/checkpoint_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <thread>

#include "tests/app/checkpoint_support.h"
#include "tests/folder.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

class CheckpointFolders : public testing::Test {
 protected:
  std::unique_ptr<CheckpointFolder> open(std::int64_t keep, std::int64_t begins_after = 0) const {
    auto opened = CheckpointFolder::open(path_, keep, begins_after, std::string(32, 'a'));
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return opened.ok() ? std::move(opened).value() : nullptr;
  }
  void write(CheckpointFolder& folder, std::int64_t step) const {
    const auto written = folder.write(small_checkpoint(step));
    ASSERT_TRUE(written.ok()) << written.error().message;
    EXPECT_EQ(*written, checkpoint_path(path_, step));
  }
  static void expect_error(const Error& error, Errc code, const std::string& text) {
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_NE(error.message.find(text), std::string::npos) << error.message;
  }
  void damage(std::int64_t step) const {
    const std::string path = checkpoint_path(path_, step) + "/model.safetensors";
    std::string bytes = bytes_of(path);
    bytes.back() ^= 1;
    write_bytes(path, bytes);
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }
  TemporaryFolder folder_;
  const std::string path_ = folder_ / "a/b";
};

TEST_F(CheckpointFolders, KeepsTheNewest) {
  const auto folder = open(2);
  ASSERT_NE(folder, nullptr);
  for (const std::int64_t step : {5, 10, 15, 123456789}) write(*folder, step);
  EXPECT_EQ(checkpoint_steps(path_), (Steps{15, 123456789}));
  EXPECT_EQ(entries(), 2u) << "nothing else is left";
  const auto newest = open_checkpoint(path_);
  ASSERT_TRUE(newest.ok()) << newest.error().message;
  EXPECT_EQ(newest->step, 123456789);
  const auto chosen = open_checkpoint(path_ + "/step-00000015/");
  ASSERT_TRUE(chosen.ok()) << chosen.error().message;
  EXPECT_EQ(chosen->step, 15);
}

TEST_F(CheckpointFolders, AProtectedOneStaysBesideTheNewest) {
  const auto folder = open(1);
  ASSERT_NE(folder, nullptr);
  write(*folder, 5);
  folder->protect(5);
  for (const std::int64_t step : {10, 15}) write(*folder, step);
  EXPECT_EQ(checkpoint_steps(path_), (Steps{5, 15}));
  folder->protect(20);
  write(*folder, 20);
  EXPECT_EQ(checkpoint_steps(path_), Steps{20});
  write(*folder, 25);
  EXPECT_EQ(checkpoint_steps(path_), (Steps{20, 25}));
}

TEST_F(CheckpointFolders, KeepsAllWhenAsked) {
  const auto folder = open(0);
  ASSERT_NE(folder, nullptr);
  for (std::int64_t step = 1; step <= 5; ++step) write(*folder, step);
  EXPECT_EQ(checkpoint_steps(path_), (Steps{1, 2, 3, 4, 5}));
}

TEST_F(CheckpointFolders, WhatIsNoCheckpointIsLeftAlone) {
  fs::create_directories(path_);
  for (const char* name : {"step-5", "step-00000005.old", "notes", "step-0000000x"})
    fs::create_directory(path_ + "/" + name);
  const auto folder = open(1);
  ASSERT_NE(folder, nullptr);
  for (const std::int64_t step : {6, 7}) write(*folder, step);
  EXPECT_EQ(checkpoint_steps(path_), (Steps{7}));
  EXPECT_EQ(entries(), 5u);
}

TEST_F(CheckpointFolders, ADamagedOneIsNamedWithTheNewestThatIsWhole) {
  {
    const auto folder = open(0);
    ASSERT_NE(folder, nullptr);
    for (const std::int64_t step : {5, 10, 15}) write(*folder, step);
  }
  damage(15);
  for (const std::string& asked : {path_, checkpoint_path(path_, 15)}) {
    const auto read = open_checkpoint(asked);
    ASSERT_FALSE(read.ok());
    expect_error(
        read.error(), Errc::bad_input,
        "step-00000015/model.safetensors: is damaged: its checksum is wrong; the newest that is whole is " +
            checkpoint_path(path_, 10));
  }
  damage(10);
  expect_error(open_checkpoint(path_).error(), Errc::bad_input, "whole is " + checkpoint_path(path_, 5));
  damage(5);
  expect_error(open_checkpoint(path_).error(), Errc::bad_input, "no older checkpoint there is whole");
}

TEST_F(CheckpointFolders, ItMustBeThere) {
  expect_error(open_checkpoint(folder_ / "none").error(), Errc::io, "No such file");
  expect_error(open_checkpoint(folder_.path()).error(), Errc::bad_input, "no checkpoint, and none in it");
  write_bytes(folder_ / "file", "text");
  expect_error(open_checkpoint(folder_ / "file").error(), Errc::bad_input, "no checkpoint");
  expect_error(CheckpointFolder::open(folder_ / "file", 2, 0, "").error(), Errc::io, "file");
  expect_error(CheckpointFolder::open(folder_ / "file/x", 2, 0, "").error(), Errc::io, "file/x");
}

TEST_F(CheckpointFolders, AnotherTrainingsFolderIsRefused) {
  {
    const auto folder = open(2);
    ASSERT_NE(folder, nullptr);
    write(*folder, 10);
    expect_error(CheckpointFolder::open(path_, 2, 10, "").error(), Errc::usage, "another training writes");
  }
  expect_error(CheckpointFolder::open(path_, 2, 9, std::string(32, 'a')).error(), Errc::usage,
               "has a checkpoint of step 10, this training begins after step 9");
  expect_error(CheckpointFolder::open(path_, 2, 10, std::string(32, 'b')).error(), Errc::usage,
               "has checkpoints of another model (/models/m.onnx)");
  EXPECT_NE(open(2, 10), nullptr);
}

TEST_F(CheckpointFolders, AStepIsWrittenAnew) {
  const auto folder = open(2);
  ASSERT_NE(folder, nullptr);
  write(*folder, 1);
  Checkpoint again = small_checkpoint(1);
  again.made_steps = 1;
  const auto written = folder->write(again);
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(entries(), 1u) << "nothing of the old one is left";
  EXPECT_EQ(open_checkpoint(path_)->made_steps, 1);
}

TEST_F(CheckpointFolders, AFailedWriteChangesNothing) {
  const auto folder = open(1);
  ASSERT_NE(folder, nullptr);
  write(*folder, 1);
  Checkpoint bad = small_checkpoint(2);
  bad.optimizer.tensors["\xff"] = Tensor::scalar(DType::f32, 1);
  EXPECT_FALSE(folder->write(bad).ok());
  EXPECT_EQ(checkpoint_steps(path_), (Steps{1}));
  EXPECT_EQ(entries(), 1u);
  EXPECT_TRUE(open_checkpoint(path_).ok());
}

// A disk that is full after so many bytes of a file, from none on.
TEST_F(CheckpointFolders, AFullDiskLeavesTheOldCheckpoint) {
  {
    const auto folder = open(1);
    ASSERT_NE(folder, nullptr);
    write(*folder, 1);
  }
  int failed = 0;
  for (rlim_t bytes = 0; bytes < 2000; bytes += 50) {
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{bytes, bytes};
      setrlimit(RLIMIT_FSIZE, &limit);
      auto folder = CheckpointFolder::open(path_, 1, 1, std::string(32, 'a'));
      const auto written = folder.ok() ? (*folder)->write(small_checkpoint(2)) : folder.error();
      _exit(written.ok() ? 0 : static_cast<int>(written.error().code));
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 0) break;
    ++failed;
    EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(Errc::io)) << bytes;
    EXPECT_EQ(checkpoint_steps(path_), (Steps{1})) << bytes;
    EXPECT_EQ(entries(), 1u) << bytes;
    ASSERT_TRUE(open_checkpoint(path_).ok()) << bytes;
  }
  EXPECT_GT(failed, 10) << "every file is cut somewhere";
  EXPECT_EQ(checkpoint_steps(path_), (Steps{2}));
}

// A process that is killed at any moment leaves its newest checkpoint, or the one before, and a folder that the next
// process goes on with. GRADLOOM_TEST_KILLS says how often it is tried.
TEST_F(CheckpointFolders, AKilledWriterLeavesWholeCheckpoints) {
  const char* const wanted = getenv("GRADLOOM_TEST_KILLS");
  const int kills = wanted != nullptr ? atoi(wanted) : 12;
  std::mt19937_64 random(18);
  std::int64_t done = 0;
  std::uint64_t longest_us =
      60'000;  // grows where the machine is slow, until something is written before the end
  for (int i = 0; i < kills || done == 0; ++i) {
    ASSERT_LT(i, kills + 10) << "nothing is written in a minute";
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto folder = CheckpointFolder::open(path_, 2, done, std::string(32, 'a'));
      for (std::int64_t step = done + 1; folder.ok(); ++step)
        if (!(*folder)->write(small_checkpoint(step)).ok() || ::write(told[1], &step, sizeof step) < 0) break;
      _exit(1);
    }
    close(told[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + random() % longest_us));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
    std::int64_t acknowledged = done;
    while (read(told[0], &acknowledged, sizeof acknowledged) == sizeof acknowledged) {
    }
    close(told[0]);
    if (acknowledged == 0) longest_us *= 2;
    if (checkpoint_steps(path_).empty() && acknowledged == 0) continue;
    const auto newest = open_checkpoint(path_);
    ASSERT_TRUE(newest.ok()) << "kill " << i << ": " << newest.error().message;
    EXPECT_GE(newest->step, acknowledged) << "what was acknowledged is there";
    for (const std::int64_t step : checkpoint_steps(path_))
      EXPECT_TRUE(read_checkpoint(checkpoint_path(path_, step)).ok()) << step;
    done = newest->step;
  }
  EXPECT_GT(done, 0);
  ASSERT_NE(open(2, done), nullptr);
  EXPECT_EQ(entries(), checkpoint_steps(path_).size()) << "what was unfinished is removed";
}

}  // namespace
}  // namespace gradloom
