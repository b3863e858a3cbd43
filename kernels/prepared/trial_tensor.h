// Trials of oneDNN's kernels: the same numbers in tensors that lie differently, to see whether what is made of them has the same bits.
// f32, any strides.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/prepared/dnnl.h"
#include "kernels/prepared/matmul.h"

namespace gradloom::kernels::prepared {

using AlignedMemory = std::unique_ptr<char, void (*)(void*)>;
// `bytes`, aligned as tensors are. Throws OutOfMemory.
inline AlignedMemory aligned_memory(std::size_t bytes) {
  AlignedMemory memory(static_cast<char*>(std::aligned_alloc(64, aligned_bytes(bytes + 1))), std::free);
  if (memory == nullptr) throw OutOfMemory();
  return memory;
}

// In memory of its own. The numbers are told by their place in the tensor and `seed`; their products and sums are rounded.
class TrialTensor {
 public:
  explicit TrialTensor(const dnnl::memory::desc& desc)  // contents undefined
      : desc_(desc), memory_(aligned_memory(desc.get_size())) {}
  TrialTensor(const dnnl::memory::desc& desc, std::uint32_t seed) : TrialTensor(desc) {
    for_rows([&](char* row, std::int64_t step, std::int64_t count, std::int64_t number) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t bits = number_bits(std::uint32_t(number + i) + seed * 40503u);
        std::memcpy(row + i * step, &bits, sizeof bits);
      }
    });
  }
  void* data() { return memory_.get(); }
  // Of the elements one after the other, wherever they lie.
  std::vector<char> bits() const {
    std::vector<char> all;
    for_rows([&](const char* row, std::int64_t step, std::int64_t count, std::int64_t) {
      if (step == kElement) {
        all.insert(all.end(), row, row + count * kElement);
      } else {
        for (std::int64_t i = 0; i < count; ++i)
          all.insert(all.end(), row + i * step, row + i * step + kElement);
      }
    });
    return all;
  }

 private:
  // Of a float of either sign and of 0.5 to 2 in size.
  static std::uint32_t number_bits(std::uint32_t x) {
    x *= 2654435761u;
    x = (x ^ x >> 15) * 2246822519u;
    x ^= x >> 13;
    return (x & 0x80ffffffu) + 0x3f000000u;
  }

  // body(first element, bytes from one to the next, how many, the first one's number in the tensor) for rows of the last dim.
  template <class Body>
  void for_rows(const Body& body) const {
    const dnnl::memory::dims dims = desc_.dims();
    const std::size_t last = dims.size() - 1;
    const dnnl_dim_t* const strides = desc_.data.format_desc.blocking.strides;
    std::int64_t rows = 1;
    for (std::size_t d = 0; d < last; ++d) rows *= dims[d];
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t at = 0, rest = row;
      for (std::size_t d = last; d-- > 0; rest /= dims[d]) at += rest % dims[d] * strides[d];
      body(memory_.get() + at * kElement, strides[last] * kElement, dims[last], row * dims[last]);
    }
  }

  static constexpr std::int64_t kElement = sizeof(float);  // bytes
  dnnl::memory::desc desc_;
  AlignedMemory memory_;
};

// What chooses a kernel for a product.
inline auto trial_key(const MatMulDesc& d) {
  return std::tuple(d.dtype, d.batch, d.m, d.n, d.k, d.a_strides, d.b_strides, d.c_strides, d.alpha, d.bias,
                    d.accumulate, d.wide_c, d.packed_b);
}

// What trials told of two products: layers that are alike ask for the same again.
class TrialVerdicts {
 public:
  template <class Try>
  bool of(const MatMulDesc& x, const MatMulDesc& y, const Try& attempt) {
    const std::pair key(trial_key(x), trial_key(y));
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = verdicts_.find(key); known != verdicts_.end()) return known->second;
    }
    const bool verdict = attempt();
    const std::lock_guard lock(mutex_);
    constexpr std::size_t kMost = 4096;
    if (verdicts_.size() >= kMost) verdicts_.clear();
    return verdicts_[key] = verdict;
  }

 private:
  using Key = decltype(trial_key(MatMulDesc()));
  std::mutex mutex_;
  std::map<std::pair<Key, Key>, bool> verdicts_;
};

}  // namespace gradloom::kernels::prepared
