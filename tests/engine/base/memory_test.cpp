#include "engine/base/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "tests/folder.h"

namespace gradloom {
namespace {

class Cgroups : public testing::Test {
 protected:
  void file(const std::string& path, const std::string& text) {
    const std::filesystem::path full = mounts_ / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
  }
  std::int64_t limit(const std::string& membership) const {
    return cgroup_memory_limit(membership, mounts_.path());
  }
  TemporaryFolder mounts_;
};

TEST_F(Cgroups, VersionTwo) {
  EXPECT_EQ(limit("0::/user/run\n"), INT64_MAX);
  file("user/run/memory.max", "max");
  EXPECT_EQ(limit("0::/user/run\n"), INT64_MAX);
  file("user/run/memory.max", "300000000");
  EXPECT_EQ(limit("0::/user/run\n"), 300000000);
  file("user/memory.max", "200000000");
  EXPECT_EQ(limit("0::/user/run\n"), 200000000);
}

// A container is told of a path that it does not see.
TEST_F(Cgroups, TheOutermostCounts) {
  file("memory.max", "100000000");
  EXPECT_EQ(limit("0::/docker/0123\n"), 100000000);
  EXPECT_EQ(limit("0::/\n"), 100000000);
}

TEST_F(Cgroups, VersionOne) {
  const std::string membership = "5:cpu,cpuacct:/a\n4:memory:/a/b\n3:cpuset:/\n";
  file("memory/a/b/memory.limit_in_bytes", "9223372036854771712");  // what the kernel writes for none
  EXPECT_GE(limit(membership), std::int64_t{1} << 60);
  file("memory/a/memory.limit_in_bytes", "150000000");
  EXPECT_EQ(limit(membership), 150000000);
  file("cpu/a/memory.limit_in_bytes", "1");
  EXPECT_EQ(limit(membership), 150000000);
}

TEST_F(Cgroups, BothVersions) {
  file("memory/a/memory.limit_in_bytes", "150000000");
  file("unified/b/memory.max", "120000000");
  EXPECT_EQ(limit("1:memory:/a\n0::/b\n"), 120000000);
}

TEST_F(Cgroups, NonsenseIsNoLimit) {
  file("a/memory.max", "many");
  for (const char* membership : {"", "\n", "0", "0:", "0::", "0::/a", "x:memory", "0::/../a\n"})
    EXPECT_EQ(limit(membership), INT64_MAX) << membership;
}

TEST(UsableMemory, IsAtMostTheAddressSpace) {
  EXPECT_GT(usable_memory_bytes(), 1 << 20);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need their address space";
#endif
  const pid_t child = fork();
  if (child == 0) {
    const rlimit little{std::uint64_t{3} << 20, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &little);
    _exit(usable_memory_bytes() <= std::int64_t{3} << 20 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gradloom
