// The line that steps through the passes: a slider over all passes that changed something and the rewrites in them, and
// what the shown one did.
#pragma once

#include "viz/model/stage_model.h"

namespace gradloom {

// True when `step` was changed, by mouse; the keys of the graph change it too (stage_keys).
bool draw_stage_bar(const StageModel& stages, int32_t* step);
// `listen`: plain keys are meant for the graph.
bool stage_keys(const StageModel& stages, int32_t* step, bool listen);

}  // namespace gradloom
