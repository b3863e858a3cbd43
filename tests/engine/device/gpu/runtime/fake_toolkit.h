// A toolkit whose libraries are stand-ins (fake_*.cpp), found before all others by those who look for one.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace gradloom::test {

class FakeLibrary {
 public:
  explicit FakeLibrary(const std::string& name) {
    for (const char* home : {"CUDA_HOME", "ROCM_PATH"}) setenv(home, GRADLOOM_FAKE_TOOLKIT, 1);
    handle_ = dlopen((std::string(GRADLOOM_FAKE_TOOLKIT "/lib64/") + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  int count(const char* name) const { return function<int(const char*)>("fake_count")(name); }
  void fail(const char* name, int n, int status) const {
    function<void(const char*, int, int)>("fake_fail")(name, n, status);
  }
  template <class F>
  F* function(const char* name) const {
    auto* const found = reinterpret_cast<F*>(dlsym(handle_, name));
    EXPECT_NE(found, nullptr) << name;
    return found;
  }

 private:
  void* handle_ = nullptr;
};

}  // namespace gradloom::test
