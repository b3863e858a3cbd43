// A graph of a few nodes, drawn whole and small: the example of a pass. Nothing in it can be selected.
#pragma once

#include <string_view>

#include "viz/layout/layout.h"
#include "viz/model/graph_model.h"

namespace gradloom {

struct SmallGraph {
  GraphModel model;
  LayoutResult layout;
};

SmallGraph make_small_graph(const Graph& graph);
// As wide as the room allows, at its own size at most; reports how many nodes it has under `id`.
void draw_small_graph(std::string_view id, const SmallGraph& graph);

}  // namespace gradloom
