// Parameters that an exporter wrote more than once in place of what copies them: dynamo's optimizer folds what is
// computed from weights alone, and so writes a class token once per image of the batch, or a table of relative positions
// once per pair of them. These would train as many tokens and tables.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

class TensorReader;

// Initializers that were folded from copies of one parameter alone (provenance.h); what copies it is known by its equal
// parts.
//   "expand_1", of "h.token": the first of the equal parts along an axis becomes initializer "h.token", unless the file
//   has that one, and an Expand makes "expand_1" of it.
//   "index_2", of "h.table" by indices: the different rows along an axis become initializer "h.table/rows", in the
//   order of their first use, and Gather, Reshape and Transpose make "index_2" of them.
// Numbers that are all equal say nothing: only what was expanded along its first axes alone is then contracted.
struct Contracted {
  std::vector<std::string> sure;  // names of the initializers that were added
  // Of these too, where the parameter may have had several rows that were equal: other axes could have been expanded,
  // or the table has the same number all over a row.
  std::vector<std::string> guessed;
};
Result<Contracted> contract_expanded(onnx::GraphProto& graph, TensorReader& tensors);

}  // namespace gradloom
