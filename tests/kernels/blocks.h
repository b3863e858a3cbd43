// Channels in blocks: [images, channels, pixels] as [images, channels / block, pixels, block], for tests.
#pragma once

#include <cstdint>
#include <vector>

namespace gradloom::kernels::test {

// The first planes * pixels elements in blocks; what lies behind them stays. planes: images * channels.
template <class T>
std::vector<T> in_blocks(const std::vector<T>& plain, std::int64_t planes, std::int64_t pixels,
                         std::int64_t block) {
  std::vector<T> result = plain;
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    for (std::int64_t i = 0; i < pixels; ++i) {
      const std::int64_t to = (plane / block * pixels + i) * block + plane % block;
      result[std::size_t(to)] = plain[std::size_t(plane * pixels + i)];
    }
  }
  return result;
}

}  // namespace gradloom::kernels::test
