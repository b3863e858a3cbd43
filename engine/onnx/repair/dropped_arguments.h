// What torch's dynamo exporter leaves out of a call because ONNX's operator has no place for it, though it decides
// gradients or the loss; the traced call of the node still says it (traced_call.h).
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

namespace gradloom {

struct RestoredArguments {
  // Embeddings whose row of padding gets no gradient again: "e.weight (row 0)"
  std::vector<std::string> padding;
  std::vector<std::string> smoothing;  // losses with label smoothing again: "cross_entropy_loss (0.1)"
  std::vector<std::string> detached;   // values that a call read detached, and does again
  std::vector<std::string> unplaced;   // calls that lack something which cannot be added: "mul_1 (detach)"
};

// Adds nodes for them:
//   embedding(weight, ids, padding_idx): no gradient flows where ids are padding_idx.
//   cross_entropy_loss(x, t, None, reduction, ignore_index, e): (1 - e) loss + e times the mean of -log softmax(x) over
//   the classes, in the same reduction; with weights of classes it is only told.
//   %detach, which the optimizer removed, as an operand: no gradient flows into it.
// Calls that had this done bear a mark, and a file that is written with it is left as it is. Older opsets than 18, for
// which the exporter has to convert its nodes, are only told.
RestoredArguments restore_arguments(onnx::ModelProto& model);

}  // namespace gradloom
