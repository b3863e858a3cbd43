// Module paths from node names, parameter names and neighbours.
#include "engine/onnx/file/scope.h"

#include <algorithm>
#include <cctype>

#include "engine/onnx/file/newer_fields.h"

namespace gradloom {

namespace {

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// The shared leading components of two paths.
std::string common_path(const std::string& a, const std::string& b) {
  std::size_t end = 0;
  for (std::size_t i = 0;; ++i) {
    const bool a_ends = i == a.size() || a[i] == '/', b_ends = i == b.size() || b[i] == '/';
    if (a_ends && b_ends) end = i;
    if (i == a.size() || i == b.size() || a[i] != b[i]) return a.substr(0, end);
  }
}

}  // namespace

std::optional<std::string> scope_of_node(const std::string& name) {
  const std::size_t last = name.rfind('/');
  if (last == std::string::npos) return std::nullopt;
  const std::size_t first = name.front() == '/' ? 1 : 0;
  return last > first ? name.substr(first, last - first) : "";
}

std::optional<std::string> scope_of_name_scopes(const std::string& text) {
  const std::vector<std::string> entries = python_list(text);
  if (entries.empty()) return std::nullopt;
  return entries.size() < 2 ? "" : scope_of_parameter(entries[entries.size() - 2] + ".");
}

std::string scope_of_parameter(const std::string& name) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = name.find('.', begin);
    parts.push_back(name.substr(begin, end == std::string::npos ? end : end - begin));
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  std::string scope;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    if (i > 0) scope += is_number(parts[i]) ? "." : "/";
    scope += parts[i];
  }
  return scope;
}

std::vector<std::string> node_scopes(const std::vector<NodeNames>& nodes) {
  std::vector<std::string> scopes(nodes.size());
  std::vector<bool> known(nodes.size(), false);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::optional<std::string> scope = nodes[i].scope ? nodes[i].scope : scope_of_node(nodes[i].node);
    if (!scope && !nodes[i].parameter.empty()) scope = scope_of_parameter(nodes[i].parameter);
    known[i] = scope.has_value();
    scopes[i] = scope.value_or("");
  }
  std::size_t before = nodes.size();
  for (std::size_t i = 0; i < nodes.size();) {
    if (known[i]) {
      before = i++;
      continue;
    }
    std::size_t after = i;
    while (after < nodes.size() && !known[after]) ++after;
    const bool inside = before < nodes.size() && after < nodes.size();
    const std::string shared = inside ? common_path(scopes[before], scopes[after]) : "";
    for (; i < after; ++i) scopes[i] = shared;
  }
  return scopes;
}

}  // namespace gradloom
