// The memory budget as a slider on what recompute can do: peak against time, a point for each choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "viz/model/memory_model.h"

namespace gradloom {

struct BudgetViewState {
  bool dragging = false;
  std::optional<std::size_t> chosen;  // asked for: the point whose peak is to be the budget
};

// `points`: from the largest peak to the smallest. `peak_bytes`: of the plan as it stands.
void draw_budget(const std::vector<BudgetPoint>& points, std::int64_t peak_bytes, BudgetViewState& state,
                 float height);
// The point that a plan of this peak is: the first that needs no more.
std::size_t budget_point(const std::vector<BudgetPoint>& points, std::int64_t peak_bytes);

}  // namespace gradloom
