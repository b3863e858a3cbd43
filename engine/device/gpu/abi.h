// A number that changes with the list of kernels and the sizes of their argument structs: program and plugin
// must agree on it.
#pragma once

#include "kernels/launcher.h"

namespace gradloom::kernels::gpu {

constexpr std::uint64_t kernel_abi() {
  std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
  const auto add = [&](std::uint64_t word) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ ((word >> (8 * i)) & 0xff)) * 1099511628211ull;
  };
  const auto add_name = [&](const char* name) {
    while (*name != 0) add(static_cast<unsigned char>(*name++));
  };
#define GRADLOOM_ADD(name, Args) \
  add_name(#name);               \
  add(sizeof(Args));
  GRADLOOM_CPU_KERNELS(GRADLOOM_ADD)
  GRADLOOM_GPU_ONLY_KERNELS(GRADLOOM_ADD)
  GRADLOOM_LIBRARY_KERNELS(GRADLOOM_ADD)
#undef GRADLOOM_ADD
  return hash;
}

}  // namespace gradloom::kernels::gpu
