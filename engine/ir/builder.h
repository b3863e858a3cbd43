// Adds nodes to a graph with types inferred at once. Import, autodiff, the trainer, patterns and passes all
// build with it.
#pragma once

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

// What new nodes get: where they come from, their place in the schedule, and names: prefix +
// operator + counter.
struct BuildContext {
  Origin origin{};
  std::int64_t rank = 0;
  std::string name_prefix{};
  BuildContext named(std::string prefix) const { return {origin, rank, std::move(prefix)}; }
};

class GraphBuilder {
 public:
  explicit GraphBuilder(Graph& graph, BuildContext context = {})
      : graph_(graph), context_(std::move(context)) {}
  const Graph& graph() const { return graph_; }
  const BuildContext& context() const { return context_; }  // changed by BuildScope alone

  ValueId input(const std::string& name, Type type, Role role = Role::input);
  ValueId parameter(const std::string& name, Tensor data);
  ValueId state(const std::string& name, Tensor initial);
  void update(ValueId state, ValueId next) { graph_.updates.push_back({state, next}); }
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

  // A size of 0 is one, not ONNX's "as before". The shape is a copy: that of a value moves when a node is added.
  ValueId reshape(ValueId value, Shape shape);

  // Result `index` of a node that was made without it. An inference failure is our bug (CHECK).
  ValueId add_output(NodeId node, std::size_t index);
  // The builder chose the name of the last node that it added.
  bool named_last() const { return named_last_; }

  const Type& type(ValueId id) const { return graph_.values[id].type; }
  const Shape& shape(ValueId id) const { return graph_.values[id].type.shape; }
  std::string unique_name(const std::string& base);

 private:
  friend class BuildScope;
  Graph& graph_;
  BuildContext context_;
  bool named_last_ = false;
  std::map<std::string, ValueId> constants_;  // by bytes, of this builder
  std::unordered_set<std::string> names_;
  std::map<std::string, int> counters_;
  std::size_t indexed_values_ = 0, indexed_nodes_ = 0;
};

// While it lives the builder makes nodes in this context, afterwards in the one before.
class BuildScope {
 public:
  BuildScope(GraphBuilder& builder, BuildContext context)
      : builder_(builder), before_(std::exchange(builder.context_, std::move(context))) {}
  ~BuildScope() { builder_.context_ = std::move(before_); }
  BuildScope(const BuildScope&) = delete;
  BuildScope& operator=(const BuildScope&) = delete;

 private:
  GraphBuilder& builder_;
  BuildContext before_;
};

}  // namespace gradloom
