// Optimizer states of 8 bits (kernels/block_quantization.h) on the device.
#pragma once

#include "kernels/gpu/group.h"
#include "kernels/block_quantization.h"  // after it: HIP's words are not the compiler's own

namespace gradloom::kernels::gpu {

// The values of the codes, in shared memory. Every thread must call it.
template <bool positive>
GRADLOOM_DEVICE const float* code_map() {
  __shared__ float map[kCodes];
  for (int code = int(threadIdx.x); code < kCodes; code += int(blockDim.x))
    map[code] = map_value(code, positive);
  __syncthreads();
  return map;
}

// A state of `size` numbers from its number `begin` on, which begins a block. Every thread must create it.
template <class T, bool positive>
class EncodedState {
 public:
  GRADLOOM_DEVICE EncodedState(const void* from, const void* to, long long size, long long begin)
      : map_(code_map<positive>()) {
    const long long scales = begin / kCodeBlock, codes = code_blocks(size) * (long long)sizeof(float) + begin;
    void* const out = const_cast<void*>(to);
    scales_ = static_cast<const float*>(from) + scales;
    codes_ = static_cast<const unsigned char*>(from) + codes;
    scales_out_ = static_cast<float*>(out) + scales;
    codes_out_ = static_cast<unsigned char*>(out) + codes;
  }
  GRADLOOM_DEVICE Group<T> load(long long i, long long left) const {
    Group<T> group{};
    const Accum<T> scale = Accum<T>(scales_[i / kCodeBlock]);
    for (int j = 0; j < Group<T>::kCount && j < left; ++j) group.v[j] = Accum<T>(map_[codes_[i + j]]) * scale;
    return group;
  }
  // The group becomes what the next step reads.
  GRADLOOM_DEVICE void store(long long i, long long left, float scale, Group<T>& group) const {
    for (int j = 0; j < Group<T>::kCount && j < left; ++j) {
      const int code = code_in_block<positive>(group.v[j], scale);
      codes_out_[i + j] = static_cast<unsigned char>(code);
      group.v[j] = Accum<T>(map_[code]) * Accum<T>(scale);
    }
  }
  GRADLOOM_DEVICE void store_scale(long long i, float scale) const { scales_out_[i / kCodeBlock] = scale; }

 private:
  const float *map_, *scales_;
  const unsigned char* codes_;
  float* scales_out_;
  unsigned char* codes_out_;
};

// The largest and the least of a block, each of a group at first, then of the warp.
template <class T>
struct Extremes {
  Accum<T> least = 0, most = 0;

  GRADLOOM_DEVICE void add(const Group<T>& group, long long left) {
    for (int j = 0; j < Group<T>::kCount && j < left; ++j) {
      least = min(group.v[j], least);
      most = max(group.v[j], most);
    }
  }
  GRADLOOM_DEVICE float scale() const {
    return block_scale(warp_reduce(least, Min()), warp_reduce(most, Max()));
  }
};

}  // namespace gradloom::kernels::gpu
