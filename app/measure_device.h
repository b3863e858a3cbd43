// What a device reaches with kernels of its own: how fast a kernel reads and writes memory, by how much it touches, and how fast products
// are, by type; what other kernels take in each. What the ranks of a training reach with each other. The best of several runs, as nothing makes a kernel faster than it is.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/base/tensor.h"
#include "engine/ranks/world.h"
#include "profiler/type_times.h"

namespace gradloom {

struct MemorySpeed {
  std::int64_t bytes = 0;  // that a kernel reads and writes
  double bytes_per_ns = 0;
};
struct ProductSpeed {
  DType type = DType::f32;
  std::int64_t size = 0;  // of square matrices
  double flops_per_ns = 0;
};
struct DeviceSpeeds {
  std::vector<MemorySpeed> memory;
  std::vector<ProductSpeed> products;  // of the types that the device computes in
  double launch_ns = 0;                // of a kernel with next to no work
  std::vector<TypeTime> types;         // some kernels in each type that the device computes in
};
using ToldOfMeasuring = std::function<void(const std::string& what, double fraction)>;
// Errors: those of opening the device; Errc::interrupted.
Result<DeviceSpeeds> measure_device(const std::string& id, std::stop_token stop, const ToldOfMeasuring& told);

struct ExchangeSpeed {
  std::int64_t bytes = 0;
  std::array<double, std::size(kReduceForms)> ns{};  // of a mean of so many bytes over all ranks, by its form
};
struct LinkSpeeds {
  double latency_ns = 0;    // of a message of 8 bytes one way
  double bytes_per_ns = 0;  // one way, of 16 MiB
  std::vector<ExchangeSpeed> means;
};
// Between rank 0 and the last rank; of means between all, the forms in turns: the best of what a few seconds bring. Every rank calls, and
// rank 0 gets the result.
Result<LinkSpeeds> measure_exchanges(World& world);

}  // namespace gradloom
