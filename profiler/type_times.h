// What kernels take in one type beside another on the same processor, by operator and size: how a job in 16 bits is told from its
// times in f32 before any step of it is made.
//
// Half the bits are half the time only where bytes are what a kernel waits for. Products in 16 bits are as fast as the units for them
// on operands of that size; a loop over elements converts each on its way in and out, and takes longer where its operands lie in a cache.
// So the ratio is measured (gradloom devices --measure), with kernels of our own in each type and two or three sizes, and found
// between sizes by interpolation, both logarithmic.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/trace.h"

namespace gradloom {

// A kernel that was measured.
struct TypeTime {
  std::string op, type;  // of its first result: "bf16"
  double size = 0;       // type_size of it
  double ns = 0;
  bool operator==(const TypeTime&) const = default;
};

// "bf16[8, 64] f32[8]" -> "bf16".
std::string first_type(const std::string& types);
// Bits of an element of it: 16. 32: no type has this name.
double type_bits(const std::string& type);
// FLOPs of products and convolutions; else what it reads and writes, as bytes in f32.
double type_size(const KernelInfo& kernel);

class TypeTimes {
 public:
  TypeTimes() = default;
  explicit TypeTimes(const std::vector<TypeTime>& times);
  // Of a CPU that was not measured: medians over three networks (GPT, BERT, a CNN) on AVX-512. `bf16_products`: it multiplies bf16
  // directly; else products convert their operands.
  static TypeTimes usual_of_cpu(bool bf16_products);

  bool empty() const { return times_.empty(); }
  // What `kernel` would take in the type `to`, as a multiple of what it takes in its own. An operator that was not measured goes as one
  // of its kind: products, convolutions, loops over elements (by FLOPs of each), copies, sums. None: a type was not measured.
  std::optional<double> ratio(const KernelInfo& kernel, const std::string& to) const;

 private:
  using NsBySize = std::map<double, double>;
  const NsBySize* curve(const std::string& op, const std::string& type) const;
  std::string measured_like(const KernelInfo& kernel) const;

  std::map<std::pair<std::string, std::string>, NsBySize> times_;  // by operator and type
};

}  // namespace gradloom
