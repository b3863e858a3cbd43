// What kernels will take, from kernels that were measured on the same hardware with as many threads.
//
// Of kernels that are the same (name, operator, types of the results, work) the measured time holds. Of another
// the roofline (Williams, Waterman and Patterson, 2009) gives the least time: its FLOPs at the highest rate that
// any measured kernel reached, or its bytes at theirs, whichever is longer; that is divided by the efficiency of
// the measured kernels of its name, else of its operator, else of operators of its arithmetic (roofline.h), else of all (the median
// of roofline time / time): a MatMul is as efficient as products that were fused, and not as the loops over elements beside them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "profiler/trace.h"

namespace gradloom {

// A kernel that was measured: what makes it the same as others, and what it took.
struct KernelTime {
  std::string kernel, op, types;  // as in KernelInfo; types of more than 128 characters as their hash
  double flops = 0, bytes_read = 0, bytes_written = 0;
  double ns = 0;  // median; at least 1
  bool operator==(const KernelTime&) const = default;
};

// By kernel, the median of its samples, at least 1; 0: it has none.
std::vector<double> kernel_medians(const std::vector<KernelInfo>& kernels,
                                   const std::vector<KernelSample>& samples);

class CostModel {
 public:
  CostModel() = default;
  explicit CostModel(const std::vector<KernelTime>& times);
  // Samples of timed steps, as the executor gives them; any number of plans.
  void add(const std::vector<KernelInfo>& kernels, const std::vector<KernelSample>& samples);
  // Medians by kernel, ns; 0: it was not measured.
  void add(const std::vector<KernelInfo>& kernels, const std::vector<double>& median_ns);
  bool empty() const { return measured_.empty(); }
  std::vector<KernelTime> times() const;  // all that were measured, of equal ones the median

  bool knows(const KernelInfo& kernel) const;  // it was measured
  double ns(const KernelInfo& kernel) const;

  struct Prediction {
    double ns = 0;     // of all kernels, once each
    double known = 0;  // the part of it that comes from kernels measured as they are, 0..1
  };
  Prediction predict(const std::vector<KernelInfo>& kernels) const;

 private:
  struct Measured {
    KernelTime time;         // its ns is the median of:
    std::vector<double> ns;  // one median per plan step that it was
  };
  template <class Kernel>
  static std::string key(const Kernel& kernel);
  const Measured* measured(const KernelInfo& kernel) const;  // null: it was not
  double estimate(const KernelInfo& kernel) const;           // of one that was not
  template <class Kernel>
  void note(const Kernel& kernel, double ns);
  void learn();  // from measured_
  double roofline_ns(double flops, double bytes) const;

  std::map<std::string, Measured> measured_;  // by key
  double flops_per_ns_ = 0, bytes_per_ns_ = 0;
  std::map<std::string, double> by_kernel_, by_op_;  // efficiency
  std::map<Arithmetic, double> by_arithmetic_;       // of operators
  double overall_ = 1;
};

}  // namespace gradloom
