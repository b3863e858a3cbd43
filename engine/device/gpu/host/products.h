// The host executor's stand-in for a vendor's library of products: the tiled kernel with the sum over k in
// slices (its first suggestion) or whole. The two differ in the last bits, as algorithms of a library do, and
// are chosen in the same ways: by time, from results of earlier runs, or, for tests, by
// GRADLOOM_HOSTGPU_FASTEST=0 (slices) or 1 (whole).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/arguments.h"
#include "engine/device/gpu/plugin.h"

namespace gradloom::kernels::gpu::host {

constexpr std::int32_t kProductAlgorithms = 2;

inline constexpr const char* kProductLibrary = "host-gpu tiles 1";

// Names the problem; nothing where the product has one algorithm only.
std::optional<std::string> product_problem(const GemmArgs& args);
GemmArgs with_algorithm(GemmArgs args, std::int32_t algorithm);
// The number of a given algorithm; nothing: it is none of ours.
std::optional<std::int32_t> algorithm_number(const GpuAlgorithm& algorithm);
// What the environment says is the fastest.
std::optional<std::int32_t> fastest_by_setting();

}  // namespace gradloom::kernels::gpu::host
