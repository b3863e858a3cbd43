// Adds nodes to a graph with types inferred at once. Import, autodiff, the trainer, patterns and passes all
// build with it.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

class GraphBuilder {
 public:
  // New nodes get this origin and rank until changed.
  explicit GraphBuilder(Graph& graph) : graph_(graph) {}
  Graph& graph() { return graph_; }
  Origin origin;
  std::int64_t rank = 0;
  std::string name_prefix;  // new names: prefix + op + counter

  ValueId input(const std::string& name, Type type, Role role = Role::input);
  ValueId parameter(const std::string& name, Tensor data);
  ValueId constant(Tensor data, const std::string& name = "");  // equal small constants are shared
  ValueId scalar(DType dtype, double value) { return constant(Tensor::scalar(dtype, value)); }
  ValueId i64s(const std::vector<std::int64_t>& values) { return constant(Tensor::from_i64(values)); }

  // Adds a node; `outputs` names may be empty (generated). Infers output types; an inference error is
  // returned. Outputs beyond `output_count` are omitted.
  Result<std::vector<ValueId>> add(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {},
                                   int output_count = 1, const std::vector<std::string>& output_names = {},
                                   const std::string& node_name = "");
  // One-output form for rules that build only what must be valid: an inference failure is our bug (CHECK).
  ValueId op(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {});
  ValueId op(const char* name, std::vector<ValueId> inputs, Attrs attrs = {});  // by operator name
  std::vector<ValueId> ops(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, int output_count);

  const Type& type(ValueId id) const { return graph_.values[id].type; }
  const Shape& shape(ValueId id) const { return graph_.values[id].type.shape; }
  std::string unique_name(const std::string& base);

 private:
  Graph& graph_;
  std::map<std::string, ValueId> constants_;  // by bytes, of this builder
  std::unordered_set<std::string> names_;
  std::map<std::string, int> counters_;
  std::size_t indexed_values_ = 0, indexed_nodes_ = 0;
};

}  // namespace gradloom
