// What a kernel of a GPU launches, found without one: it runs on a launcher that only writes down what it is asked for, with pointers
// that lead nowhere. So a kernel that is a sequence of others (a vocabulary head in chunks, a recurrent network step by step) costs what
// its parts cost: each reads what the one before wrote.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom {

// Launches that do the same work; flops and bytes are those of one.
struct LaunchKind {
  std::string kernel;  // kernels::kernel_name
  Arithmetic arithmetic = Arithmetic::vectors;
  DType dtype = DType::f32;  // of the operands
  std::int64_t count = 0;    // how often it is launched
  std::int64_t kernels = 1;  // that the device runs for one launch, where no library does it in another way
  double flops = 0, bytes_read = 0, bytes_written = 0;
  // Of matrix products: how many, and the rows and columns of one's result.
  std::int64_t products = 1, rows = 0, columns = 0;
};

// How many kernels a device runs for the launches; 1 where there are none.
std::int64_t device_kernels(const std::vector<LaunchKind>& launches);
Cost cost_of_launches(const std::vector<LaunchKind>& launches);

// In the order of their first launch. `cost`: of the operator, which is that of a single launch, and of launches of attention
// together. Empty: the kernel launches nothing, or works with other ranks or on the host.
// REQUIRES types.target == Target::gpu.
std::vector<LaunchKind> launches_of(const OpDef& op, const Kernel& kernel, const NodeTypes& types,
                                    const Cost& cost);

}  // namespace gradloom
