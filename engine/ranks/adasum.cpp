#include <algorithm>
#include <array>

#include "engine/ranks/numbers.h"

namespace gradloom {
namespace {

struct Dots {
  double aa = 0, ab = 0, bb = 0;
};

// In eight sums, whose order is the same on every rank.
template <class T>
Dots dots_of(const T* a, const T* b, std::int64_t count) {
  constexpr std::int64_t kLanes = 8;
  std::array<Dots, kLanes> sums{};
  const auto add = [](Dots& to, T left, T right) {
    const double x = widened(left), y = widened(right);
    to.aa += x * x;
    to.ab += x * y;
    to.bb += y * y;
  };
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      add(sums[static_cast<std::size_t>(lane)], a[i + lane], b[i + lane]);
  for (; i < count; ++i) add(sums[0], a[i], b[i]);
  Dots all;
  for (const Dots& sum : sums) {
    all.aa += sum.aa;
    all.ab += sum.ab;
    all.bb += sum.bb;
  }
  return all;
}

template <class T>
void combine(T* mine, const T* theirs, std::int64_t count, bool lower) {
  using Wide = decltype(widened(T{}));
  const T* const a = lower ? mine : theirs;
  const T* const b = lower ? theirs : mine;
  const Dots dots = dots_of(a, b, count);
  const auto factor = [&](double norm) { return static_cast<Wide>(norm > 0 ? 1 - dots.ab / (2 * norm) : 1); };
  const Wide of_a = factor(dots.aa), of_b = factor(dots.bb);
  for (std::int64_t i = 0; i < count; ++i) set(mine[i], of_a * widened(a[i]) + of_b * widened(b[i]));
}

}  // namespace

void combine_adasum(DType type, void* mine, const void* theirs, std::int64_t count, bool lower) {
  with_type(type,
            [&]<class T>(T) { combine(static_cast<T*>(mine), static_cast<const T*>(theirs), count, lower); });
}

}  // namespace gradloom
