// AttributeProto lists -> Attrs, with the types that the operators' rows rely on.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/onnx/expand/expansion.h"
#include "engine/onnx/file/tensor_proto.h"

namespace onnx {
class OpSchema;
}

namespace gradloom {

struct ReadAttributes {
  Attrs attrs;
  std::string unsupported;  // why the operator cannot be used: an attribute of a kind or name Gradloom lacks;
                            // empty: it can
  std::string excluded;     // why the operator means nothing: a value out of its range (attribute_ranges.h)
};

// Checks names, types and required attributes against ONNX's operator schema (up to opset 17, plus what later
// ones added). Malformed attributes are errors; attributes that are fine but not supported are reported in
// `unsupported`, values that the specification excludes in `excluded`. `own`: the attributes of an operator that
// has no schema. `undeclared`: nothing says which attributes the operator has, so it may have any.
Result<ReadAttributes> read_attributes(const onnx::NodeProto& node, int opset, TensorReader& tensors,
                                       const std::vector<ExpansionAttribute>* own = nullptr,
                                       bool undeclared = false);

// ONNX's schema of an operator at an opset, or null: none, or the opset is newer than the library.
const onnx::OpSchema* schema_of(const std::string& op_type, int opset);
// The newest schema that the library has of the operator at this opset or before; null: ONNX's operator is newer.
const onnx::OpSchema* newest_schema_of(const std::string& op_type, int opset);
// The type that an attribute of ONNX's operator has at an opset; UNDEFINED: the operator has none of this name.
onnx::AttributeProto::AttributeType attribute_type(const std::string& op_type, const std::string& name,
                                                   int opset);

// Of a Constant node, from the one attribute it has.
Result<Tensor> constant_contents(const Attrs& attrs);

// For reference runs in f64: what an operator's attributes say about f32 (Cast to FLOAT, tensors of floats),
// and with `narrow` about f16 and bf16, becomes f64.
void promote_attributes_to_f64(const std::string& op_type, Attrs& attrs, bool narrow);

}  // namespace gradloom
