// The floating-point numbers that ranks exchange, and what they are computed in. Private to this folder.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/bf16.h"
#include "engine/base/result.h"
#include "engine/base/tensor.h"

namespace gradloom {

inline float widened(float x) { return x; }
inline double widened(double x) { return x; }
inline float widened(_Float16 x) { return static_cast<float>(x); }
struct Bf16 {
  std::uint16_t bits;
};
inline float widened(Bf16 x) { return bf16_to_f32(x.bits); }
inline void set(float& to, float x) { to = x; }
inline void set(double& to, double x) { to = x; }
inline void set(_Float16& to, float x) { to = static_cast<_Float16>(x); }
inline void set(Bf16& to, float x) { to.bits = f32_to_bf16(x); }

// Calls f with a number of the type.
template <class F>
void with_type(DType type, const F& f) {
  switch (type) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::f16: return f(_Float16{});
    case DType::bf16: return f(Bf16{});
    default: CHECK(false, "ranks exchange floating-point numbers");
  }
}

// to = the mean over all parts, one of each rank, added as a tree (reduce_form.h).
void add_tree(DType type, std::span<const void* const> parts, void* to, std::int64_t count);
// mine = AdaSum of mine and theirs (World::adasum), of so many numbers; `lower`: mine are of the lower ranks.
void combine_adasum(DType type, void* mine, const void* theirs, std::int64_t count, bool lower);

}  // namespace gradloom
