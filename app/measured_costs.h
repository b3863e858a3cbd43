// --costs SESSION[#RUN]: what kernels took in an earlier run, as the costs by which recompute is chosen
// (passes/recompute.h). The times become a part of the recipe, which replays without the session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/output.h"
#include "passes/compile.h"
#include "sessions/recipe.h"

namespace gradloom {

// Reads the times that `costs` names, where the recipe does not hold them; `costs` then says SESSION#RUN. Without
// #RUN: of the newest run of this model, device, precision and hardware (with its number of threads) whose
// kernels were timed. REQUIRES the recipe's model_hash.
// Errors: Errc::usage: no run is one, or the run that is named has another model, device, precision or number
// of threads, or no times; those of the session.
Status read_costs(Recipe& recipe);

// Of the machine on which the run that `costs` names was made, as its session has it.
struct CostsMachine {
  std::int64_t cores = 0, threads = 1;  // that it may use, and that its kernels used; 0: it is not known
  std::string hardware;                 // hardware_text
};
CostsMachine costs_machine(const Recipe& recipe);  // of a recipe that was prepared

// How much of a plan its costs were measured for.
struct MeasuredCosts {
  std::string from;  // SESSION#RUN
  std::size_t measured = 0, kernels = 0;
  std::string text() const;  // "84 of 98 kernels as runs.gls#3 measured them, the others by those"
  Json json() const;
};
std::optional<MeasuredCosts> measured_costs(const Recipe& recipe, const Compiled& compiled);  // none: without

// What each kernel takes, ns by plan step, of a graph that was compiled with these options; empty: it is not known.
std::vector<double> known_kernel_times(const CompileOptions& options, const Graph& graph, const Plan& plan);

}  // namespace gradloom
