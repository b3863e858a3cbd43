// ONNX file -> forward Graph. Every malformed file ends in a typed error; operators that Gradloom lacks are
// all collected.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

struct Limits {  // hostile files: see `gradloom inspect --limits`
  std::int64_t file_bytes = (std::int64_t{1} << 31) - 1;
  std::int64_t nodes = 1'000'000;
  std::int64_t nesting = 32;
  std::int64_t rank = 32;
  std::int64_t name_bytes = 4096;
  std::int64_t expanded_nodes = 100'000;     // made by inlining functions, and by unrolling loops
  std::int64_t expanded_bytes = 64 << 20;    // of what inlining makes, as it would stand in a file
  std::int64_t folded_bytes = 64 << 20;      // largest constant-folded output; all of them: twice that
  std::int64_t folded_work = 2'000'000'000;  // operations and bytes of all folding
  // Of constants that inference looks at one by one, over all nodes.
  std::int64_t examined_elements = 50'000'000;
};

// Each of them by name, for --import-limit NAME=N and `gradloom inspect --limits`.
struct LimitField {
  const char* name;
  std::int64_t Limits::*value;
};
std::span<const LimitField> limit_fields();
// Unknown names and numbers below 1 are errors.
Status set_limit(Limits& limits, const std::string& name, std::int64_t value);
// What the message of an exceeded limit ends with: " (--import-limit nodes=N raises the limit)".
std::string raised_by(const char* name);

struct ImportOptions {
  std::map<std::string, std::int64_t> dims;  // --dim NAME=N
  bool allow_unknown = false;     // viewing: unknown operators become opaque nodes instead of an error
  DType float_type = DType::f32;  // f64: every floating point tensor becomes f64 (reference runs)
  // The type in the graph of a tensor that the file says is of this type.
  DType imported(DType type) const { return float_type == DType::f64 && is_float(type) ? DType::f64 : type; }
  Limits limits;
  // Graph inputs with contents known before running (shapes, axes): they become constants.
  std::map<std::string, Tensor> known_inputs;
};

struct UnknownOp {
  std::string node, op_type, domain, scope, reason;
};

// An initializer of the file that is no parameter, but another one, as it is or transposed
// (merged_weights.h).
struct TiedCopy {
  std::string copy, original;
  bool transposed = false;
};

struct ImportedModel {
  Graph graph;
  std::string path, content_hash, producer;
  int ir_version = 0;
  std::vector<UnknownOp> unknown;  // with allow_unknown
  std::vector<UnknownOp> untyped;  // types of these could not be inferred; with allow_unknown or unbound dims
  std::vector<std::string> unbound_dims;  // symbolic dims without a binding
  std::vector<TiedCopy> tied_copies;
  std::vector<std::string> notes;  // e.g. "nodes were not sorted"
};

Result<ImportedModel> import_onnx(const std::string& path, const ImportOptions& options);

// TensorProto files of test folders.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
Result<NamedTensor> read_tensor_file(const std::string& path, const Limits& limits = {});
Status write_tensor_file(const std::string& path, const NamedTensor& tensor);

// Rewrites the initializers of the model at `source_path` with `parameters` (by name), and the copies of
// these, into `path`, atomically.
Status export_onnx(const std::string& source_path, const std::map<std::string, Tensor>& parameters,
                   const std::string& path, const std::vector<TiedCopy>& copies = {});

}  // namespace gradloom
