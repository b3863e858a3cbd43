#include "app/advice/prediction.h"

#include <algorithm>
#include <tuple>

namespace gradloom {
namespace {

double bytes_of(const KernelInfo& kernel) { return kernel.bytes_read + kernel.bytes_written; }

// Equal for launches that do the same work.
auto work_key(const KernelInfo& k) {
  return std::tuple(k.kernel, k.op, k.types, k.flops, k.bytes_read, k.bytes_written);
}

KernelInfo info_of(const KernelTime& time) {
  KernelInfo info;
  info.kernel = time.kernel;
  info.op = time.op;
  info.types = time.types;
  info.flops = time.flops;
  info.bytes_read = time.bytes_read;
  info.bytes_written = time.bytes_written;
  return info;
}

// The factor below which `part` of the weight lies.
double quantile(std::vector<std::pair<double, double>> factors_and_weights, double part) {
  std::sort(factors_and_weights.begin(), factors_and_weights.end());
  double all = 0, below = 0;
  for (const auto& [_, weight] : factors_and_weights) all += weight;
  for (const auto& [factor, weight] : factors_and_weights)
    if ((below += weight) >= part * all) return factor;
  return 1;
}

}  // namespace

std::optional<double> Predictor::slower_now(const std::vector<KernelInfo>& kernels,
                                            const std::vector<KernelSample>& samples) const {
  constexpr double kLeastPart = 0.3;
  const std::vector<double> ns = kernel_medians(kernels, samples);
  double before = 0, now = 0, all = 0;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    all += ns[i];
    if (ns[i] <= 0 || !model_.knows(kernels[i])) continue;
    before += model_.ns(kernels[i]);
    now += ns[i];
  }
  return before > 0 && now > kLeastPart * all ? std::optional(now / before) : std::nullopt;
}

void Predictor::add(const std::vector<KernelInfo>& kernels, const std::vector<KernelSample>& samples,
                    std::optional<double> slower) {
  std::vector<double> ns = kernel_medians(kernels, samples);
  if (!job_.empty()) {
    if (!slower) slower = slower_now(kernels, samples);
    for (std::size_t i = 0; i < ns.size(); ++i)  // the job's own times stay
      ns[i] = model_.knows(kernels[i]) ? 0 : ns[i] / slower.value_or(1);
  }
  model_.add(kernels, ns);
  learn_errors();
}

void Predictor::add(const std::vector<KernelTime>& times) {
  std::vector<KernelInfo> kernels;
  std::vector<double> ns;
  for (const KernelTime& time : times) {
    kernels.push_back(info_of(time));
    ns.push_back(time.ns);
  }
  model_.add(kernels, ns);
  learn_errors();
}

void Predictor::learn_errors() {
  std::vector<KernelTime> times = model_.times();
  flops_per_ns_ = bytes_per_ns_ = 0;
  std::map<std::string, std::vector<KernelTime>> by_name;
  for (const KernelTime& time : times) {
    flops_per_ns_ = std::max(flops_per_ns_, time.flops / time.ns);
    bytes_per_ns_ = std::max(bytes_per_ns_, (time.bytes_read + time.bytes_written) / time.ns);
    by_name[time.kernel].push_back(time);
  }
  // What nearly every kernel takes beyond its work at the best rates.
  std::vector<double> beyond;
  for (const KernelTime& time : times)
    beyond.push_back(time.ns - least_ns(time.flops, time.bytes_read + time.bytes_written));
  std::sort(beyond.begin(), beyond.end());
  constexpr double kMostFixedNs = 20'000;
  fixed_ns_ = beyond.empty() ? 0 : std::clamp(beyond[beyond.size() / 20], 0.0, kMostFixedNs);
  constexpr std::size_t kFewestNames = 4;
  for (KernelTime& time : times) time.ns = std::max(0.1 * time.ns, time.ns - fixed_ns_);
  beyond_fixed_ = CostModel(times);
  if (by_name.size() < kFewestNames) return;
  std::vector<std::pair<double, double>> factors;
  for (const auto& [name, own] : by_name) {
    std::vector<KernelTime> others;
    for (const KernelTime& time : times)
      if (time.kernel != name) others.push_back(time);
    const CostModel without(others);
    for (const KernelTime& time : own)
      factors.emplace_back(time.ns / std::max(1.0, fixed_ns_ + without.ns(info_of(time))), time.ns);
  }
  least_factor_ = std::clamp(quantile(factors, 0.1), 0.25, 1.0);
  most_factor_ = std::clamp(quantile(factors, 0.9), 1.0, 4.0);
}

void Predictor::set_job(const std::vector<KernelInfo>& launches, double step_ns) {
  job_ = launches;
  by_node_.clear();
  kernels_ns_ = 0;
  for (const KernelInfo& kernel : job_) {
    by_node_[kernel.node] = &kernel;
    kernels_ns_ += model_.ns(kernel);
  }
  launch_ns_ = job_.empty() ? 0 : std::max(0.0, step_ns - kernels_ns_) / static_cast<double>(job_.size());
}

double Predictor::least_ns(double flops, double bytes) const {
  return std::max(flops_per_ns_ > 0 ? flops / flops_per_ns_ : 0,
                  bytes_per_ns_ > 0 ? bytes / bytes_per_ns_ : 0);
}

double Predictor::best_ns(const KernelInfo& kernel) const {
  constexpr double kAlike = 8;  // small operands lie in caches, where large ones find no room
  double flops_per_ns = 0, bytes_per_ns = 0;
  for (const KernelTime& time : model_.times()) {
    const double bytes = time.bytes_read + time.bytes_written;
    if (kAlike * time.flops >= kernel.flops) flops_per_ns = std::max(flops_per_ns, time.flops / time.ns);
    if (kAlike * bytes >= bytes_of(kernel)) bytes_per_ns = std::max(bytes_per_ns, bytes / time.ns);
  }
  return std::max(flops_per_ns > 0 ? kernel.flops / flops_per_ns : 0,
                  bytes_per_ns > 0 ? bytes_of(kernel) / bytes_per_ns : 0);
}

double Predictor::scaled(const KernelInfo& kernel, const KernelInfo& from) const {
  const std::string was = first_type(from.types), is = first_type(kernel.types);
  const double narrower = type_bits(is) / type_bits(was);
  const auto in_type = types_.ratio(from, is);
  const double before = least_ns(from.flops, bytes_of(from)), ns = model_.ns(from);
  if (before <= 0) return ns * in_type.value_or(1);
  const double fixed = std::min(fixed_ns_, ns);
  // What nothing tells of the type takes as many times less as it is narrower.
  const double work = in_type ? least_ns(kernel.flops, bytes_of(kernel) / narrower)
                              : least_ns(kernel.flops * narrower, bytes_of(kernel));
  return (fixed + (ns - fixed) * work / before) * in_type.value_or(1);
}

// More work takes no less time than before, and at the best reaches the roofs; less work may be done as badly as before. `told`: by
// scaled().
std::pair<double, double> Predictor::scaled_range(const KernelInfo& kernel, const KernelInfo& from,
                                                  double told) const {
  constexpr double kMore = 1.15, kLess = 0.7;
  constexpr std::pair kMeasuredType{0.8, 1.25}, kUsualType{0.65, 1.6};
  const std::string was = first_type(from.types), is = first_type(kernel.types);
  if (was != is && types_.ratio(from, is)) {
    const auto& [low, high] = types_measured_ ? kMeasuredType : kUsualType;
    return {low * told, high * told};
  }
  const double before = model_.ns(from);
  const double least = least_ns(kernel.flops * type_bits(is) / type_bits(was), bytes_of(kernel));
  if (told >= before) return {std::min(told, std::max(before, least)), kMore * told};
  return {std::min(told, least), std::max(told, std::min(before, told / kLess))};
}

// Rows of tokens are computed by the kernel that they are named after (engine/ops/padding/packed_rows.h).
Predictor::Told Predictor::told(const KernelInfo& kernel) const {
  if (model_.knows(kernel)) return {model_.ns(kernel), ToldBy::measured};
  if (const auto at = by_node_.find(kernel.node); at != by_node_.end() && at->second->op == kernel.op)
    return {scaled(kernel, *at->second), ToldBy::scaled};
  KernelInfo plain = kernel;
  plain.kernel = plain.kernel.substr(0, plain.kernel.find(", rows of tokens"));
  return {fixed_ns_ + beyond_fixed_.ns(plain), ToldBy::estimated};
}

double Predictor::ns(const KernelInfo& kernel) const { return told(kernel).ns; }

Gain Predictor::gain(const std::vector<KernelInfo>& changed, double samples) const {
  struct Kind {
    double before = 0, after = 0;  // launches
    const KernelInfo* kernel = nullptr;
  };
  std::map<decltype(work_key(changed.front())), Kind> kinds;
  for (const KernelInfo& kernel : job_) {
    Kind& kind = kinds[work_key(kernel)];
    kind.before += 1;
    kind.kernel = &kernel;
  }
  for (const KernelInfo& kernel : changed) {
    Kind& kind = kinds[work_key(kernel)];
    kind.after += 1 / samples;
    kind.kernel = &kernel;
  }
  double gone = 0, come = 0, scaled_from = 0, scaled_to = 0, estimated = 0;
  double less = 0, longer = 0;  // by which scaled ones may take
  for (const auto& [_, kind] : kinds) {
    const Told one = told(*kind.kernel);
    const double more = (kind.after - kind.before) * one.ns;
    if (more < 0) gone -= more;
    if (more <= 0) continue;
    if (one.by == ToldBy::measured) come += more;
    if (one.by == ToldBy::estimated) estimated += more;
    if (one.by != ToldBy::scaled) continue;
    scaled_to += more;
    const KernelInfo& from = *by_node_.at(kind.kernel->node);
    scaled_from += model_.ns(from) * (kind.after - kind.before) * samples;
    const auto [low, high] = scaled_range(*kind.kernel, from, one.ns);
    less += (one.ns - low) * (kind.after - kind.before);
    longer += (high - one.ns) * (kind.after - kind.before);
  }
  const double launches =
      launch_ns_ * (static_cast<double>(job_.size()) - static_cast<double>(changed.size()) / samples);
  Gain gain;
  gain.ns = gone - come - scaled_to - estimated + launches;
  const double measured_error = kMeasuredError * (std::max(0.0, gone - scaled_from) + come);
  gain.low_ns = gain.ns - measured_error - longer - estimated * (most_factor_ - 1);
  gain.high_ns = gain.ns + measured_error + less + estimated * (1 - least_factor_);
  const double differs = gone + come + scaled_to + estimated;
  gain.known = differs > 0 ? 1 - (scaled_to + estimated) / differs : 1;
  return gain;
}

}  // namespace gradloom
