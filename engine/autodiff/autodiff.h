// Reverse-mode differentiation on the graph: backward nodes are ordinary nodes, built by each operator's
// gradient rule (Griewank and Walther, Evaluating Derivatives, 2008, ch. 3; reverse mode over a DAG with
// accumulation at fan-out).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

struct MissingGradient {
  std::string node, op_type, scope;
  std::string reason;  // why the operator's rule refuses; empty: it has none
};

// Nodes on a path from `wrt` to one of `losses` whose operator has no gradient rule, or one that refuses the
// node (asked once its shapes are known): all of them, in graph order.
std::vector<MissingGradient> missing_gradients(const Graph& graph, const std::vector<ValueId>& losses,
                                               const std::vector<ValueId>& wrt);

// Of each of `wrt`: does a gradient of one of `losses` reach it?
std::vector<bool> gradients_reach(const Graph& graph, const std::vector<ValueId>& losses,
                                  const std::vector<ValueId>& wrt);

// Of each of `values`: is it computed from one of `wrt` in a way that has a gradient?
std::vector<bool> gradients_leave(const Graph& graph, const std::vector<ValueId>& values,
                                  const std::vector<ValueId>& wrt);

// Appends backward nodes (Phase::backward, origin = forward node) and returns d loss / d wrt[i]; kNone where
// no path exists. All are multiplied by `seed`, a floating scalar (loss scaling); kNone: 1. Errors: loss not
// a floating scalar; missing gradients (message lists all).
Result<std::map<ValueId, ValueId>> add_gradients(Graph& graph, ValueId loss, const std::vector<ValueId>& wrt,
                                                 ValueId seed = kNone);

// The same of several outputs, whose gradients are values of the graph: vector-Jacobian products. An output may
// be given twice, and may be what another is computed from.
struct GivenGradient {
  ValueId output = kNone, gradient = kNone;  // of one type
};
Result<std::map<ValueId, ValueId>> add_gradients(Graph& graph, const std::vector<GivenGradient>& given,
                                                 const std::vector<ValueId>& wrt);

}  // namespace gradloom
