// What the oneDNN adapters share: the engine, this thread's stream, prepared calls, and workspace layout.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "kernels/types.h"

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
    size_ += aligned_bytes(bytes);
    return at;
  }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_ = 0;
};

inline void* at(void* workspace, std::size_t offset) { return static_cast<char*>(workspace) + offset; }

// A primitive with its arguments. oneDNN's objects are made once; running only tells them addresses that
// changed. One run at a time; a copy shares the primitive and has arguments of its own.
class Call {
 public:
  Call() = default;
  explicit Call(dnnl::primitive primitive) : primitive_(std::move(primitive)) {}
  Call(const Call& other);
  Call& operator=(const Call& other);
  Call(Call&&) = default;
  Call& operator=(Call&&) = default;
  ~Call() = default;

  void add(int slot, const dnnl::memory::desc& desc);
  // One address per argument, in the order of add; what goes beyond is not read (a bias that is not there).
  void run(std::initializer_list<const void*> addresses);

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;  // behind the handles in arguments_
  std::vector<dnnl_exec_arg_t> arguments_;
};

// From one layout to another: run({from, to}).
Call reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

bool is_reference(const char* implementation);

}  // namespace gradloom::kernels::prepared
