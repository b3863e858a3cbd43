// Scopes as the graph shows them: chains of single ones as one, layers that are alike as a fold.
#pragma once

#include "viz/model/graph_model.h"

namespace gradloom {

// A scope that holds nothing but one other scope becomes one with it: "bert/encoder". REQUIRES boxes that know their scopes,
// and no sums yet. (GraphBox::scope of boxes with a partner is of no meaning then.)
void join_chains(GraphModel& model);

// Siblings whose names differ in numbers alone, and that hold scopes of the same names, alike themselves, or, holding none,
// forward nodes of the same operators: as the tree of a step folds them (step_tree.h).
void find_folds(GraphModel& model);

}  // namespace gradloom
