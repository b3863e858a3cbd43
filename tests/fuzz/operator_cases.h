// Models of one node for every operator that a file can name, and what a stranger may have done to each: row
// O13 of the hostile corpus, derived from the operators' own declarations instead of a list by hand.
#pragma once

#include <onnx/onnx_pb.h>

#include <functional>
#include <string>
#include <vector>

namespace gradloom::fuzz {

struct OperatorCase {
  std::string name;  // of the operator's sample, or of its text
  onnx::ModelProto model;
};

// Of one operator, by domain and name ("", "Conv"; every row of that name): nodes as its samples have them,
// at each opset whose form differs. Floating point inputs are parameters, so that gradients are needed; the
// others have the samples' contents.
struct OperatorCases {
  std::string domain, name;
  std::vector<OperatorCase> cases;
};
// Operators with a row come from its samples, expansions (engine/onnx/expand/expansion.h) from a text each.
std::vector<OperatorCases> operator_cases();

// Each way in which attributes, inputs, types, shapes and contents of the node
// can be wrong: absent, of another type, zero, negative, huge, not a number,
// one too many or too few. One change each, in a fixed order.
struct Mutation {
  std::string what;  // "attribute 'axis' = -1"
  std::function<void(onnx::ModelProto&)> apply;
};
std::vector<Mutation> mutations_of(const onnx::ModelProto& model);

}  // namespace gradloom::fuzz
