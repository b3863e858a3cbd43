// Groups of Pack<T>::kCount neighbours of a tensor, as they are stored and in the type to compute in. A
// thread takes the same elements whether they are packs (one 16-byte access) or not (end of a tensor, odd
// addresses), so results do not depend on alignment.
#pragma once

#include "kernels/gpu/gpu.h"

namespace gradloom::kernels::gpu {

template <class T>
struct Group {
  static constexpr int kCount = Pack<T>::kCount;
  Accum<T> v[kCount];
};

// Elements [0, count) of `from`, zeros after them, as they are: loads that come one after the other are under
// way together, where a conversion would wait for each. packed: `from` is at a 16-byte boundary.
template <class T>
GRADLOOM_DEVICE Pack<T> fetch(const T* from, long long count, bool packed) {
  constexpr int kCount = Pack<T>::kCount;
  if (packed && count >= kCount) return load_pack(from);
  Pack<T> pack;
  for (int i = 0; i < kCount; ++i) pack.v[i] = i < count ? from[i] : T{};
  return pack;
}

template <class T>
GRADLOOM_DEVICE Group<T> to_group(const Pack<T>& pack) {
  Group<T> group;
  for (int i = 0; i < Group<T>::kCount; ++i) group.v[i] = to_accum(pack.v[i]);
  return group;
}

template <class T>
GRADLOOM_DEVICE void store_group(T* to, const Group<T>& group, long long count, bool packed) {
  constexpr int kCount = Group<T>::kCount;
  if (packed && count >= kCount) {
    Pack<T> pack;
    for (int i = 0; i < kCount; ++i) pack.v[i] = from_accum<T>(group.v[i]);
    store_pack(to, pack);
  } else {
    for (int i = 0; i < kCount; ++i) {
      if (i < count) to[i] = from_accum<T>(group.v[i]);
    }
  }
}

GRADLOOM_HD bool aligned16(const void* p) { return reinterpret_cast<unsigned long long>(p) % 16 == 0; }

}  // namespace gradloom::kernels::gpu
