#include "engine/device/gpu/runtime/cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gradloom::kernels::gpu {
namespace {

namespace fs = std::filesystem;

class Cache : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  const std::string folder_ = ::testing::TempDir() + "gradloom_cache_test_" + std::to_string(getpid());
};

TEST_F(Cache, GivesBackWhatWasWritten) {
  const std::string name = cache_name("source", "sm_90", "nvrtc 13.0");
  EXPECT_EQ(read_cache(folder_, name), "");
  const std::string code("\177ELF\0code", 9);
  write_cache(folder_, name, code);
  EXPECT_EQ(read_cache(folder_, name), code);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "temporary files remain";
}

TEST_F(Cache, NamesDependOnSourceArchitectureAndCompiler) {
  const std::string name = cache_name("source", "sm_90", "nvrtc 13.0");
  EXPECT_EQ(name, cache_name("source", "sm_90", "nvrtc 13.0"));
  EXPECT_NE(name, cache_name("sourcf", "sm_90", "nvrtc 13.0"));
  EXPECT_NE(name, cache_name("source", "sm_80", "nvrtc 13.0"));
  EXPECT_NE(name, cache_name("source", "sm_90", "nvrtc 12.9"));
}

TEST_F(Cache, DamagedFilesAreNoCode) {
  const std::string name = cache_name("a", "b", "c"), path = folder_ + "/" + name;
  write_cache(folder_, name, std::string(1000, 'x'));
  fs::resize_file(path, 900);
  EXPECT_EQ(read_cache(folder_, name), "") << "cut";
  write_cache(folder_, name, std::string(1000, 'x'));
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(500) << 'y';
  EXPECT_EQ(read_cache(folder_, name), "") << "changed";
  std::ofstream(path, std::ios::binary) << std::string(64, '\xff');
  EXPECT_EQ(read_cache(folder_, name), "") << "another file";
}

TEST_F(Cache, AFolderThatCannotBeWrittenIsNoError) {
  write_cache("/proc/no_such_folder", "name", "code");
  EXPECT_EQ(read_cache("/proc/no_such_folder", "name"), "");
}

}  // namespace
}  // namespace gradloom::kernels::gpu
