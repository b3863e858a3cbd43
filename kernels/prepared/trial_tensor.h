// Operands of a trial of oneDNN's kernels: the same numbers in tensors that lie differently, to see whether what is made of them has the
// same bits. f32 and bf16, any strides.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/prepared/dnnl.h"

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
  TrialTensor(const dnnl::memory::desc& desc, std::uint32_t seed)
      : desc_(desc),
        element_(desc.data_type() == dnnl::memory::data_type::bf16 ? 2 : 4),
        memory_(aligned_memory(desc.get_size())) {
    for_rows([&](char* row, std::int64_t step, std::int64_t count, std::int64_t number) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t bits = number_bits(std::uint32_t(number + i) + seed * 40503u);
        const auto upper = std::uint16_t(bits >> 16);
        std::memcpy(row + i * step, element_ == 2 ? static_cast<const void*>(&upper) : &bits,
                    std::size_t(element_));
      }
    });
  }
  void* data() { return memory_.get(); }
  // Of the elements one after the other, wherever they lie.
  std::vector<char> bits() const {
    std::vector<char> all;
    for_rows([&](const char* row, std::int64_t step, std::int64_t count, std::int64_t) {
      if (step == element_) {
        all.insert(all.end(), row, row + count * element_);
      } else {
        for (std::int64_t i = 0; i < count; ++i)
          all.insert(all.end(), row + i * step, row + i * step + element_);
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
      body(memory_.get() + at * element_, strides[last] * element_, dims[last], row * dims[last]);
    }
  }

  dnnl::memory::desc desc_;
  std::int64_t element_;  // bytes
  AlignedMemory memory_;
};

}  // namespace gradloom::kernels::prepared
