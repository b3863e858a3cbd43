// Nodes of an ONNX graph -> nodes of a Graph: rows and attributes are looked up, types inferred, contents that
// can be known folded; operators without a row are expanded (expansion.h), and control flow whose course is known
// is unrolled (control_flow.cpp). What cannot be read for lack of an operator is collected.
#pragma once

#include <onnx/onnx_pb.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/names.h"
#include "engine/ir/builder.h"
#include "engine/onnx/expand/expansion.h"
#include "engine/onnx/read/fold.h"
#include "engine/onnx/read/functions.h"
#include "engine/onnx/read/imported_model.h"
#include "engine/onnx/file/import_options.h"
#include "engine/onnx/repair/initializers.h"
#include "engine/onnx/read/node_order.h"
#include "engine/onnx/file/tensor_proto.h"
#include "engine/onnx/file/types.h"

namespace gradloom {

// Which operators a file's names stand for.
struct Vocabulary {
  std::map<std::string, std::int64_t> opsets;  // by domain
  std::string problem;                         // not empty: no node of the model can be understood
  std::map<FunctionKey, std::string> skipped_functions;
};

// The values that the nodes of one graph can name: its own and, from a subgraph, those around it.
struct Names {
  const Names* outer = nullptr;
  std::string prefix;  // of the values' names in the Graph; empty: those of the file
  NameMap<ValueId> values{};
  ValueId find(const std::string& name) const;  // kNone when there is none
};

// One reading of an ONNX node; nodes of a loop's body are read once for each iteration.
struct Site {
  std::uint32_t source = 0;  // index in Graph::sources
  std::string name;          // unique in the Graph
};

class NodeReader {
 public:
  NodeReader(ImportedModel& out, const ImportOptions& options, TypeReader& types, TensorReader& tensors)
      : out_(out),
        options_(options),
        types_(types),
        tensors_(tensors),
        builder_(out.graph),
        folder_(out.graph, options.limits) {}

  Vocabulary vocabulary;
  InitializerUses uses;  // of the initializers of all graphs
  // Names of the nodes and results of the model's own graph: values and nodes made here avoid them.
  NameSet reserved, reserved_values;
  NameMap<const onnx::TypeProto*> declared_types;

  GraphBuilder& builder() { return builder_; }
  // Adds the node's outputs to `names`. Errors name the node.
  Status read(const onnx::NodeProto& node, const Site& site, Names& names);
  // kNone: nothing uses it. Takes its raw contents away.
  Result<ValueId> read_initializer(const onnx::TensorProto& initializer, const std::string& name);
  // A sequence of tensors, which is no value of the graph.
  static bool is_sequence(ValueId id) { return id >= kFirstSequence && id != kNone; }
  Tensor promoted(Tensor tensor) const;  // f32 as the float type of the import
  // Contents of what is computed from these values, which became constants after their nodes were read.
  Status fold_readers(const std::vector<ValueId>& constants);
  void finish();  // updates of states, and notes

 private:
  using Values = std::vector<ValueId>;  // one per output of a node

  // A node about to be added: the ONNX node, or a part of what it stands for.
  struct NewNode {
    const OpDef* op;
    std::string name;
    std::vector<ValueId> inputs;
    std::vector<std::string> outputs;  // names; empty: omitted
    Attrs attrs;
  };
  // What an attempt that fails takes back.
  struct Mark {
    std::size_t nodes, sources, unknown, untyped;
    ValueId first_value;
  };

  bool lenient() const { return options_.allow_unknown || !out_.graph.symbols.empty(); }
  Result<Values> read_outputs_of(const onnx::NodeProto& node, const Site& site, Names& names);
  const OpDef* lookup(const onnx::NodeProto& node, const Expansion** expansion, std::string* reason) const;
  Result<ValueId> read_constant(const onnx::NodeProto& node, const Attrs& attrs, const Names& names);
  Values opaque(const onnx::NodeProto& node, const Site& site, const Names& names, Attrs attrs);
  void report_unknown(const onnx::NodeProto& node, const Site& site, const std::string& reason);
  Values resolve(const onnx::NodeProto& node, const Names& names) const;
  std::vector<std::string> output_names(const onnx::NodeProto& node, const Names& names);
  std::string fresh_name(const std::string& base);
  // The same among values alone, where one can be had: of an initializer, which leaves under the file's name.
  std::string fresh_value_name(const std::string& base);

  Result<Values> add_node(NewNode node);
  Result<Values> add_chain(NewNode node);
  Result<Values> add_long_sum(NewNode node);
  Result<Values> add_expansion(const Expansion& expansion, const onnx::NodeProto& node, const Site& site,
                               NewNode added);
  Values add_untyped(NewNode node);
  Result<ValueId> add_part(const Site& site, const char* op, std::vector<ValueId> inputs, Attrs attrs = {});
  // Gives values the names of a node's outputs: those made for it (from `first_value` on) are renamed, others
  // get an Identity. Empty names: omitted.
  Result<Values> bind(const Values& values, const std::vector<std::string>& names, const Site& site,
                      ValueId first_value);
  Status check_size(const Type& type, const std::string& name) const;
  void follow_updates(std::vector<ValueId>& inputs) const;
  Status add_updates(const std::vector<ValueId>& states, const Values& outputs);
  void report_untyped(const std::string& node, const char* op, std::uint32_t source, const Error& error);
  Mark mark() const;
  void take_back(const Mark& mark);

  // ---- control_flow.cpp ----
  struct Body;  // a subgraph, looked over once
  static bool is_control_flow(const onnx::NodeProto& node);
  Result<Values> read_control_flow(const onnx::NodeProto& node, const Site& site, Names& names);
  Result<Values> read_if(const onnx::NodeProto& node, const Site& site, Names& names);
  Result<Values> read_loop(const onnx::NodeProto& node, const Site& site, Names& names);
  Result<Values> read_sequence_map(const onnx::NodeProto& node, const Site& site, Names& names);
  Result<Values> read_scan(const onnx::NodeProto& node, const Site& site, Names& names);
  struct Scan;
  Result<Values> scan_items(const Scan& scan, const Site& site, Names& names, const Values& inputs);
  Result<Values> unrolled(const Scan& scan, const Site& site, Names& names, const Values& inputs,
                          const std::string& item);
  Result<Body*> body_of(const onnx::GraphProto& graph, const Names& names, const Site& site);
  Result<Values> read_body(const Body& body, Names& inner, const Site& site, const std::string& part);
  Status count_iterations(std::int64_t count);
  // ---- flex_attention.cpp ----
  Result<Values> read_flex_attention(const onnx::NodeProto& node, const Site& site, Names& names);
  // x through a subgraph of one input and one output, `part` of the node; x itself without one.
  Result<ValueId> modified(const onnx::GraphProto* graph, const char* part, ValueId x, const Site& site,
                           Names& names);
  Result<Values> slices_of(const Site& site, ValueId sequence, std::int64_t axis, std::int64_t count);
  Result<ValueId> stacked(const Site& site, const Values& slices, std::int64_t axis,
                          const onnx::ValueInfoProto& declared);
  // ---- sequences.cpp ----
  static constexpr ValueId kFirstSequence = 0x80000000u;  // ids from here on are indices of sequences_
  static bool is_sequence_operator(const onnx::NodeProto& node);
  Result<ValueId> add_sequence(Values values);
  Result<Values> read_sequence_operator(const onnx::NodeProto& node, const Site& site, const Names& names,
                                        Attrs attrs);
  Result<ValueId> sequence_operator(const onnx::NodeProto& node, const Site& site, const Values& inputs,
                                    const Attrs& attrs);
  Result<ValueId> split_to_sequence(const Site& site, const Values& inputs, const Attrs& attrs);
  Result<ValueId> concat_from_sequence(const Site& site, Values list, const Attrs& attrs);
  // The course of a node is not known: it counts as unsupported, with this reason.
  Error not_followed(const std::string& why);
  void report_inside(const onnx::GraphProto& graph, const Site& site);

  ImportedModel& out_;
  const ImportOptions& options_;
  TypeReader& types_;
  TensorReader& tensors_;
  GraphBuilder builder_;
  Folder folder_;
  SharedConstants shared_constants_;
  std::unordered_map<const onnx::NodeProto*, ValueId> constants_;  // Constant nodes of bodies
  std::map<const onnx::GraphProto*, std::shared_ptr<Body>> bodies_;
  std::vector<Values> sequences_;
  std::size_t sequence_entries_ = 0;
  std::string not_followed_;
  std::size_t malformed_biases_ = 0;
  std::int64_t iterations_ = 0, unrolled_ = 0;  // iterations and nodes of all loops so far
  std::vector<Update> updates_;                 // of states, in the order of the nodes
  std::map<ValueId, ValueId> contents_;         // of a state after those updates
  NameSet value_names_;                         // of the graph's first `named_values_`, and of renamed ones
  std::size_t named_values_ = 0;
};

std::string node_label(const std::string& name, const std::string& op_type);
std::string canonical_domain(const std::string& domain);  // ONNX spells its own domain "" and "ai.onnx"

}  // namespace gradloom
