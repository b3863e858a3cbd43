// What reads rows of a table, or classes of logits, of which ranks that share parameters have a part each (pass tensor-parallel).
#pragma once

#include "engine/ir/builder.h"
#include "engine/ops/collectives/parameter_part.h"

namespace gradloom {

// Nodes that add up over the ranks: attributes of the sum.
struct PartsSummed {
  std::int64_t ranks = 1;
  Attrs attrs;
  std::int64_t dim = 0;  // of all rows or classes, where parts are filled up with zeros; 0: none is
  std::int64_t all(std::int64_t part) const { return dim != 0 ? dim : part * ranks; }
};

// Gather(table, indices) of `node`, where `part` are the rows that this rank has: its rows and zeros for those of others, added up.
Result<ValueId> gather_of_parts(GraphBuilder& b, const Node& node, ValueId part, const PartsSummed& summed);
// The loss of `node`, SoftmaxCrossEntropyLoss or NegativeLogLikelihoodLoss of a LogSoftmax, where `logits` are those of the classes that this
// rank has: from the scores of all parts (engine/ops/losses/part_scores.cpp). REQUIRES that nothing reads its other results.
Result<ValueId> loss_of_parts(GraphBuilder& b, const Node& node, ValueId logits, const PartsSummed& summed);

}  // namespace gradloom
