// Element types that kernels and the engine share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradloom {

// The last ten are small types (small_types.h): an element takes a byte in memory,
// in files as many bits as it has.
enum class DType : std::uint8_t {
  f32,
  f64,
  i32,
  i64,
  u8,
  boolean,
  f16,
  bf16,
  i8,
  i16,
  u16,
  u32,
  u64,
  i4,
  u4,
  i2,
  u2,
  f8e4m3fn,
  f8e4m3fnuz,
  f8e5m2,
  f8e5m2fnuz,
  f4e2m1,
  f8e8m0
};

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
    case DType::boolean:
    case DType::i4:
    case DType::u4:
    case DType::i2:
    case DType::u2:
    case DType::f8e4m3fn:
    case DType::f8e4m3fnuz:
    case DType::f8e5m2:
    case DType::f8e5m2fnuz:
    case DType::f4e2m1:
    case DType::f8e8m0: return 1;
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

// Kept in 16 bits, computed in f32.
constexpr bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }
// A type to compute in; small floats are converted first.
constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::f64 || is_half(t); }

constexpr bool is_small_int(DType t) { return t >= DType::i4 && t <= DType::u2; }
constexpr bool is_small_float(DType t) { return t >= DType::f8e4m3fn; }
constexpr bool is_small(DType t) { return t >= DType::i4; }

// Elements that share a byte in a file, the first in the lowest bits.
constexpr int elements_per_byte(DType t) {
  if (t == DType::i2 || t == DType::u2) return 4;
  return t == DType::i4 || t == DType::u4 || t == DType::f4e2m1 ? 2 : 1;
}

}  // namespace gradloom

namespace gradloom::kernels {

constexpr int kEwMaxRank = 8;  // dims of elementwise programs and of loops over several dims

}  // namespace gradloom::kernels
