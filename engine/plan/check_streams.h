// The part of check_plan that is about streams (plan.h); shares no code with what places them.
#pragma once

#include "engine/plan/plan.h"

namespace gradloom {

// Whether every two steps of which one writes what the other touches run one after the other, by their stream or by
// waits; whether waits are of earlier steps of other streams of the same range; whether the host's memory is
// touched by copies alone; whether exchanges with other ranks run one after another.
// REQUIRES a plan for this graph. Error: names both steps and the value.
Status check_streams(const Graph& graph, const Plan& plan);

}  // namespace gradloom
