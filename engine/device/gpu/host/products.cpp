#include "engine/device/gpu/host/products.h"

#include <cstdlib>

#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu::host {

std::optional<std::string> product_problem(const GemmArgs& args) {
  std::int64_t batches = 1;
  for (int d = 0; d < args.batch_rank; ++d) batches *= args.batch_dims[d];
  const ProductCut cut = product_cut(batches, args.m, args.n, args.k, args.dtype);
  // The sums of an operand need the workspace too.
  if (cut.slices == 1 || args.workspace == nullptr || args.sums_of != GemmOperand::none) return std::nullopt;
  std::string problem = std::string(kProductLibrary) + ";";
  for (const std::int64_t number :
       {std::int64_t(args.dtype), batches, args.m, args.n, args.k, std::int64_t(args.activation),
        std::int64_t(args.bias != nullptr), std::int64_t(args.accumulate)})
    problem += " " + std::to_string(number);
  return problem;
}

GemmArgs with_algorithm(GemmArgs args, std::int32_t algorithm) {
  if (algorithm == 1) {
    args.workspace = nullptr;
    args.workspace_bytes = 0;
  }
  return args;
}

std::optional<std::int32_t> algorithm_number(const GpuAlgorithm& algorithm) {
  if (algorithm.size != 1 || algorithm.bytes[0] >= kProductAlgorithms) return std::nullopt;
  return algorithm.bytes[0];
}

std::optional<std::int32_t> fastest_by_setting() {
  const char* const text = std::getenv("GRADLOOM_HOSTGPU_FASTEST");
  if (text == nullptr || *text == 0) return std::nullopt;
  return std::atoi(text) == 1 ? 1 : 0;
}

}  // namespace gradloom::kernels::gpu::host
