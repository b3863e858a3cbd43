// What a changed job is predicted to gain, from kernels of the job that were timed.
//
// Both plans are compared kernel by kernel: what is in both cancels. Of what is in one alone, a kernel that was measured as it
// is takes its time. One of a node that the job has too, but with other sizes or types, is scaled from it: what a launch takes
// whatever its size, and the rest by the roofline of its work; another type by what it makes of such kernels on the job's
// processor (profiler/type_times.h). Others, as casts, are told by the cost model (profiler/cost_model.h).
//
// The range: times that were measured hold within kMeasuredError; what is scaled may reach the roofs, or be as much worse as
// scaled_range says; what the cost model tells lies where it was right for four kernels in five when the kernels of each
// name were predicted from all others. It is asked for what a kernel takes beyond the fixed part of a launch: small kernels would
// tell it a rate that no large one has.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/cost_model.h"
#include "profiler/type_times.h"

namespace gradloom {

constexpr double kLeastLeft = 0.01;  // of a step: no change is told to leave less

struct Gain {
  double ns = 0, low_ns = 0, high_ns = 0;
  double known = 1;  // the part of what differs that was measured, 0..1
};

class Predictor {
 public:
  static constexpr double kMeasuredError = 0.05;

  // Kernels of the job or of a change of it, with their times. `slower`: how many times as long kernels take now as when the
  // job's were timed; none: as those say that both have, or once.
  void add(const std::vector<KernelInfo>& kernels, const std::vector<KernelSample>& samples,
           std::optional<double> slower = std::nullopt);
  // The same from kernels that are known; none: they are a small part of these.
  std::optional<double> slower_now(const std::vector<KernelInfo>& kernels,
                                   const std::vector<KernelSample>& samples) const;
  void add(const std::vector<KernelTime>& times);
  bool empty() const { return model_.empty(); }
  // What other types make of kernels on the processor; `measured`: there.
  void set_types(TypeTimes types, bool measured) {
    types_ = std::move(types);
    types_measured_ = measured;
  }
  bool types_measured() const { return types_measured_; }
  // Launches of a step of the job, and its time; 0: not known. REQUIRES that something was added.
  void set_job(const std::vector<KernelInfo>& launches, double step_ns);

  double kernels_ns() const { return kernels_ns_; }  // of the job's step
  double step_ns() const { return kernels_ns_ + launch_ns_ * static_cast<double>(job_.size()); }
  double launch_ns() const { return launch_ns_; }  // that a launch takes beside its kernel
  double fixed_ns() const { return fixed_ns_; }    // of a kernel, whatever its size
  double ns(const KernelInfo& kernel) const;
  // `samples`: of a step of the change, as a multiple of the job's.
  Gain gain(const std::vector<KernelInfo>& changed, double samples) const;
  const CostModel& model() const { return model_; }
  // What the kernel would take at the best rates that kernels with about as much work, or more, reach. 0: none was timed that has.
  double best_ns(const KernelInfo& kernel) const;

 private:
  enum class ToldBy : std::uint8_t { measured, scaled, estimated };
  struct Told {
    double ns = 0;
    ToldBy by = ToldBy::measured;
  };
  Told told(const KernelInfo& kernel) const;
  double scaled(const KernelInfo& kernel, const KernelInfo& from) const;
  std::pair<double, double> scaled_range(const KernelInfo& kernel, const KernelInfo& from, double told) const;
  double least_ns(double flops, double bytes) const;
  void learn_errors();

  CostModel model_, beyond_fixed_;  // as measured; without what each takes whatever its size
  TypeTimes types_;
  bool types_measured_ = false;
  std::vector<KernelInfo> job_;
  std::map<std::string, const KernelInfo*> by_node_;
  double kernels_ns_ = 0, launch_ns_ = 0, fixed_ns_ = 0;
  double flops_per_ns_ = 0, bytes_per_ns_ = 0;   // the best that was measured
  double least_factor_ = 0.5, most_factor_ = 2;  // time / estimate, in four of five cases
};

}  // namespace gradloom
