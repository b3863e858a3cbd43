// Memory planners: assign arena offsets to lifetimes.
//   none      every buffer has its own place (what a naive engine allocates)
//   reuse     a freed block of sufficient size is taken again, first fit in step order (ONNX Runtime's scheme)
//   best-fit  largest first, each into the lowest gap that fits among overlapping lifetimes; of several orders
//             the smallest arena is kept (greedy by size; Pisarchyk and Lee, 2020)
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
const PlannerDef* find_planner(const std::string& name);
// Usage error with all planners' names for an unknown one.
Result<const PlannerDef*> known_planner(const std::string& name);

}  // namespace gradloom
