#include "viz/model/step_sums.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace gradloom {

StepSums step_sums(std::vector<KernelRow> rows) {
  std::vector<std::string> phases;  // as they come
  for (const KernelRow& row : rows)
    if (std::find(phases.begin(), phases.end(), row.info.phase) == phases.end())
      phases.push_back(row.info.phase);

  KernelTableModel table;
  table.set_rows(std::move(rows));
  StepSums sums;
  sums.timed = table.timed();
  sums.kernels = static_cast<std::int64_t>(table.shown_kernels());
  sums.time_ns = table.total_ns();
  table.set_sort(sums.timed ? KernelColumn::kTime : KernelColumn::kBytes, true);
  if (sums.timed)
    for (const KernelLine& line : table.lines())
      if (sums.longest.size() < kLongest && !std::isnan(line.time_ns)) sums.longest.push_back(line);
  table.set_group(KernelGroup::kOp);
  sums.operators = table.lines();
  table.set_group(KernelGroup::kPhase);
  sums.phases = table.lines();
  const auto place = [&](const KernelLine& line) {
    return std::find(phases.begin(), phases.end(), line.name) - phases.begin();
  };
  std::sort(sums.phases.begin(), sums.phases.end(),
            [&](const KernelLine& a, const KernelLine& b) { return place(a) < place(b); });
  return sums;
}

}  // namespace gradloom
