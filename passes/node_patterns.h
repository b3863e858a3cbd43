// Nodes as users name them: an operator's type ("Softmax") is every node of that type, anything else is a glob over the
// names of nodes ("/head/*"). The model's own names and types fit all that passes made of those nodes.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

bool fits_node(const std::string& pattern, const Graph& graph, const Node& node);

// Each of the model's nodes that the node stands for fits one of the patterns.
bool fits_wholly(const std::vector<std::string>& patterns, const Graph& graph, const Node& node);

// As a pattern a node's name stands for nodes of that name alone: it is no operator's type and no glob, and holds no space, at which
// lists of patterns are parted.
bool names_itself(const std::string& name);

// Errc::usage: a pattern that is neither an operator's type nor fits a node, with the nearest; `setting` begins the line.
Status check_node_patterns(const Graph& graph, const std::vector<std::string>& patterns,
                           const std::string& setting);

}  // namespace gradloom
