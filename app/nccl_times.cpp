#include "app/nccl_times.h"

#include <algorithm>
#include <bit>

namespace gradloom {
namespace {

constexpr double kKernelNs = 2000, kTreePart = 0.9;  // of the bus that trees reach

}  // namespace

double nccl_ns(NcclCall call, double bytes, std::int64_t gpus, std::int64_t local, const Link& inside,
               const Link& between) {
  if (gpus <= 1) return 0;
  local = std::clamp<std::int64_t>(local, 1, gpus);
  const std::int64_t machines = (gpus + local - 1) / local;
  const double bus = machines == 1 ? inside.bytes_per_ns
                     : local == 1  ? between.bytes_per_ns
                                   : std::min(inside.bytes_per_ns, between.bytes_per_ns);
  const auto steps = [&](std::int64_t within, std::int64_t across) {
    return static_cast<double>(within) * inside.latency_ns + static_cast<double>(across) * between.latency_ns;
  };
  const auto n = static_cast<double>(gpus);
  const double once = (n - 1) / n * bytes / bus + steps(gpus - machines, machines - 1);
  if (call == NcclCall::one_way) return kKernelNs + once;
  const auto levels = static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(machines))) - 1;
  const double trees = 2 * bytes / (kTreePart * bus) + 2 * steps(local - 1, levels);
  return kKernelNs + std::min(2 * once, trees);
}

}  // namespace gradloom
