// How many rows of tokens the batch at hand has, as the host sees it before a queued device runs it: what PackedRows
// (engine/ops/padding/packed_rows.h) computes is chosen when it is launched. Where the mask follows from the inputs of the
// graph and constants by small steps, these are taken here, with kernels of the CPU over the batch that was sent. No
// memory is taken after `prepare`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/op.h"
#include "engine/plan/plan.h"

namespace gradloom {

class RowCounts {
 public:
  static constexpr std::int64_t kAll = INT64_MAX;  // more than any batch has: all rows are computed

  // Errors are those of the kernels.
  Status prepare(const Graph& graph, const Plan& plan);
  // Some step of the plan is told how many rows it has, and the host can tell.
  bool any() const { return !masks_.empty(); }
  // At least as many as there are; one of the few numbers that kernels are prepared for. `sent`: the contents of an input
  // as the device gets them; null: the host does not know them.
  std::int64_t rows(const std::function<const void*(ValueId)>& sent);

 private:
  struct Step {
    Kernel kernel;
    std::vector<ValueId> inputs, outputs;
    std::vector<const void*> in{};
    std::vector<void*> out{};
  };
  struct Mask {
    const std::int64_t* count;  // of TokenRows
    std::int64_t positions;
  };

  // Adds the steps to `value`; false: the host cannot take them.
  Result<bool> reach(const Graph& graph, ValueId value, std::int64_t most);

  std::vector<Step> steps_;
  std::map<ValueId, Tensor> contents_;  // constants, and results of the steps
  std::map<ValueId, ValueId> same_;     // views, by what they are views of
  std::vector<ValueId> inputs_;         // of the graph
  std::map<ValueId, const void*> addresses_;
  std::vector<Mask> masks_;
  std::vector<std::byte> workspace_;
};

}  // namespace gradloom
