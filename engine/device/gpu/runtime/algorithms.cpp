#include "engine/device/gpu/runtime/algorithms.h"

#include <cstring>

namespace gradloom::kernels::gpu {

bool AlgorithmTable::give(const GpuAlgorithm& algorithm) {
  const std::size_t length = strnlen(algorithm.problem, sizeof algorithm.problem);
  if (length == 0 || length == sizeof algorithm.problem) return false;
  if (algorithm.size <= 0 || algorithm.size > GPU_ALGORITHM_BYTES) return false;
  given_[algorithm.problem] = algorithm;
  return true;
}

const GpuAlgorithm* AlgorithmTable::given(const std::string& problem) const {
  const auto found = given_.find(problem);
  return found == given_.end() ? nullptr : &found->second;
}

void AlgorithmTable::choose(const std::string& problem, const void* bytes, std::size_t size,
                            std::int64_t time_ns) {
  GpuAlgorithm algorithm{};
  if (problem.size() >= sizeof algorithm.problem || size > sizeof algorithm.bytes) return;
  std::memcpy(algorithm.problem, problem.data(), problem.size());
  std::memcpy(algorithm.bytes, bytes, size);
  algorithm.size = std::int32_t(size);
  algorithm.time_ns = time_ns;
  chosen_[problem] = algorithm;
}

std::int32_t AlgorithmTable::list(GpuAlgorithm* algorithms, std::int32_t capacity) const {
  std::int32_t count = 0;
  for (const auto& [problem, algorithm] : chosen_) {
    if (count < capacity) algorithms[count] = algorithm;
    ++count;
  }
  return count;
}

}  // namespace gradloom::kernels::gpu
