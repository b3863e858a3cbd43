// Which module of the network a node belongs to, from the names that exporters write.
#pragma once

#include <string>
#include <vector>

namespace gradloom {

// Of a parameter: "layers.0.attn.qkv.weight" -> "layers.0/attn/qkv". A number belongs to the list before it.
std::string scope_of_parameter(const std::string& name);

struct NodeNames {
  std::string node;       // as in the file, may be empty
  std::string parameter;  // of the first parameter the node reads, may be empty
};

// One scope per node, nodes in file order. "/layers.0/attn/MatMul" -> "layers.0/attn"; a name without a path
// takes its parameter's module; what is left takes the path that its nearest neighbours with a scope, before
// and after, share.
std::vector<std::string> node_scopes(const std::vector<NodeNames>& nodes);

}  // namespace gradloom
