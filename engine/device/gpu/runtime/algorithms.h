// The algorithms that one context uses of the vendors' libraries, by problem: those that were given from
// outside, and those that tune() found or confirmed. Plain C++.
#pragma once

#include <map>
#include <string>

#include "engine/device/gpu/plugin.h"

namespace gradloom::kernels::gpu {

class AlgorithmTable {
 public:
  // False, and nothing kept: its text does not end or its size is impossible.
  bool give(const GpuAlgorithm& algorithm);
  const GpuAlgorithm* given(const std::string& problem) const;  // null: none
  // In use from now on. Problems whose text is too long for the interface are not told to anyone.
  void choose(const std::string& problem, const void* bytes, std::size_t size, std::int64_t time_ns);
  // At most `capacity` of those in use; how many there are.
  std::int32_t list(GpuAlgorithm* algorithms, std::int32_t capacity) const;

 private:
  std::map<std::string, GpuAlgorithm> given_, chosen_;
};

}  // namespace gradloom::kernels::gpu
