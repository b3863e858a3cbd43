// Stand-ins for operators that Gradloom does not know, so that a model can still be looked at.
#pragma once

#include <string>
#include <vector>

#include "engine/onnx/read/imported_model.h"
#include "engine/ir/op.h"

namespace gradloom {

// A row with a name and nothing else: no inference, no kernel, no gradient. The same name gives the same row,
// which lives as long as the process: graphs hold pointers to rows.
const OpDef* opaque_op(const std::string& name, const std::string& domain);

// "3 operators are not supported: Foo (2 nodes: a, b), my.Bar (1 node: c)".
Error unsupported_error(const std::vector<UnknownOp>& unknown);

}  // namespace gradloom
