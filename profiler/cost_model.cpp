#include "profiler/cost_model.h"

#include <algorithm>

#include "engine/base/hash.h"
#include "profiler/roofline.h"

namespace gradloom {
namespace {

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Kernel>
double bytes_of(const Kernel& kernel) {
  return kernel.bytes_read + kernel.bytes_written;
}

// A step of an optimizer has hundreds of results.
std::string short_types(const std::string& types) { return types.size() > 128 ? hash_hex(types) : types; }

template <class Key>
std::map<Key, double> medians(const std::map<Key, std::vector<double>>& values) {
  std::map<Key, double> result;
  for (const auto& [name, of] : values) result[name] = median_of(of);
  return result;
}

}  // namespace

// Equal work by the same kernel. Operands have no types here: what is read, apart from what is written, and the
// FLOPs tell their shapes but for rare collisions.
template <class Kernel>
std::string CostModel::key(const Kernel& kernel) {
  return kernel.kernel + " " + kernel.op + " " + short_types(kernel.types) + " " +
         std::to_string(kernel.flops) + " " + std::to_string(kernel.bytes_read) + " " +
         std::to_string(kernel.bytes_written);
}

template <class Kernel>
void CostModel::note(const Kernel& kernel, double ns) {
  Measured& measured = measured_[key(kernel)];
  measured.ns.push_back(std::max(1.0, ns));
  measured.time = {
      kernel.kernel,        kernel.op, short_types(kernel.types), kernel.flops, kernel.bytes_read,
      kernel.bytes_written, 0};
}

CostModel::CostModel(const std::vector<KernelTime>& times) {
  for (const KernelTime& time : times) note(time, time.ns);
  learn();
}

std::vector<double> kernel_medians(const std::vector<KernelInfo>& kernels,
                                   const std::vector<KernelSample>& samples) {
  std::vector<std::vector<double>> times(kernels.size());
  for (const KernelSample& sample : samples)
    times[static_cast<std::size_t>(sample.plan_step)].push_back(static_cast<double>(sample.duration_ns));
  std::vector<double> median_ns(kernels.size(), 0);
  for (std::size_t i = 0; i < kernels.size(); ++i)
    if (!times[i].empty()) median_ns[i] = std::max(1.0, median_of(times[i]));
  return median_ns;
}

void CostModel::add(const std::vector<KernelInfo>& kernels, const std::vector<KernelSample>& samples) {
  add(kernels, kernel_medians(kernels, samples));
}

void CostModel::add(const std::vector<KernelInfo>& kernels, const std::vector<double>& median_ns) {
  for (std::size_t i = 0; i < kernels.size(); ++i)
    if (median_ns[i] > 0) note(kernels[i], median_ns[i]);
  learn();
}

std::vector<KernelTime> CostModel::times() const {
  std::vector<KernelTime> times;
  for (const auto& [_, measured] : measured_) times.push_back(measured.time);
  return times;
}

double CostModel::roofline_ns(double flops, double bytes) const {
  return std::max(flops_per_ns_ > 0 ? flops / flops_per_ns_ : 0,
                  bytes_per_ns_ > 0 ? bytes / bytes_per_ns_ : 0);
}

void CostModel::learn() {
  flops_per_ns_ = bytes_per_ns_ = 0;
  for (auto& [_, m] : measured_) {
    m.time.ns = median_of(m.ns);
    flops_per_ns_ = std::max(flops_per_ns_, m.time.flops / m.time.ns);
    bytes_per_ns_ = std::max(bytes_per_ns_, bytes_of(m.time) / m.time.ns);
  }
  std::map<std::string, std::vector<double>> by_kernel, by_op;
  std::vector<double> all;
  for (const auto& [_, m] : measured_) {
    const double efficiency = roofline_ns(m.time.flops, bytes_of(m.time)) / m.time.ns;
    if (efficiency <= 0) continue;  // moves and computes nothing
    by_kernel[m.time.kernel].push_back(efficiency);
    by_op[m.time.op].push_back(efficiency);
    all.push_back(efficiency);
  }
  by_kernel_ = medians(by_kernel);
  by_op_ = medians(by_op);
  std::map<Arithmetic, std::vector<double>> alike;
  for (const auto& [op, efficiency] : by_op_) alike[arithmetic_of(op)].push_back(efficiency);
  by_arithmetic_ = medians(alike);
  overall_ = all.empty() ? 1 : median_of(all);
}

const CostModel::Measured* CostModel::measured(const KernelInfo& kernel) const {
  const auto at = measured_.find(key(kernel));
  return at == measured_.end() ? nullptr : &at->second;
}

bool CostModel::knows(const KernelInfo& kernel) const { return measured(kernel) != nullptr; }

double CostModel::ns(const KernelInfo& kernel) const {
  const Measured* const known = measured(kernel);
  return known != nullptr ? known->time.ns : estimate(kernel);
}

double CostModel::estimate(const KernelInfo& kernel) const {
  const auto by_kernel = by_kernel_.find(kernel.kernel);
  const auto by_op = by_op_.find(kernel.op);
  const auto alike = by_arithmetic_.find(arithmetic_of(kernel.op));
  const double efficiency = by_kernel != by_kernel_.end()   ? by_kernel->second
                            : by_op != by_op_.end()         ? by_op->second
                            : alike != by_arithmetic_.end() ? alike->second
                                                            : overall_;
  return roofline_ns(kernel.flops, bytes_of(kernel)) / efficiency;
}

CostModel::Prediction CostModel::predict(const std::vector<KernelInfo>& kernels) const {
  Prediction result;
  double known_ns = 0;
  for (const KernelInfo& kernel : kernels) {
    const Measured* const known = measured(kernel);
    result.ns += known != nullptr ? known->time.ns : estimate(kernel);
    if (known != nullptr) known_ns += known->time.ns;
  }
  result.known = result.ns > 0 ? known_ns / result.ns : 0;
  return result;
}

}  // namespace gradloom
