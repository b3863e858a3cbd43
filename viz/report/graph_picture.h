// The graph view's drawing as an SVG file of its own, which follows light and dark as a reader's settings are: groups of scopes, boxes with
// the stripe of their phase, edges and their shapes, the three columns. What a pointer rests on tells its name, kernel, cost and origin.
#pragma once

#include <string>

#include "viz/model/scene.h"

namespace gradloom {

std::string graph_picture(const GraphScene& scene, const std::string& title);

}  // namespace gradloom
