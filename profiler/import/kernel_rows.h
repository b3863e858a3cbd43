// Executions of kernels gathered into rows: one per operator, kernel, module, phase, stream and types of the operands.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "engine/base/names.h"
#include "profiler/import/chrome_events.h"

namespace gradloom {

// Numbers of texts; 0: the empty one.
struct KernelPlace {
  std::int32_t op = 0, kernel = 0, phase = 0, scope = 0, inputs = 0;
  std::int32_t inside = 0;  // what called the operator: another operator, a node of autograd, an optimizer
  std::int32_t source = 0;  // the operator that the program called, of forward and backward
  std::int32_t node = 0;    // where a kernel is of a node that has a name: that, which is its source's too
  std::int32_t stream = 0;
};

class KernelRows {
 public:
  KernelRows(ImportedTrace& trace, const TextTable& texts) : trace_(trace), texts_(texts) {}
  std::int32_t row(const KernelPlace& place);
  // Adds a sample to the step; the row's number.
  std::int32_t add(ImportedStep& step, const KernelPlace& place, std::int64_t start_ns,
                   std::int64_t duration_ns);

 private:
  std::uint32_t operator_of(const KernelPlace& place);

  ImportedTrace& trace_;
  const TextTable& texts_;
  std::map<std::array<std::int32_t, 9>, std::int32_t> rows_;
  std::map<std::array<std::int32_t, 3>, std::uint32_t> operators_;
  NameMap<int> names_;  // of nodes: how often each was asked for
};

// Steps after those that have so many executions in all are taken away; how many. `executions`: by step.
std::int64_t fit_steps(ImportedTrace& trace, const std::vector<std::int64_t>& executions);

}  // namespace gradloom
