#include "profiler/cost_model.h"

#include <algorithm>

namespace gradloom {
namespace {

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double bytes_of(const KernelInfo& kernel) { return kernel.bytes_read + kernel.bytes_written; }

std::map<std::string, double> medians(const std::map<std::string, std::vector<double>>& values) {
  std::map<std::string, double> result;
  for (const auto& [name, of] : values) result[name] = median_of(of);
  return result;
}

}  // namespace

// Equal work by the same kernel: what it reads apart from what it writes, so that shapes rarely collide.
std::string CostModel::key(const KernelInfo& kernel) {
  return kernel.kernel + " " + kernel.op + " " + std::to_string(kernel.flops) + " " +
         std::to_string(kernel.bytes_read) + " " + std::to_string(kernel.bytes_written);
}

void CostModel::add(const std::vector<KernelInfo>& kernels, const std::vector<KernelSample>& samples) {
  std::vector<std::vector<double>> times(kernels.size());
  for (const KernelSample& sample : samples)
    times[static_cast<std::size_t>(sample.plan_step)].push_back(static_cast<double>(sample.duration_ns));
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (times[i].empty()) continue;
    Measured& measured = measured_[key(kernels[i])];
    measured.kernel = kernels[i].kernel;
    measured.op = kernels[i].op;
    measured.flops = kernels[i].flops;
    measured.bytes = bytes_of(kernels[i]);
    measured.ns.push_back(median_of(times[i]));
  }
  learn();
}

double CostModel::roofline_ns(double flops, double bytes) const {
  return std::max(flops_per_ns_ > 0 ? flops / flops_per_ns_ : 0,
                  bytes_per_ns_ > 0 ? bytes / bytes_per_ns_ : 0);
}

void CostModel::learn() {
  flops_per_ns_ = bytes_per_ns_ = 0;
  for (const auto& [_, m] : measured_) {
    const double ns = std::max(1.0, median_of(m.ns));
    flops_per_ns_ = std::max(flops_per_ns_, m.flops / ns);
    bytes_per_ns_ = std::max(bytes_per_ns_, m.bytes / ns);
  }
  std::map<std::string, std::vector<double>> by_kernel, by_op;
  std::vector<double> all;
  for (const auto& [_, m] : measured_) {
    const double efficiency = roofline_ns(m.flops, m.bytes) / std::max(1.0, median_of(m.ns));
    if (efficiency <= 0) continue;  // moves and computes nothing
    by_kernel[m.kernel].push_back(efficiency);
    by_op[m.op].push_back(efficiency);
    all.push_back(efficiency);
  }
  by_kernel_ = medians(by_kernel);
  by_op_ = medians(by_op);
  overall_ = all.empty() ? 1 : median_of(all);
}

CostModel::Prediction CostModel::predict(const std::vector<KernelInfo>& kernels) const {
  Prediction result;
  double known_ns = 0;
  for (const KernelInfo& kernel : kernels) {
    if (const auto at = measured_.find(key(kernel)); at != measured_.end()) {
      const double ns = median_of(at->second.ns);
      result.ns += ns;
      known_ns += ns;
      continue;
    }
    const auto by_kernel = by_kernel_.find(kernel.kernel);
    const auto by_op = by_op_.find(kernel.op);
    const double efficiency = by_kernel != by_kernel_.end() ? by_kernel->second
                              : by_op != by_op_.end()       ? by_op->second
                                                            : overall_;
    result.ns += roofline_ns(kernel.flops, bytes_of(kernel)) / efficiency;
  }
  result.known = result.ns > 0 ? known_ns / result.ns : 0;
  return result;
}

}  // namespace gradloom
