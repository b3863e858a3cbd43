// Which axes of a value are those of the batch and of positions in it, where inputs are [batch, position].
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

struct BatchAxes {
  std::int64_t batch = 0, position = 1;
  bool operator==(const BatchAxes&) const = default;
};

// Follows both axes from the graph's inputs through its nodes. What mixes positions or gives results of other dims ends
// them.
class BatchAxesFinder {
 public:
  // `order`: the nodes, topologically; `dims`: the sizes of both axes, with which the inputs begin that have them.
  BatchAxesFinder(const Graph& graph, const std::vector<NodeId>& order, Shape dims);

  std::optional<BatchAxes> of(ValueId v) const;
  bool leads(ValueId v) const;     // they are its first two
  bool has_dims(ValueId v) const;  // its first two dims have their sizes, whatever they are

 private:
  const Shape& shape(ValueId v) const { return graph_.type(v).shape; }
  std::int64_t rank(ValueId v) const { return static_cast<std::int64_t>(shape(v).size()); }
  bool fits(ValueId v, const BatchAxes& axes) const;
  std::optional<BatchAxes> axes_of(const Node& node) const;
  std::optional<BatchAxes> broadcast(const Node& node) const;
  std::optional<BatchAxes> gathered(const Node& node) const;
  std::optional<BatchAxes> reshaped(const Node& node, const BatchAxes& axes) const;
  std::optional<BatchAxes> product(const Node& node, std::optional<BatchAxes> a) const;
  std::optional<BatchAxes> transposed(const Node& node, const BatchAxes& axes) const;

  const Graph& graph_;
  const Shape dims_;
  std::map<ValueId, BatchAxes> axes_;
};

}  // namespace gradloom
