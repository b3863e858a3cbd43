// Tests of the libraries' stand-ins, and of those who call them, with the strict driver in this program.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/device/gpu/driver/driver.h"

namespace gradloom::strict {

class LibraryFixture : public ::testing::Test {
 protected:
  LibraryFixture() { setenv("CUDA_HOME", GRADLOOM_STRICT_FOLDER, 1); }
  void SetUp() override {
    strict_fail("");
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    said();
  }
  // Every test gives back what it made, and is not complained about.
  void TearDown() override {
    strict_fail("");
    for (void* const memory : memory_) EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(said(), "");
    EXPECT_EQ(left(), "");
  }
  static std::string said() { return std::exchange(driver().complaints, ""); }
  static void expect_said(const std::string& words) {
    const std::string text = said();
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
  // Device memory with these numbers.
  template <class T>
  T* device(const std::vector<T>& numbers) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, numbers.size() * sizeof(T)), cudaSuccess);
    memory_.push_back(memory);
    EXPECT_EQ(cudaMemcpyAsync(memory, numbers.data(), numbers.size() * sizeof(T), cudaMemcpyDefault, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return static_cast<T*>(memory);
  }
  // What is in device memory, after all work that was queued.
  template <class T>
  std::vector<T> host(const T* memory, std::size_t count) const {
    std::vector<T> numbers(count);
    EXPECT_EQ(cudaMemcpyAsync(numbers.data(), memory, count * sizeof(T), cudaMemcpyDefault, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return numbers;
  }
  // A function of a stand-in, as who opens it finds it.
  template <class F>
  static F* function(const char* file, const char* name) {
    void* const library =
        dlopen((std::string(GRADLOOM_STRICT_FOLDER "/lib64/") + file).c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    auto* const found = reinterpret_cast<F*>(dlsym(library, name));
    EXPECT_NE(found, nullptr) << name;
    return found;
  }

  cudaStream_t stream_ = nullptr;
  std::vector<void*> memory_;
};

}  // namespace gradloom::strict
