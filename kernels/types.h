// Element types that kernels and the engine share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradloom {

enum class DType : std::uint8_t { f32, f64, i32, i64, u8, boolean, f16, bf16, i8, i16, u16, u32, u64 };

constexpr std::size_t dtype_bytes(DType t) {
  switch (t) {
    case DType::f32:
    case DType::i32:
    case DType::u32: return 4;
    case DType::f64:
    case DType::i64:
    case DType::u64: return 8;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16: return 2;
    case DType::u8:
    case DType::i8:
    case DType::boolean: return 1;
  }
  return 0;
}

// Buffers and the pieces of workspaces begin at multiples of it, and take whole ones.
constexpr std::int64_t kAlignmentBytes = 64;
template <class Int>
constexpr Int aligned_bytes(Int bytes) {
  return (bytes + Int(kAlignmentBytes) - 1) / Int(kAlignmentBytes) * Int(kAlignmentBytes);
}
constexpr std::size_t aligned_bytes(DType t, std::int64_t elements) {
  return aligned_bytes(std::size_t(elements) * dtype_bytes(t));
}

constexpr bool is_float(DType t) {
  return t == DType::f32 || t == DType::f64 || t == DType::f16 || t == DType::bf16;
}

}  // namespace gradloom
