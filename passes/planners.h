// Memory planners: assign arena offsets to lifetimes.
//   none      every buffer has its own place (what a naive engine allocates)
//   reuse     a freed block of sufficient size is taken again, first fit in step order (ONNX Runtime's scheme)
//   best-fit  each into a gap that fits among overlapping lifetimes, in several orders (greedy by size; Pisarchyk
//             and Lee, 2020); where the arena is above the lower bound, packing.h closes in on it, with a bound of
//             work. With very many requests: in the order of the steps
#pragma once

#include <span>
#include <string>

#include "engine/plan/plan.h"

namespace gradloom {

struct PlannerDef {
  const char* name;
  const char* summary;
  PlannerFn plan;
};
std::span<const PlannerDef> all_planners();
// For searches that compare peaks: the lower bound, as if a planner were perfect. It places nothing.
std::int64_t plan_nothing(const std::vector<Request>& requests, std::vector<std::int64_t>& offsets);
const PlannerDef* find_planner(const std::string& name);
// Usage error with all planners' names for an unknown one.
Result<const PlannerDef*> known_planner(const std::string& name);

}  // namespace gradloom
