// The only way a pass changes a graph. Keeps uses, checks type equality of replaced values, and
// logs every rewrite: the window's pass history, match counts and provenance are this log. It is
// complete: nodes come, go and change between begin and commit alone, and each is named in the
// record.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/ir/builder.h"
#include "engine/ir/graph.h"
#include "engine/ir/instances.h"

namespace gradloom {

// What a rewrite leaves less to do, by the operators' cost rows (OpDef::cost): of the nodes that went and changed, less that of those that
// came and of what the changed ones are now. FLOPs; bytes read and written; nodes that are no views. Before autodiff: of the forward pass alone.
struct SavedWork {
  double flops = 0, bytes = 0;
  int kernels = 0;
};

struct RewriteRecord {
  std::string rule;  // e.g. "gelu-erf"
  std::string site;  // name of the instance: the anchor node's name
  bool matched = false;
  std::string why;                   // rejected: the reason; matched: what was gained, may be empty
  std::vector<std::string> removed;  // node names
  std::vector<std::string> added;
  std::vector<std::string> changed;    // in place: they stay, with other operands, attributes and types
  std::vector<std::uint32_t> sources;  // Graph::sources concerned
  // "@" and 12 hex digits: what was matched and where it came from (instances.h). Empty: no match, or one that
  // follows from others and has no switch.
  std::string fingerprint{};
  std::optional<SavedWork> saves{};  // nothing: no match, or sizes are not known
};

// Told of each rewrite, when the graph is whole again.
using RewriteWatch = std::function<void(const Graph& graph, const RewriteRecord& record)>;

class Rewriter {
 public:
  // `chosen`: the instances that the user switched off, or wants alone.
  Rewriter(Graph& graph, std::string pass, InstanceChoice chosen = {}, RewriteWatch watch = {});
  const Graph& graph() const { return graph_; }
  const std::vector<Use>& uses(ValueId id) const { return uses_[id]; }
  std::size_t use_count(ValueId id) const;  // node inputs + graph outputs + updates that read the value
  bool is_output(ValueId id) const;         // graph output, loss or update target

  // False (and logged as rejected "switched off") when the user does not want the instance. `matched`: the nodes
  // that it was found in, from which its fingerprint comes, which begin then logs; none: the anchor.
  bool allowed(const std::string& rule, NodeId anchor, const std::vector<NodeId>& matched = {});
  void reject(const std::string& rule, NodeId anchor, const std::string& why);

  // A rewrite: begin, build new nodes with the builder, replace values, then commit. New nodes
  // inherit the union of the origins of the replaced ones (phase and rank of `anchor`), and this
  // pass is added to theirs. Nodes whose outputs all became unused are removed. When the anchor is
  // among them, the last new node takes its name (unless it was given one), so that sites keep the
  // model's names from pass to pass.
  GraphBuilder& begin(const std::string& rule, NodeId anchor, const std::vector<NodeId>& replaced);
  // Types must be equal; uses, outputs and updates move; name moves too.
  void replace(ValueId old_value, ValueId new_value);
  // Outputs of the graph, loss and updates alone read the new value,
  // whose type may differ; the name moves to it.
  void replace_outputs(ValueId old_value, ValueId new_value);
  // A parameter is kept in another type; what reads it must be retyped or replaced too.
  void retype_parameter(ValueId parameter, DType type);
  // A new state gets `next` after every step.
  void update(ValueId state, ValueId next);
  // Nothing updates the state any more. REQUIRES that nothing reads it after commit.
  void forget(ValueId state);
  // The node stays and reads `inputs`, with these attributes; its results take the types that
  // inference gives, known contents are converted. What reads them must be retyped too.
  // REQUIRES inputs that the operator accepts.
  void retype(NodeId node, std::vector<ValueId> inputs, Attrs attrs);
  // The node stays and takes another place in the schedule: the one after nodes of this rank.
  void reorder(NodeId node, std::int64_t rank);
  // The node stays and computes, from now on, for what the replaced nodes stood for too: it gains their origins,
  // where they are of its phase.
  void stands_for_replaced(NodeId node);
  void commit(const std::string& why = "");

  const std::vector<RewriteRecord>& log() const { return log_; }
  std::vector<RewriteRecord> take_log() { return std::move(log_); }
  int matched_count() const;

 private:
  std::uint32_t pass_id();  // in Graph::passes
  bool made_here(NodeId node) const { return node != kNone && node >= first_own_node_; }
  void remove_dead(NodeId node);  // REQUIRES no used outputs
  void index_new_nodes();
  void move_outputs(ValueId old_value, ValueId new_value);
  void count_work(NodeId node, int times);
  void count_before(NodeId node);
  void count_readers_before(ValueId value);
  Graph& graph_;
  GraphBuilder builder_;
  std::string pass_;
  InstanceChoice chosen_;
  RewriteWatch watch_;
  InstanceNamer namer_;
  std::vector<std::vector<Use>> uses_;
  std::vector<int> extra_uses_;
  std::vector<RewriteRecord> log_;
  const NodeId first_own_node_;  // this one and those after it were made by this rewriter
  std::uint32_t pass_id_ = kNone;
  // The rewrite between begin and commit.
  std::optional<BuildScope> scope_;
  std::vector<NodeId> replaced_;
  NodeId first_new_node_ = 0, anchor_ = kNone;
  NodeId first_made_node_ = 0;  // in this rewrite
  std::set<NodeId> counted_{};  // of those before it, what they did when it began
  RewriteRecord current_;
};

// Removes the nodes that neither an output, the loss nor an update depends on, each a record of
// rule `rule`; those that the user switched off stay, and what they read.
Status remove_unneeded(Rewriter& rw, const char* rule);

}  // namespace gradloom
