// The largest values of a graph's boxes, that their colours are relative to.
#pragma once

#include "viz/model/graph_model.h"

namespace gradloom {

// Fills the sums of folds and GraphModel::most, after anything that a box is coloured by has changed.
void find_most(GraphModel& model);

// What the layers of a fold have in a column: half of them have no more than `median`.
struct LayerSpread {
  double median = 0, most = 0;
  int32_t longest = -1;  // scope with the most; -1: no layer has any
};
LayerSpread spread_of(const GraphModel& model, const GraphFold& fold, LayoutColumn column, ColorBy by);

}  // namespace gradloom
