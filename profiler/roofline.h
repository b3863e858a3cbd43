// The roofline of kernels (Williams, Waterman and Patterson, 2009): what each takes at least on a processor, which roof holds
// it down, and what a well-tuned kernel is expected to take.
//
//   least    = max(FLOPs / roof of its arithmetic, bytes / roof of memory, launch)
//   expected = max(FLOPs / (roof * reach * tiles), bytes / (roof * reach)) + launch
// summed over its launches, where it is a sequence of them (KernelInfo::launches): each begins when the one before has ended.
//
// tiles: products fill a GPU in waves of one tile for each processor, and the last wave takes as long as the others: the part of
// the processors that work, for the best of the usual sizes of a tile, with the inner dimension split where results are few.
#pragma once

#include <string>
#include <vector>

#include "profiler/hardware.h"
#include "profiler/trace.h"

namespace gradloom {

// What kernels of the operator spend their FLOPs on; vectors: no operator has this name.
Arithmetic arithmetic_of(const std::string& op);

enum class Roof : std::uint8_t { memory, vectors, products, launch };

struct KernelBound {
  Roof roof = Roof::launch;  // of a sequence, with type and rates: of the launches that take longest together
  std::string type;          // of the products that hold it down, or empty
  double flops_per_ns = 0;   // of the roof of its arithmetic
  double bytes_per_ns = 0;   // of its memory
  double least_ns = 0, expected_ns = 0;
};
// "memory", "bf16 products", "vectors", "launch".
std::string roof_text(const KernelBound& bound);

// `precision`: of the run, as recipes have it. Products of a run in bf16 or f16 have operands of that type, whatever their results are.
KernelBound kernel_bound(const Hardware& hardware, const KernelInfo& kernel, const std::string& precision);

}  // namespace gradloom
