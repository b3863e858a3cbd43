// Shared by the kernel tests: reproducible values, comparison with tolerances, and a harness that runs a
// kernel on every x86-64 level of this machine with several thread counts and asks for equal bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cpu.h"

namespace gradloom::kernels::test {

// The upper half of a float, rounded to the nearest, ties to even.
struct Bf16 {
  std::uint16_t bits = 0;
  Bf16() = default;
  explicit Bf16(double value) {
    const auto narrow = static_cast<float>(value);
    std::uint32_t all = 0;
    std::memcpy(&all, &narrow, sizeof all);
    if (std::isnan(narrow))
      all |= 0x400000u;
    else
      all += 0x7fffu + (all >> 16 & 1u);
    bits = std::uint16_t(all >> 16);
  }
  operator float() const {
    const std::uint32_t all = std::uint32_t(bits) << 16;
    float value = 0;
    std::memcpy(&value, &all, sizeof value);
    return value;
  }
};

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, Bf16>) return DType::bf16;
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  return DType::u8;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  double uniform(double low, double high) { return low + (high - low) * double(bits() >> 11) * 0x1p-53; }
  std::int64_t below(std::int64_t n) { return std::int64_t(bits() % std::uint64_t(n)); }

 private:
  std::uint64_t state_;
};

template <class T>
std::vector<T> values(std::int64_t n, std::uint64_t seed, double low = -2.0, double high = 2.0) {
  Random random(seed);
  std::vector<T> v(static_cast<std::size_t>(n));
  for (T& x : v) x = T(random.uniform(low, high));
  return v;
}

struct Tolerance {
  double relative, absolute;
};
template <class T>
constexpr Tolerance elementwise_tolerance() {
  return std::is_same_v<T, float> ? Tolerance{1.3e-6, 1e-6} : Tolerance{1e-12, 1e-14};
}
template <class T>
constexpr Tolerance reduction_tolerance() {
  if (std::is_same_v<T, Bf16>) return {0x1p-8, 1e-3};  // rounded once, activations once more
  return std::is_same_v<T, float> ? Tolerance{1e-5, 1e-5} : Tolerance{1e-10, 1e-12};
}
template <class T>
constexpr Tolerance gradient_tolerance() {
  if (std::is_same_v<T, Bf16>) return reduction_tolerance<T>();
  return std::is_same_v<T, float> ? Tolerance{1e-4, 1e-5} : Tolerance{1e-10, 1e-12};
}

// |a - b| <= absolute + relative |b|, NaN and infinities in the same places.
// Reports the first few differences.
template <class T>
void expect_close(const std::vector<T>& actual, const std::vector<double>& expected, Tolerance tolerance,
                  const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  int reported = 0;
  for (std::size_t i = 0; i < actual.size() && reported < 3; ++i) {
    const double a = double(actual[i]), b = expected[i];
    bool good = std::abs(a - b) <= tolerance.absolute + tolerance.relative * std::abs(b);
    if (std::isnan(b)) good = std::isnan(a);
    if (std::isinf(b)) good = a == b;
    if (good) continue;
    ++reported;
    ADD_FAILURE() << what << ": element " << i << " is " << a << ", expected " << b << " (difference "
                  << a - b << ")";
  }
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

inline std::vector<const CpuKernels*> levels() {
  const CpuKernels* found[8];
  const int count = cpu_levels(found, 8);
  return {found, found + count};
}

// run(kernels) -> vector of results. Calls check(result, level) once per level; 1, 2 and 3 threads and a
// repetition must give the same bits.
template <class Run, class Check>
void on_every_level(const Run& run, const Check& check) {
  for (const CpuKernels* kernels : levels()) {
    set_threads(1);
    const auto one = run(*kernels);
    for (const int team : {2, 3, 2}) {
      set_threads(team);
      EXPECT_TRUE(same_bits(one, run(*kernels)))
          << "level " << kernels->isa << ": bits differ with " << team << " threads";
    }
    check(one, std::string("level ") + kernels->isa);
  }
  set_threads(2);
}

template <class Run>
void expect_on_every_level(const Run& run, const std::vector<double>& expected, Tolerance tolerance,
                           const std::string& what = "") {
  on_every_level(run, [&](const auto& result, const std::string& level) {
    expect_close(result, expected, tolerance, what + " " + level);
  });
}

}  // namespace gradloom::kernels::test
