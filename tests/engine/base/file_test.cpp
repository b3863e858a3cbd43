#include "engine/base/file.h"
#include "tests/folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gradloom {
namespace {

class FileTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_ / name; }
  std::ptrdiff_t entries() const {
    return std::distance(std::filesystem::directory_iterator(folder_.path()),
                         std::filesystem::directory_iterator());
  }
  TemporaryFolder folder_;
};

TEST_F(FileTest, WritesAndReplaces) {
  ASSERT_TRUE(atomic_write_file(at("a"), "one").ok());
  EXPECT_EQ(*read_file_limited(at("a"), 100), "one");
  ASSERT_EQ(::chmod(at("a").c_str(), 0640), 0);
  ASSERT_TRUE(atomic_write_file(at("a"), std::string("two\0x", 5)).ok());
  EXPECT_EQ(*read_file_limited(at("a"), 5), std::string("two\0x", 5));
  EXPECT_EQ(entries(), 1);
  struct stat info {};
  ASSERT_EQ(::stat(at("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u) << "the mode is kept";
}

TEST_F(FileTest, FollowsLinks) {
  ASSERT_TRUE(atomic_write_file(at("real"), "1").ok());
  ASSERT_EQ(::symlink("real", at("link").c_str()), 0);
  ASSERT_TRUE(atomic_write_file(at("link"), "2").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(at("link")));
  EXPECT_EQ(*read_file_limited(at("real"), 10), "2");
}

TEST_F(FileTest, ErrorsLeaveNothingBehind) {
  EXPECT_EQ(atomic_write_file(at("no/such"), "x").error().code, Errc::io);
  EXPECT_EQ(atomic_write_file(folder_.path(), "x").error().code, Errc::io);
  ASSERT_TRUE(atomic_write_file(at("a"), "old").ok());
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit {
      1000, 1000
    };
    ::setrlimit(RLIMIT_FSIZE, &limit);  // like a full disk
    const Status status = atomic_write_file(at("a"), std::string(5000, 'x'));
    ::_exit(!status.ok() && status.error().code == Errc::io ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(*read_file_limited(at("a"), 10), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, WritesInPiecesAndAppearsWhole) {
  ASSERT_TRUE(atomic_write_file(at("a"), "old").ok());
  {
    auto file = AtomicFile::create(at("a"));
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_TRUE(file->write("one ").ok());
    EXPECT_EQ(*read_file_limited(at("a"), 10), "old");
    ASSERT_TRUE(file->write("two").ok());
    ASSERT_TRUE(file->commit().ok());
  }
  EXPECT_EQ(*read_file_limited(at("a"), 10), "one two");
  {
    const auto given_up = AtomicFile::create(at("a"));
    ASSERT_TRUE(given_up.ok());
  }
  EXPECT_EQ(*read_file_limited(at("a"), 10), "one two");
  EXPECT_EQ(entries(), 1);
}

// A command that Ctrl-C ends at once, or that runs out of memory, leaves no part of a file.
TEST_F(FileTest, DeathWhileWritingLeavesNothing) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto file = AtomicFile::create(at("a"));
    ::_exit(file.ok() && file->write("half").ok() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(entries(), 0);
}

TEST_F(FileTest, TellsWhatCannotBeWrittenWithoutLeavingFiles) {
  EXPECT_TRUE(check_writable(at("new")).ok());
  EXPECT_EQ(entries(), 0);
  ASSERT_TRUE(atomic_write_file(at("a"), "old").ok());
  EXPECT_TRUE(check_writable(at("a")).ok());
  EXPECT_EQ(check_writable(at("a/b")).error().code, Errc::io);
  EXPECT_EQ(check_writable(at("none/b")).error().code, Errc::io);
  EXPECT_EQ(check_writable(folder_.path()).error().code, Errc::io);
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(check_writable(at("pipe")).ok()) << "and does not wait for a reader";
  EXPECT_TRUE(check_writable("/dev/null").ok());
  EXPECT_EQ(entries(), 2);
  EXPECT_EQ(*read_file_limited(at("a"), 10), "old");
}

TEST_F(FileTest, ReadsWithinTheLimit) {
  ASSERT_TRUE(atomic_write_file(at("a"), "12345").ok());
  EXPECT_TRUE(read_file_limited(at("a"), 5).ok());
  EXPECT_EQ(read_file_limited(at("a"), 4).error().code, Errc::limit);
  EXPECT_EQ(read_file_limited(at("none"), 4).error().code, Errc::io);
  EXPECT_EQ(read_file_limited(folder_.path(), 4).error().code, Errc::io);
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_file_limited(at("pipe"), 4).error().code, Errc::io) << "and does not wait";
  EXPECT_FALSE(read_file_limited("/proc/self/status", 1 << 20)->empty()) << "files whose size reads as 0";
  EXPECT_EQ(read_file_limited("/proc/self/status", 10).error().code, Errc::limit);
  ASSERT_TRUE(atomic_write_file(at("empty"), "").ok());
  EXPECT_EQ(*read_file_limited(at("empty"), 0), "");
}

}  // namespace
}  // namespace gradloom
