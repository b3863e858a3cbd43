// What the oneDNN adapters share: the engine, this thread's stream, and workspace layout.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace gradloom::kernels::prepared {

const dnnl::engine& engine();
dnnl::stream& stream();

// Makes oneDNN use `count` threads in this scope (it follows OpenMP's setting of the calling thread).
class ThreadScope {
 public:
  explicit ThreadScope(int count);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

// Hands out 64-byte aligned pieces of a workspace: sizes when planning, addresses when running.
class Layout {
 public:
  std::size_t take(std::size_t bytes) {
    const std::size_t at = size_;
    size_ += (bytes + 63) / 64 * 64;
    return at;
  }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_ = 0;
};

inline void* at(void* workspace, std::size_t offset) { return static_cast<char*>(workspace) + offset; }

inline dnnl::memory wrap(const dnnl::memory::desc& desc, const void* data) {
  return {desc, engine(), const_cast<void*>(data)};
}

bool is_reference(const char* implementation);

}  // namespace gradloom::kernels::prepared
