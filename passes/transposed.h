// Operators that compute on transposed operands what they compute on the operands themselves, in another order of dims:
//   f(Transpose(x, perm), ..) = Transpose(f'(x, ..), perm)
// f' is f with its axes renamed: dim i of what is transposed is dim perm[i] of what is not.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/ir/builder.h"
#include "passes/product.h"

namespace gradloom {

// Inputs of the node that have the dims of its result, which must all be transposed; none: no such operator.
std::vector<std::size_t> turned_operands(const Graph& graph, const Node& node);

// f' of a node.
struct StraightNode {
  Attrs attrs;
  std::map<std::size_t, Shape> views{};  // by input: operands that are broadcast, as these shapes
  std::map<std::size_t, std::vector<std::int64_t>> numbers{};  // by input: axes and pads
};
// Why there is none for this order of dims; empty: `straight` is it.
std::string straighten(const Graph& graph, const Node& node, const Perm& perm, StraightNode& straight);

// Of a reduction over known axes, of any operand: what it reduces and its `axes` before a transpose by `perm`; why not.
std::string straighten_reduction(const Graph& graph, const Node& node, const Perm& perm,
                                 StraightNode& straight);
// The order of what is left of a transposed operand's dims, against what is left of its own.
Perm perm_of_rest(const Node& node, const Perm& perm, const StraightNode& straight);

ValueId build_straight(GraphBuilder& b, const Node& node, const StraightNode& straight,
                       const std::map<std::size_t, ValueId>& operands);

// The dims of more than one element keep their order: the bytes stay where they are.
bool moves_nothing(const Shape& shape, const Perm& perm);

}  // namespace gradloom
