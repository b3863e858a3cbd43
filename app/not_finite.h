// Where a step's first NaN or infinite number comes from. The step is run again kernel by kernel, and after each
// what it read and wrote is looked through: the first kernel whose result is not finite although its operands are is
// the one, or what the step was given when that holds NaN already.
//
// Infinite numbers may belong there: masks hold -inf. What a step that went well had too is no finding; of the rest
// NaN and +inf count first, and -inf where nothing else is found.
//
// Several ranks run the step together, to its end, since each waits for what the others send. What came from others is no kernel's
// doing: the rank whose numbers went bad first finds its kernel, and tells the others.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/job.h"
#include "app/output.h"

namespace gradloom {

// What a tensor holds. `least`, `most`: of its finite numbers; both 0 where there are none.
struct OperandRange {
  std::string name;
  Type type;
  double least = 0, most = 0;
  std::int64_t count = 0, nan = 0, positive_infinite = 0, negative_infinite = 0;
  std::int64_t not_finite() const { return nan + positive_infinite + negative_infinite; }
};
OperandRange range_of(const std::string& name, const Tensor& tensor);

struct NotFinite {
  std::int64_t step = 0;
  std::int64_t micro = 0;       // micro-batch
  std::int32_t plan_step = -1;  // -1: given to the step, as `outputs` says
  KernelInfo kernel;
  std::vector<OperandRange> inputs, outputs;  // of floats
};

// Kernels (by plan step) that made what is not finite out of what is, in a step that went well.
using UsualKernels = std::set<std::int32_t>;

// Runs the job's next step, on all ranks. Nothing: all it read and made is finite, or was in `usual`. `usual` null: nothing is
// sought. `met`: gets all such kernels, and the step is made whole.
Result<std::optional<NotFinite>> find_not_finite(Job& job, std::int64_t step, const UsualKernels* usual,
                                                 UsualKernels* met = nullptr);

// What is told of it: a JSON object and one line, names escaped.
struct NotFiniteReport {
  Json json;
  std::string text;
};
NotFiniteReport not_finite_report(const NotFinite& found);
// Of several ranks, which all call: of the first in the step that one of them has found, on each of them, with that rank. Nothing: none
// has found any.
Result<std::optional<NotFiniteReport>> first_report(const std::optional<NotFinite>& found);

}  // namespace gradloom
