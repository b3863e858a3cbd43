// Address space of which only the pages that are touched have memory.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace gradloom::kernels {

// `n` elements of zeros; data() is null where the system reserves memory for all of them.
template <class T>
class SparseMemory {
 public:
  explicit SparseMemory(std::int64_t n) : bytes_(static_cast<std::size_t>(n) * sizeof(T)) {
    void* const at =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = at == MAP_FAILED ? nullptr : static_cast<T*>(at);
  }
  ~SparseMemory() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  T* data() const { return data_; }

 private:
  std::size_t bytes_;
  T* data_;
};

}  // namespace gradloom::kernels
