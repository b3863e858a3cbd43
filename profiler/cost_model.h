// What a plan's kernels will take, from kernels that were measured on the same hardware with as many threads.
//
// A kernel that was measured with the same name and the same work takes what it took. Of another the roofline
// (Williams, Waterman and Patterson, 2009) gives the least time: its FLOPs at the highest rate that any
// measured kernel reached, or its bytes at theirs, whichever is longer; that is divided by the efficiency of
// the measured kernels of its name, else of its operator, else of all (the median of roofline time / time).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "profiler/trace.h"

namespace gradloom {

class CostModel {
 public:
  // Samples of timed steps, as the executor gives them; any number of plans.
  void add(const std::vector<KernelInfo>& kernels, const std::vector<KernelSample>& samples);
  bool empty() const { return measured_.empty(); }

  struct Prediction {
    double ns = 0;     // of all kernels, once each
    double known = 0;  // the part of it that comes from kernels measured as they are, 0..1
  };
  Prediction predict(const std::vector<KernelInfo>& kernels) const;

 private:
  struct Measured {
    std::string kernel, op;
    double flops = 0, bytes = 0;
    std::vector<double> ns;  // one median per plan step that it was
  };
  static std::string key(const KernelInfo& kernel);
  void learn();  // from measured_
  double roofline_ns(double flops, double bytes) const;

  std::map<std::string, Measured> measured_;  // by key
  double flops_per_ns_ = 0, bytes_per_ns_ = 0;
  std::map<std::string, double> by_kernel_, by_op_;  // efficiency
  double overall_ = 1;
};

}  // namespace gradloom
