#include "engine/ops/known_bytes.h"
#include "kernels/launcher.h"

#include <algorithm>
#include <cstring>

namespace gradloom {

std::size_t KnownBytes::add(const void* contents, std::size_t bytes) {
  constexpr std::size_t kAlignment = 16;
  const std::size_t at = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
  bytes_.resize(at + std::max<std::size_t>(bytes, 1));
  if (bytes > 0) std::memcpy(bytes_.data() + at, contents, bytes);
  return at;
}

void store_bytes(const kernels::Launcher& on, kernels::Target target, const void* from, void* to,
                 std::int64_t count) {
  if (kernels::shares_host_memory(target)) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count));
    return;
  }
  for (std::int64_t at = 0; at < count; at += kernels::kStoreMaxBytes)
    on.store({std::min(count - at, kernels::kStoreMaxBytes), static_cast<const char*>(from) + at,
              static_cast<char*>(to) + at});
}

const char* KnownBytes::place(const kernels::Launcher& on, void* workspace) const {
  if (kernels::shares_host_memory(target_)) return bytes_.data();
  store_bytes(on, target_, bytes_.data(), workspace, static_cast<std::int64_t>(bytes_.size()));
  return static_cast<const char*>(workspace);
}

Kernel known_outputs(const NodeTypes& types, const char* name, std::vector<Tensor> outputs) {
  outputs.resize(types.outputs.size());
  Kernel kernel;
  kernel.name = name;
  kernel.run = [outputs = std::move(outputs), wanted = types.output_present,
                target = types.target](const LaunchArgs& launch) {
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (wanted[i])
        store_bytes(launch.on, target, outputs[i].data(), launch.outputs[i],
                    static_cast<std::int64_t>(outputs[i].bytes()));
  };
  return kernel;
}

}  // namespace gradloom
