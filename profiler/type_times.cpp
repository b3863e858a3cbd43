#include "profiler/type_times.h"

#include <algorithm>
#include <cmath>

#include "engine/base/tensor.h"
#include "profiler/roofline.h"

namespace gradloom {
namespace {

constexpr double kFewFlops = 4;  // of an element: a loop with more waits for its arithmetic

double bytes_of_kernel(const KernelInfo& kernel) { return kernel.bytes_read + kernel.bytes_written; }

// Between the sizes that were measured; beyond them as at the last one.
double time_at(const std::map<double, double>& ns_by_size, double size) {
  const auto above = ns_by_size.lower_bound(size);
  if (above == ns_by_size.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == ns_by_size.end()) return below->second;
  const double part = std::log(size / below->first) / std::log(above->first / below->first);
  return std::exp(std::log(below->second) * (1 - part) + std::log(above->second) * part);
}

}  // namespace

std::string first_type(const std::string& types) { return types.substr(0, types.find('[')); }

double type_bits(const std::string& type) {
  const auto dtype = dtype_from_name(type);
  return dtype ? 8 * static_cast<double>(byte_size({*dtype, {1}})) : 32;
}

double type_size(const KernelInfo& kernel) {
  if (arithmetic_of(kernel.op) != Arithmetic::vectors) return kernel.flops;
  return bytes_of_kernel(kernel) * 32 / type_bits(first_type(kernel.types));
}

TypeTimes::TypeTimes(const std::vector<TypeTime>& times) {
  for (const TypeTime& time : times)
    if (time.size > 0 && time.ns > 0) times_[{time.op, time.type}][time.size] = time.ns;
}

TypeTimes TypeTimes::usual_of_cpu(bool bf16_products) {
  struct Usual {
    const char* op;
    double low, f64;  // bf16 and f16; beside 1 of f32
  };
  constexpr double kConverted = 1.15;
  constexpr Usual kUsual[] = {
      {"MatMul", kConverted, 2}, {"Conv", kConverted, 2}, {"Add", 1.5, 2},
      {"Gelu", 1.3, 2},          {"Concat", 0.55, 2},     {"LayerNormalization", 1.6, 2},
      {"ReduceSum", 2.3, 2},     {"Softmax", 1.2, 2},     {"SoftmaxGrad", 2.6, 2}};
  std::vector<TypeTime> times;
  for (const Usual& u : kUsual)
    for (const auto& [type, ns] : {std::pair("f32", 1.0), {"bf16", u.low}, {"f16", u.low}, {"f64", u.f64}})
      times.push_back({u.op, type, 1, ns});
  TypeTimes usual(times);
  if (bf16_products) {
    usual.times_[{"MatMul", "bf16"}] = {{1, 0.65}};
    usual.times_[{"Conv", "bf16"}] = {{1, 0.8}};
  }
  return usual;
}

const TypeTimes::NsBySize* TypeTimes::curve(const std::string& op, const std::string& type) const {
  const auto at = times_.find({op, type});
  return at == times_.end() ? nullptr : &at->second;
}

std::string TypeTimes::measured_like(const KernelInfo& kernel) const {
  if (curve(kernel.op, first_type(kernel.types)) != nullptr) return kernel.op;
  switch (arithmetic_of(kernel.op)) {
    case Arithmetic::products:
    case Arithmetic::attention: return "MatMul";
    case Arithmetic::convolutions: return "Conv";
    case Arithmetic::vectors: break;
  }
  if (kernel.flops <= 0) return "Concat";
  if (!kernel.kernel.starts_with("elementwise")) return "LayerNormalization";
  const double elements = kernel.bytes_written * 8 / type_bits(first_type(kernel.types));
  return kernel.flops <= kFewFlops * elements ? "Add" : "Gelu";
}

std::optional<double> TypeTimes::ratio(const KernelInfo& kernel, const std::string& to) const {
  const std::string from = first_type(kernel.types);
  if (from == to) return 1.0;
  const std::string op = measured_like(kernel);
  const NsBySize *before = curve(op, from), *after = curve(op, to);
  if (before == nullptr || after == nullptr) return std::nullopt;
  const double size = type_size(kernel);
  return time_at(*after, size) / time_at(*before, size);
}

}  // namespace gradloom
