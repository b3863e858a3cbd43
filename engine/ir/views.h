// Values that are views of others (kView).
#pragma once

#include "engine/ir/graph.h"

namespace gradloom {

// The value whose bytes these are: what makes it is no view.
ValueId behind_views(const Graph& graph, ValueId v);

}  // namespace gradloom
