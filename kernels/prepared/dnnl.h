// What the oneDNN adapters share: the engine, prepared calls, parts of tensors, and
// the workspace layout.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <utility>
#include <vector>

#include "kernels/threads.h"
#include "kernels/types.h"

namespace gradloom::kernels::prepared {

const dnnl::engine& engine();

// oneDNN makes and runs primitives for one thread in this scope. The threads are ours (kernels/threads.h):
// work is cut into parts, each a call of such a primitive. oneDNN's own cut follows the number of threads,
// and where OpenMP brings fewer than that (OMP_DYNAMIC, OMP_THREAD_LIMIT), parts of it are never computed.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Into how many parts work is cut by its size, so that each is worth a call of its own: some 10 us, less
// where there would be fewer than four.
std::int64_t worthwhile_parts(double flops, double elements);

// Before a primitive is made: throws OutOfMemory where there is too little memory. oneDNN does not look
// whether it got memory for the code that it generates, and crashes where it did not.
void require_room();

struct OutOfMemory final : std::bad_alloc {
  const char* what() const noexcept override { return "out of memory"; }
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

// A primitive with its arguments, which parts may run side by side: each thread has arguments of its own,
// made for as many threads as there are then. oneDNN's objects are made once; running only tells them
// addresses that changed.
class Call {
 public:
  Call() = default;
  explicit Call(dnnl::primitive primitive)
      : primitive_(std::move(primitive)), threads_(std::size_t(threads())) {}

  void add(int slot, const dnnl::memory::desc& desc);
  // The `most` of for_parts whose parts run it.
  int team() const { return int(threads_.size()); }
  // One address per argument, in the order of add; what goes beyond is not read (a bias that is not there).
  // Throws OutOfMemory or dnnl::error.
  void run(std::initializer_list<const void*> addresses);

 private:
  struct Arguments {
    dnnl::stream stream{engine()};
    std::vector<dnnl::memory> memories;  // behind the handles in list
    std::vector<dnnl_exec_arg_t> list;
  };
  dnnl::primitive primitive_;
  std::vector<Arguments> threads_;
};

// Part of a tensor: its layout and where it begins.
struct Slice {
  dnnl::memory::desc desc;
  std::int64_t offset = 0;  // bytes
};
Slice slice(const dnnl::memory::desc& whole, int dim, std::int64_t begin, std::int64_t count);

// From one layout to another, in parts along the outermost dim that has some.
class Reorder {
 public:
  Reorder() = default;
  Reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  void run(const void* from, void* to);

 private:
  struct Part {
    std::int64_t from, to;  // bytes
    bool last;
  };
  std::vector<Part> parts_;
  Call usual_, last_;
};

// Does oneDNN find AVX-512 (F, CD, BW, DQ and VL) in this processor?
bool has_avx512();

bool is_reference(const char* implementation);

}  // namespace gradloom::kernels::prepared
