// Which module of the network a node belongs to, from the names that exporters write.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gradloom {

// Of a parameter: "layers.0.attn.qkv.weight" -> "layers.0/attn/qkv". A number belongs to the list before it.
std::string scope_of_parameter(const std::string& name);

struct NodeNames {
  std::string node;                  // as in the file, may be empty
  std::string parameter;             // of the first parameter the node reads, may be empty
  std::optional<std::string> scope;  // known from elsewhere: metadata, a call of a function
};

// Metadata of nodes in which torch.onnx keeps what scope_of_name_scopes() reads.
inline constexpr const char* kNameScopes = "pkg.torch.onnx.name_scopes";

// A Python list of the modules around a node, each with its whole path, and what torch.export called the
// node: "['', 'layers.0', 'layers.0.attn', 'linear']" -> "layers.0/attn". No value: not such a list.
std::optional<std::string> scope_of_name_scopes(const std::string& text);

// The path of a node's name: "/layers.0/attn/MatMul" -> "layers.0/attn"; no value: the name has none.
std::optional<std::string> scope_of_node(const std::string& name);

// One scope per node, nodes in file order. "/layers.0/attn/MatMul" -> "layers.0/attn"; a name without a path
// takes its parameter's module; what is left takes the path that its nearest neighbours with a scope, before
// and after, share.
std::vector<std::string> node_scopes(const std::vector<NodeNames>& nodes);

}  // namespace gradloom
