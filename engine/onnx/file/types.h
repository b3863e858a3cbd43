// TypeProto -> Type, and the binding of symbolic dimensions.
#pragma once

#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <vector>

#include "engine/base/tensor.h"
#include "engine/onnx/file/import_options.h"

namespace gradloom {

class TypeReader {
 public:
  // Dimensions without a binding are appended to `symbols` (Graph::symbols) when an input names them.
  TypeReader(const ImportOptions& options, std::vector<std::string>& symbols)
      : options_(options), symbols_(symbols) {}

  // Of a graph input. Dimensions without a name are called "<input>_dim<axis>".
  Result<Type> read_input(const std::string& name, const onnx::TypeProto& proto);
  // Of another value: names that no input has make it an error.
  Result<Type> read_declared(const onnx::TypeProto& proto);

  // Whether a declared tensor type has the shape of `type`, as far as both are known;
  // another element type is an error.
  Result<bool> shape_agrees(const onnx::TypeProto& proto, const Type& type) const;

  Status check_given() const;     // bindings are at least 1
  Status check_all_used() const;  // after the inputs: every binding is of a dimension that some input has

 private:
  struct Owner {
    std::string name;  // of a graph input; empty for other values
    std::string label;
  };
  Result<Type> read(const onnx::TypeProto& proto, const Owner& owner);
  Result<std::int64_t> dim(const onnx::TensorShapeProto::Dimension& proto, const Owner& owner, int axis);

  const ImportOptions& options_;
  std::vector<std::string>& symbols_;
  std::map<std::string, std::int64_t> dims_;  // number, or negative for a symbol
};

// Older files list initializers as graph inputs too: the two must agree.
Status check_declared(const onnx::TypeProto& proto, const onnx::TensorProto& data, const std::string& owner);

}  // namespace gradloom
