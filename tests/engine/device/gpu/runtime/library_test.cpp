#include "engine/device/gpu/runtime/library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace gradloom::kernels::gpu {
namespace {

namespace fs = std::filesystem;

// A variable of the environment for the length of a test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { old_.empty() ? unsetenv(name_) : setenv(name_, old_.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string old_;
};

// A shared library under another name: the C library's math, which every machine has.
class Libraries : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    void* math = dlopen("libm.so.6", RTLD_NOW);
    link_map* map = nullptr;
    ASSERT_EQ(dlinfo(math, RTLD_DI_LINKMAP, &map), 0);
    math_ = map->l_name;
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string put(const std::string& folder, const std::string& name) {
    fs::create_directories(root_ / folder);
    fs::copy_file(math_, root_ / folder / name);
    return (root_ / folder / name).string();
  }
  const fs::path root_ =
      fs::path(::testing::TempDir()) / ("gradloom_library_test_" + std::to_string(getpid()));
  std::string math_;
};

TEST_F(Libraries, ToolkitBeforeWheels) {
  put("venv/lib/python3.11/site-packages/nvidia/cuda_probe/lib", "libgradloom_probe_a.so");
  const std::string toolkit = put("toolkit/lib64", "libgradloom_probe_a.so");
  const Variable home("CUDA_HOME", (root_ / "toolkit").string()),
      venv("VIRTUAL_ENV", (root_ / "venv").string());
  Library library{"libgradloom_probe_a.so"};
  ASSERT_TRUE(library) << library.error();
  EXPECT_EQ(library.path(), toolkit);
}

TEST_F(Libraries, WheelsOfTheActiveEnvironment) {
  const std::string wheel =
      put("venv/lib/python3.11/site-packages/nvidia/cu13/lib", "libgradloom_probe_b.so.13");
  const Variable venv("VIRTUAL_ENV", (root_ / "venv").string());
  Library library{"libgradloom_probe_b.so.14", "libgradloom_probe_b.so.13"};
  ASSERT_TRUE(library) << library.error();
  EXPECT_EQ(library.path(), wheel);
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(library.bind(cosine, "cos"));
  EXPECT_EQ(cosine(0), 1);
  EXPECT_FALSE(library.bind(cosine, "no_such_function"));
  EXPECT_NE(library.error().find("no_such_function"), std::string::npos);
}

TEST_F(Libraries, MissingAndDamagedOnesAreNamed) {
  const Library missing{"libgradloom_probe_c.so.2", "libgradloom_probe_c.so.1"};
  EXPECT_FALSE(missing);
  EXPECT_NE(missing.error().find("libgradloom_probe_c.so.2, libgradloom_probe_c.so.1"), std::string::npos)
      << missing.error();
  fs::create_directories(root_ / "toolkit/lib64");
  std::ofstream(root_ / "toolkit/lib64/libgradloom_probe_d.so") << "no library";
  const Variable home("CUDA_HOME", (root_ / "toolkit").string());
  const Library damaged{"libgradloom_probe_d.so"};
  EXPECT_FALSE(damaged);
  EXPECT_NE(damaged.error().find("toolkit/lib64/libgradloom_probe_d.so"), std::string::npos)
      << damaged.error();
}

}  // namespace
}  // namespace gradloom::kernels::gpu
