#include "profiler/roofline.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_map>

namespace gradloom {
namespace {

// "bf16[8, 64] f32[64]" -> "bf16" and 8, 64.
struct FirstResult {
  std::string type;
  std::vector<double> dims;
};
FirstResult first_result(const std::string& types) {
  FirstResult first;
  const std::size_t open = types.find('['), close = types.find(']');
  first.type = types.substr(0, open);
  if (open == std::string::npos || close == std::string::npos) return first;
  for (const char* at = types.c_str() + open + 1; at < types.c_str() + close;) {
    char* end = nullptr;
    const double dim = std::strtod(at, &end);
    if (end == at) break;
    first.dims.push_back(dim);
    at = end + (*end == ',' ? 1 : 0);
  }
  return first;
}

std::string product_type(const FirstResult& result, const std::string& precision) {
  const std::string type = precision.substr(0, precision.find('{'));
  const bool low = type == "bf16" || type == "f16";
  return low && (result.type == "f32" || result.type.empty()) ? type : result.type;
}

// Matrix products of one launch.
struct Products {
  double products = 1, rows = 0, columns = 0, inner = 0;
};

// Of a kernel that is one product, from the type of its result and what it moves.
Products products_of(const KernelInfo& kernel, const FirstResult& result) {
  if (result.dims.size() < 2) return {};
  const double columns = result.dims.back(), rows_of_one = result.dims[result.dims.size() - 2];
  double batch = 1;
  for (std::size_t i = 0; i + 2 < result.dims.size(); ++i) batch *= result.dims[i];
  if (batch <= 0 || columns <= 0 || rows_of_one <= 0) return {};
  const double inner = kernel.flops / (2 * batch * rows_of_one * columns);
  // One weight for all of the batch makes one large product of it: so much less is read.
  const double width = std::max(1.0, kernel.bytes_written / (batch * rows_of_one * columns));
  const double left = batch * rows_of_one * inner * width, right = inner * columns * width;
  const bool one_weight = kernel.bytes_read < left + right * std::sqrt(batch);
  return {one_weight ? 1 : batch, one_weight ? batch * rows_of_one : rows_of_one, columns, inner};
}

// The part of the processors that the best of the usual tiles keeps at work.
double tiles_at_work(const Hardware& hardware, const Products& of) {
  if (hardware.processors <= 0 || of.rows <= 0 || of.columns <= 0 || of.inner <= 0) return 1;
  struct Tile {
    double rows, columns, part;  // part: of the peak that tiles of this size reach beside the largest
  };
  constexpr Tile kTiles[] = {{256, 128, 1},  {128, 256, 1},  {128, 128, 0.95},
                             {128, 64, 0.8}, {64, 128, 0.8}, {64, 64, 0.65}};
  constexpr double kSplits[] = {1, 2, 4, 8, 16}, kLeastInner = 256, kSplitPart = 0.95;
  double best = 0;
  for (const Tile& tile : kTiles)
    for (const double split : kSplits) {
      if (split > 1 && of.inner / split < kLeastInner) continue;
      const double tiles =
          of.products * std::ceil(of.rows / tile.rows) * std::ceil(of.columns / tile.columns) * split;
      const double waves = std::ceil(tiles / hardware.processors);
      const double work = of.products * of.rows * of.columns * split / (tile.rows * tile.columns);
      best = std::max(best, work / (waves * hardware.processors) * tile.part * (split > 1 ? kSplitPart : 1));
    }
  return std::clamp(best, 1e-3, 1.0);
}

// One launch, or some that do the same one after another.
struct Work {
  Arithmetic arithmetic = Arithmetic::vectors;
  std::string type;  // of products' operands
  double flops = 0, bytes = 0, kernels = 1;
  Products products{};
};

KernelBound bound_of(const Hardware& hardware, const Work& work) {
  Arithmetic arithmetic = work.arithmetic;
  KernelBound bound;
  if (arithmetic != Arithmetic::vectors) {
    bound.type = work.type;
    bound.flops_per_ns = hardware.product_flops_per_ns(bound.type);
  }
  if (bound.flops_per_ns <= 0) {  // no unit for products of this type
    arithmetic = Arithmetic::vectors;
    bound.type.clear();
    bound.flops_per_ns = hardware.vectors;
  }
  const double bytes = std::max(0.0, work.bytes), launch_ns = work.kernels * hardware.launch_ns;
  bound.bytes_per_ns = hardware.bytes_per_ns(bytes);
  const double flops_ns = bound.flops_per_ns > 0 ? std::max(0.0, work.flops) / bound.flops_per_ns : 0;
  const double bytes_ns = bound.bytes_per_ns > 0 ? bytes / bound.bytes_per_ns : 0;
  bound.least_ns = std::max({flops_ns, bytes_ns, launch_ns});
  const double tiles = arithmetic == Arithmetic::products ? tiles_at_work(hardware, work.products) : 1;
  const double expected_flops = flops_ns / (hardware.reach.of(arithmetic) * tiles);
  const double expected_bytes = bytes_ns / hardware.reach.memory;
  bound.expected_ns = std::max(expected_flops, expected_bytes) + launch_ns;
  if (std::max(expected_flops, expected_bytes) < launch_ns)
    bound.roof = Roof::launch;
  else if (expected_bytes >= expected_flops)
    bound.roof = Roof::memory;
  else
    bound.roof = arithmetic == Arithmetic::vectors ? Roof::vectors : Roof::products;
  return bound;
}

Work work_of(const LaunchKind& kind) {
  Work work{kind.arithmetic, dtype_name(kind.dtype), kind.flops, kind.bytes_read + kind.bytes_written,
            static_cast<double>(kind.kernels)};
  const auto results = static_cast<double>(kind.products * kind.rows * kind.columns);
  if (results > 0)
    work.products = {static_cast<double>(kind.products), static_cast<double>(kind.rows),
                     static_cast<double>(kind.columns), kind.flops / (2 * results)};
  return work;
}

}  // namespace

Arithmetic arithmetic_of(const std::string& op) {
  static const std::unordered_map<std::string, Arithmetic> all = [] {
    std::unordered_map<std::string, Arithmetic> map;
    for (const OpDef* def : all_ops()) map[def->name] = def->arithmetic;
    return map;
  }();
  const auto at = all.find(op);
  return at == all.end() ? Arithmetic::vectors : at->second;
}

std::string roof_text(const KernelBound& bound) {
  switch (bound.roof) {
    case Roof::memory: return "memory";
    case Roof::vectors: return "vectors";
    case Roof::products: return bound.type + " products";
    case Roof::launch: return "launch";
  }
  return "";
}

KernelBound kernel_bound(const Hardware& hardware, const KernelInfo& kernel, const std::string& precision) {
  const FirstResult result = first_result(kernel.types);
  const bool sequence =
      kernel.launches.size() > 1 || (!kernel.launches.empty() && kernel.launches[0].count > 1);
  if (!sequence)
    return bound_of(hardware,
                    {arithmetic_of(kernel.op), product_type(result, precision), kernel.flops,
                     kernel.bytes_read + kernel.bytes_written,
                     static_cast<double>(device_kernels(kernel.launches)), products_of(kernel, result)});
  KernelBound all;
  double longest = -1;
  for (const LaunchKind& kind : kernel.launches) {
    Work work = work_of(kind);
    if (kind.rows == 0) work.type = product_type(result, precision);
    const KernelBound one = bound_of(hardware, work);
    const auto count = static_cast<double>(kind.count);
    const double least_ns = all.least_ns + count * one.least_ns,
                 expected_ns = all.expected_ns + count * one.expected_ns;
    if (count * one.expected_ns > longest) {
      longest = count * one.expected_ns;
      all = one;
    }
    all.least_ns = least_ns;
    all.expected_ns = expected_ns;
  }
  return all;
}

}  // namespace gradloom
