// Curves of runs over their steps: loss, held-out loss, norm of the gradient, learning rate, throughput, time of a step. The
// curve tab and `show --curves` are made of them.
//
// Smoothing is TensorBoard's: an exponential mean m = w m + (1 - w) x of what was before, divided by 1 - w^n, so that it is no
// mean with a zero in front (Kingma and Ba 2015, section 3). What is not finite stays as it is and does not count.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sessions/recipe.h"
#include "sessions/store.h"
#include "viz/model/axis.h"

namespace gradloom {

enum class CurveOf : uint8_t { kLoss, kHeldOut, kGradNorm, kRate, kThroughput, kStepTime };
struct CurveKind {
  const char *name, *title;  // as flags have it, and as people read it
  Unit unit;
  bool from_zero;  // the axis begins at 0
};
inline constexpr std::array<CurveKind, 6> kCurveKinds{{{"loss", "Loss", Unit::kPlain, false},
                                                       {"held-out", "Held-out loss", Unit::kPlain, false},
                                                       {"grad-norm", "Gradient norm", Unit::kPlain, true},
                                                       {"lr", "Learning rate", Unit::kPlain, true},
                                                       {"throughput", "Throughput", Unit::kPlain, true},
                                                       {"step-time", "Step time", Unit::kNs, true}}};
inline const CurveKind& curve_kind(CurveOf of) { return kCurveKinds[static_cast<size_t>(of)]; }

// What a run tells of its steps.
struct RunCurves {
  int64_t run = 0;
  std::string name;                                         // "run 3 (base)"
  std::vector<double> steps, loss, grad_norm, lr, step_ns;  // one for each step; NaN: not known
  std::vector<double> held_out_steps, held_out;
  double samples = 0;  // of a step; 0: not known
};
// The batch by its usual name, on all ranks and of all micro-batches; 0: the recipe names none.
double samples_per_step(const Recipe& recipe);
RunCurves run_curves(const RunRecord& run);
std::string run_label(const RunSummary& run);

struct Curve {
  std::string name;
  int64_t run = 0;
  std::vector<double> steps, values;  // steps ascend; a value that is not finite is a gap
  std::vector<double> smooth;         // as many; empty: not smoothed
  uint32_t place = 0;                 // of its run among those that are drawn, which is that of its colour
  bool empty() const { return steps.empty(); }
  // The index of the value nearest to a step; -1: there is none.
  int at(double step) const;
  // The curve that is read: the smooth one where there is one.
  const std::vector<double>& shown() const { return smooth.empty() ? values : smooth; }
};
// Empty: the run has none. `weight` of smoothing, 0 .. 1: 0 is none. `by_samples`: throughput in samples, else in steps, a
// second.
Curve curve_of(const RunCurves& run, CurveOf of, double weight, bool by_samples);
std::vector<double> smoothed(const std::vector<double>& values, double weight);

// The curves of the runs that are drawn, kept as long as runs, quantity and smoothing are the same.
class KeptCurves {
 public:
  struct Run {
    std::shared_ptr<const RunCurves> curves;
    uint32_t place = 0;
    bool operator==(const Run&) const = default;
  };
  // Of the runs that have the quantity. Loss of one run alone: its held-out loss too, in the colour of the next place.
  const std::vector<Curve>& of(const std::vector<Run>& runs, CurveOf of, double weight, bool by_samples);
  int64_t made() const { return made_; }  // how often that was more than finding them

 private:
  struct Asked {
    std::vector<Run> runs;
    CurveOf of = CurveOf::kLoss;
    double weight = 0;
    bool by_samples = false;
    bool operator==(const Asked&) const = default;
  } asked_;
  std::vector<Curve> curves_;
  int64_t made_ = 0;
};
bool know_samples(const std::vector<const RunCurves*>& runs);  // all of them
std::string curve_value_text(CurveOf of, double value);

}  // namespace gradloom
