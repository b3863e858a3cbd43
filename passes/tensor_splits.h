// How tensors of a forward graph are shared out to ranks of which each computes with its part, and what that asks of their neighbours.
//
// A split is an axis of groups x ranks x rest elements, of which each rank has its `rest` in every group: columns of a weight, heads, or
// with three groups the heads of Q, K and V that one product makes. From one product with a weight it spreads to all that reads or makes what is
// split, until products over the split axis end it: their results are sums over the ranks (Shoeybi et al. 2019, Megatron-LM). Where rows of a table
// are split, as an embedding's that is the weight of the vocabulary head too, a Gather of rows ends it; where classes are, the cross-entropy of
// them (passes/tensor_vocabulary.h). Rows and classes that the ranks do not divide are filled up with zeros in the last part, which stay zeros: their
// gradients are. Operators that are not known to compute each part by itself, and what leaves the graph, are reasons to split
// nothing.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/ir/rewriter.h"
#include "engine/ops/collectives/parameter_part.h"

namespace gradloom {

struct TensorSplit {
  std::int64_t axis = 0, groups = 1;
  bool operator==(const TensorSplit&) const = default;
};

// Ends the reason why nothing is split where parts may not be filled up.
constexpr const char* kNotFilledUp = ", and parts are not to be filled up (tensor-parallel{fill=0})";

class TensorRegion {
 public:
  // `fills_up`: whether parts may be filled up with zeros.
  TensorRegion(const Rewriter& rw, std::int64_t ranks, bool fills_up)
      : rw_(rw), ranks_(ranks), fills_up_(fills_up), parts_(parameter_parts(rw.graph())) {}

  // Splits the columns of a product with a weight and all that follows from it. Why not; empty: each node of `nodes` computes with parts, those
  // of `ends` give sums over the ranks.
  std::string grow(NodeId product, std::int64_t groups);
  // The same of the rows of the table that a Gather reads.
  std::string grow_rows(NodeId gather);

  const Graph& graph() const { return rw_.graph(); }
  std::int64_t ranks() const { return ranks_; }
  const std::map<ValueId, TensorSplit>& splits() const { return splits_; }
  const TensorSplit* split(ValueId id) const;  // null: it is whole
  Shape part_shape(ValueId id) const;          // its own, where it is whole
  std::int64_t padded() const {
    return padded_;
  }  // the dim that is split, where parts are filled up with zeros; 0: none is
  // Nodes that read or make what is split. Results of those in `known` are known contents, whatever their inputs hold.
  const std::set<NodeId>& nodes() const { return nodes_; }
  const std::set<NodeId>& ends() const { return ends_; }
  const std::set<NodeId>& known() const { return known_; }

  // What rules say (tensor_split_rules.cpp). Why not; empty: it fits what was said before.
  std::string set(ValueId id, TensorSplit split);
  std::string keep_whole(ValueId id);
  void end_at(NodeId node) { ends_.insert(node); }
  // Whether nodes alone read the value, all of them of this operator, as their first input.
  bool read_by(ValueId id, const char* op) const;
  bool unread(ValueId id) const { return rw_.use_count(id) == 0; }

 private:
  std::string spread();
  std::string pad(const Value& value, TensorSplit split);
  bool may_be_padded() const;
  const Rewriter& rw_;
  std::int64_t ranks_;
  bool fills_up_;
  std::map<ValueId, ParameterPart> parts_;  // that there are already
  std::map<ValueId, TensorSplit> splits_;
  std::set<ValueId> whole_;
  std::set<NodeId> nodes_, ends_, known_;
  std::vector<NodeId> open_;
  std::int64_t padded_ = 0;
  std::string why_padded_;
};

// Whether the node multiplies with a weight, a parameter behind views and transposes, from the right; of two dims.
bool multiplies_with_weight(const Graph& graph, NodeId id);
// Whether the node gathers rows of a table, a parameter of two dims behind views and transposes, that has at least kLeastRows times as many
// rows as are gathered: of a smaller one parts save less than their exchange costs.
constexpr std::int64_t kLeastRows = 4;
bool gathers_from_table(const Graph& graph, NodeId id);

// Sets the splits of what a node reads and makes from those that are known. Why not; empty: done.
std::string spread_split(TensorRegion& region, NodeId id);

// What a node takes where it computes with parts: inputs that tell sizes, in the place of its own, and attributes.
struct PartArguments {
  std::map<std::size_t, std::vector<std::int64_t>> inputs;
  Attrs attrs;
};
PartArguments part_arguments(const TensorRegion& region, NodeId id);

}  // namespace gradloom
