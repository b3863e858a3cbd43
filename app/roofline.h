// Kernels under the roofs of a processor (profiler/roofline.h): `plan --roofline` and `show --roofline`.
#pragma once

#include <string>

#include "app/output.h"
#include "engine/device/device.h"
#include "engine/ir/rewriter.h"
#include "sessions/recipe.h"
#include "viz/model/roofline_model.h"

namespace gradloom {

// What `devices --measure` found, kept in the user's cache for the roofs of later runs on the same processor with as many
// threads; nothing where there is no such folder. `hardware`: as hardware_text_here; `json`: the line that it wrote.
Status remember_hardware(const std::string& hardware, const std::string& json);

// The roofs over a recorded run: those that `on` names, else what was measured of its processor, else the best that its own
// kernels reached. Errors: find_hardware's.
Result<Hardware> hardware_of_run(const RunRecord& run, const std::string& on);
// Over a plan: those that `on` names, else what was measured of the device, which is looked for among `devices`. Errc::usage:
// nothing is known of it.
Result<Hardware> hardware_of_plan(const Recipe& recipe, const std::string& on,
                                  const std::vector<DeviceInfo>& devices);
Result<Hardware> hardware_of_plan(const Recipe& recipe, const std::string& on);  // asks the devices

// About what a rewrite saves there, of operands of this type; less than 0: it takes more. Kernels wait for their arithmetic or for memory.
double saved_ns(const SavedWork& saved, const Hardware& hardware, const std::string& precision);

RooflineModel roofline_of_run(const RunRecord& run, const Hardware& hardware);
RooflineModel roofline_of_plan(const Graph& graph, const Plan& plan, const Recipe& recipe,
                               const Hardware& hardware);

// Which kernels are shown: those whose dots lie in the areas of --inside; all where there are none.
Result<RooflineSelection> asked_selection(const RooflineModel& model, const std::vector<std::string>& inside);
// {"hardware", "source", "least_ns", .., "roofs", "kernels"}; with areas only their kernels, and "inside" with the sums.
Json roofline_json(const RooflineModel& model, const RooflineSelection& selection);
// `limit`: rows that are printed.
std::string roofline_text(const RooflineModel& model, const RooflineSelection& selection, RooflineGroup by,
                          std::size_t limit);
inline constexpr const char* kInsideHelp =
    "with --roofline: only the kernels in an area of the plot, FLOP/B from .. to and FLOP/s from .. to, as in "
    "0.5..8,1e9..2e10; several areas count together";
Result<RooflineGroup> parse_roofline_group(const std::string& name);

}  // namespace gradloom
