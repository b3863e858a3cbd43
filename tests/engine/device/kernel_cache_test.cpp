#include "engine/device/kernel_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/environment.h"
#include "tests/folder.h"

namespace gradloom {
namespace {

class KernelCache : public testing::Test {
 protected:
  void TearDown() override { setenv("HOME", home_.c_str(), 1); }
  TemporaryFolder folder_;
  const std::string home_ = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "/";
};

TEST_F(KernelCache, LiesWhereTheSpecificationSays) {
  setenv("HOME", folder_.path().c_str(), 1);
  const std::string at_home = folder_ / ".cache/gradloom";
  {
    const Setting cache("XDG_CACHE_HOME", (folder_ / "cache").c_str());
    EXPECT_EQ(kernel_cache_folder(), folder_ / "cache/gradloom");
    const Setting own("GRADLOOM_CACHE", (folder_ / "own").c_str());
    EXPECT_EQ(kernel_cache_folder(), folder_ / "own");
  }
  for (const char* no_path : {"", "relative", "./x"}) {
    const Setting cache("XDG_CACHE_HOME", no_path);
    EXPECT_EQ(kernel_cache_folder(), at_home) << no_path;
  }
  struct stat info {};
  ASSERT_EQ(stat(at_home.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_NE(access("relative", F_OK), 0);
  setenv("HOME", "relative", 1);
  EXPECT_EQ(kernel_cache_folder(), "");
}

TEST_F(KernelCache, IsTheUsersAlone) {
  const std::string path = folder_ / "own";
  const Setting own("GRADLOOM_CACHE", path.c_str());
  ASSERT_EQ(kernel_cache_folder(), path);
  for (const mode_t mode : {0770, 0777, 0702}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_EQ(kernel_cache_folder(), "") << std::oct << mode;
  }
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  EXPECT_EQ(kernel_cache_folder(), path) << "others may read it";
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
    EXPECT_EQ(kernel_cache_folder(), "") << "somebody else's";
  }
}

}  // namespace
}  // namespace gradloom
