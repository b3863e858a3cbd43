// The kind of processor that a kernel is for, and its traits. Code asks for a trait, not for the kind.
#pragma once

#include <cstdint>

namespace gradloom::kernels {

enum class Target : std::uint8_t { cpu, gpu };

constexpr const char* target_name(Target target) { return target == Target::cpu ? "CPU" : "GPU"; }
// Kernels read and write f16 and bf16 as they are stored; elsewhere f32 stands between conversions.
constexpr bool computes_halves(Target target) { return target == Target::gpu; }
// Kernels read the host's memory: bytes that are known when planning need no copy.
constexpr bool shares_host_memory(Target target) { return target == Target::cpu; }
// Products and convolutions are oneDNN's (kernels/prepared/).
constexpr bool has_prepared_kernels(Target target) { return target == Target::cpu; }
// Kernels for channels in blocks, [n, c / 16, h, w, 16], exist.
constexpr bool has_channel_blocks(Target target) { return target == Target::cpu; }

}  // namespace gradloom::kernels
