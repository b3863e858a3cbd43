// Parameters of which several ranks have a part each (pass tensor-parallel).
//   ParameterPart(w) -> the part of this rank: along `axis`, which is `groups` pieces in a row, of each piece the n-th of `parts` equal parts, where
//   this is rank n of its group (rank modulo parts; 0 where the process is none). A weight of Q, K and V in one product is three pieces, of which
//   each rank has its heads. One piece that `parts` does not divide is cut in parts of as many elements, rounded up: the last has zeros behind what
//   there is.
// The pass puts such nodes before what reads a weight; then each rank keeps the part alone (keep_parts), and the first sum that adds what the
// ranks make of their parts (all_reduce.h) says of which parameters: attributes parameters (values), axes, groups.
#pragma once

#include <map>

#include "engine/ir/op.h"

namespace gradloom {

struct ParameterPart {
  std::int64_t axis = 0, groups = 1, parts = 1;
  std::int64_t dim =
      0;  // of the whole along the axis, where the last part is filled up with zeros; 0: none is
  Shape whole(Shape part) const;
};
// Of `dim` elements each of so many ranks has a part; 0: the last ones would have none.
std::int64_t part_of_dim(std::int64_t dim, std::int64_t parts);

const OpDef& parameter_part_op();
Attrs part_attrs(const ParameterPart& part);
void say_parts(Attrs& attrs, const std::map<ValueId, ParameterPart>& parts);
// The parameters of which this graph has parts; all in as many.
std::map<ValueId, ParameterPart> parameter_parts(const Graph& graph);
// Ranks that share parameters; 1: every rank has all.
std::int64_t tensor_ranks(const Graph& graph);

// REQUIRES that the axis is a multiple of groups x parts, or `dim` says what it is. Errc::io: as Tensor::loaded.
Result<Tensor> cut_part(const Tensor& whole, const ParameterPart& part, std::int64_t number);
// Writes a part where it is in the whole.
void put_part(Tensor& whole, const Tensor& contents, const ParameterPart& part, std::int64_t number);
// Parameters that ParameterPart reads become what it makes of them, part `number`, and the nodes go.
Status keep_parts(Graph& graph, std::int64_t number);

}  // namespace gradloom
