// Graph: the one representation from import to plan. A copyable value: flat
// vectors of nodes and values, 32-bit ids, SSA (each value has one producer).
// Built with GraphBuilder (builder.h), changed only through Rewriter (rewriter.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/tensor.h"

namespace gradloom {

struct OpDef;  // engine/ir/op.h

using NodeId = std::uint32_t;
using ValueId = std::uint32_t;
constexpr std::uint32_t kNone = 0xffffffffu;  // no node / no value (an omitted optional input)

using AttrValue =
    std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>, Tensor>;
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> init) : map_(init) {}
  bool has(const std::string& name) const { return map_.count(name) != 0; }
  void set(const std::string& name, AttrValue value) { map_[name] = std::move(value); }
  void erase(const std::string& name) { map_.erase(name); }
  // The attribute, or `fallback` when absent. A present attribute of another type is a CHECK
  // failure: import validates.
  std::int64_t integer(const std::string& name, std::int64_t fallback = 0) const;
  double real(const std::string& name, double fallback = 0) const;  // integers convert
  std::string text(const std::string& name, const std::string& fallback = "") const;
  std::vector<std::int64_t> integers(const std::string& name, std::vector<std::int64_t> fallback = {}) const;
  std::vector<double> reals(const std::string& name, std::vector<double> fallback = {}) const;
  const Tensor* tensor(const std::string& name) const;  // null when absent
  const std::map<std::string, AttrValue>& all() const { return map_; }
  bool operator==(const Attrs& other) const;

 private:
  std::map<std::string, AttrValue> map_;
};
std::string to_string(const AttrValue& value);
std::string to_string(const Attrs& attrs);  // "{axis=1, perm=[0, 2, 1]}", sorted by name

enum class Phase : std::uint8_t { forward, loss, backward, optimizer };
const char* phase_name(Phase phase);

enum class Role : std::uint8_t {
  activation,
  input,
  parameter,
  constant,
  gradient,
  state,
  hyper
};  // hyper: lr, step

// Where a node comes from. `sources` index Graph::sources: the ONNX nodes it stands for (several
// after fusion); a backward node lists the forward node it differentiates, an optimizer node none
// (its parameter tells). `passes` index Graph::passes: those that made or changed the node or what
// it was made of, in the order in which they ran; empty: as import, autodiff or the trainer made
// it.
struct Origin {
  std::vector<std::uint32_t> sources;
  Phase phase = Phase::forward;
  std::vector<std::uint32_t> passes{};
};

struct Node {
  const OpDef* op = nullptr;  // null: removed
  Attrs attrs;
  std::vector<ValueId> inputs;   // kNone: omitted optional input
  std::vector<ValueId> outputs;  // kNone: omitted optional output
  std::string name;              // unique among live nodes
  Origin origin;
  std::int64_t rank = 0;  // schedule order among ready nodes: smaller first; forward < backward < optimizer
  bool alive() const { return op != nullptr; }
};

struct Value {
  std::string name;  // unique; ONNX names kept
  Type type;
  bool has_type = false;  // false only in graphs opened for viewing that inference could not finish
  Role role = Role::activation;
  bool frozen = false;      // a parameter that is not trained
  bool wanted = false;      // an input whose gradient is a result
  NodeId producer = kNone;  // kNone: input, parameter, constant, state, hyper
  std::uint32_t output_index = 0;
  Tensor data;  // contents known before running: constants, initial parameters and states, folded shapes
};

struct SourceNode {                          // an ONNX node (or the loss that was added), kept for provenance
  std::string name, op_type, domain, scope;  // scope: "layers.0/attn", from the node's name
};

// `next` holds the new contents of `state` after a step (parameters, optimizer state,
// BatchNorm statistics, accumulators).
struct Update {
  ValueId state = kNone, next = kNone;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<ValueId> inputs;      // fed each step, in the model's order
  std::vector<ValueId> parameters;  // trainable or frozen initializers, in file order
  std::vector<ValueId> outputs;
  std::vector<Update> updates;
  std::vector<SourceNode> sources;
  std::vector<std::string> passes;   // that changed the graph, in order; one that ran twice is named twice
  std::vector<std::string> symbols;  // names of symbolic dims
  int opset = 0;                     // of the default ONNX domain
  ValueId loss = kNone;              // scalar, set by the trainer or for check

  const Node& node(NodeId id) const { return nodes[id]; }
  const Value& value(ValueId id) const { return values[id]; }
  const Type& type(ValueId id) const { return values[id].type; }
};

struct Use {
  NodeId node;
  std::uint32_t input_index;
};
std::vector<std::vector<Use>> uses_of(const Graph& graph);  // indexed by ValueId
std::size_t live_node_count(const Graph& graph);
// The names of Origin::passes joined by commas: "fuse-gelu,fuse-elementwise".
std::string passes_text(const Graph& graph, const Node& node);
// The last of such a list, which made the node or changed it last; empty when the list is.
std::string last_pass(const std::string& passes);
ValueId find_value(const Graph& graph, const std::string& name);  // kNone when absent
bool is_trained(const Graph& graph, ValueId id);                  // a parameter that is not frozen
bool is_constant(const Graph& graph, ValueId id);  // role constant, or data known (not a parameter/state)
// Contents of a scalar constant (any rank, one element); false for everything else.
bool scalar_constant(const Graph& graph, ValueId id, double* value);

// The value's shape has no symbolic dim; the same of all that a node reads and writes.
bool shape_known(const Graph& graph, ValueId id);
bool shapes_known(const Graph& graph, const Node& node);

// Live nodes, producers before consumers, and what writes over a value (kMustAlias) after all that read it; among
// ready nodes smaller rank, then smaller id.
// Error names a cycle's nodes.
Result<std::vector<NodeId>> topological_order(const Graph& graph);

// SSA, ids in range, unique names, no dangling values, acyclic, attributes and types
// accepted by the operators' inference, updates type-equal. Run after every pass.
// `deep` repeats shape inference for every node.
Status verify(const Graph& graph, bool deep = true);

// Text dump, one line per node in topological order; goldens and hashes use it.
std::string dump(const Graph& graph);
std::string graph_hash(const Graph& graph);  // of the dump without parameter contents

}  // namespace gradloom
