#include "viz/model/step_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "viz/model/step_tree.h"

namespace gradloom {
namespace {

bool is_forward(const KernelInfo& kernel) {
  const StepPart part = step_part(kernel);
  return part == StepPart::kForward || part == StepPart::kLoss;
}

std::string joined_types(const std::vector<std::string>& types) {
  constexpr size_t kMost = 4;
  std::string text;
  for (size_t i = 0; i < types.size(); ++i) {
    const bool skips = types.size() > kMost && i == 2;
    if (skips) i = types.size() - 2;
    text += (text.empty() ? "" : " + ") + (skips ? fmt::format("{} more", types.size() - 3) : types[i]);
  }
  return text;
}

class Grouping {
 public:
  Grouping(const std::vector<KernelRow>& kernels, const std::vector<std::string>& source_ops)
      : kernels_(kernels), source_ops_(source_ops) {}

  OnnxGroups make() {
    out_.of_row.assign(kernels_.size(), -1);
    // A forward kernel says which nodes are computed as one; what differentiates them follows.
    for (const bool forward : {true, false})
      for (size_t row = 0; row < kernels_.size(); ++row)
        if (is_forward(kernels_[row].info) == forward && !kernels_[row].info.sources.empty()) place(row);
    std::map<std::set<std::string>, int32_t> structures;
    for (size_t g = 0; g < out_.groups.size(); ++g)
      out_.groups[g].structure =
          structures.try_emplace(forward_ops_[g], static_cast<int32_t>(structures.size())).first->second;
    return std::move(out_);
  }

 private:
  void place(size_t row) {
    const KernelInfo& k = kernels_[row].info;
    const auto owned = owner_.find(k.sources.back());
    const int32_t group = owned != owner_.end() ? owned->second : add_group(k);
    out_.of_row[row] = group;
    if (is_forward(k)) forward_ops_[static_cast<size_t>(group)].insert(k.op);
  }

  int32_t add_group(const KernelInfo& k) {
    const auto id = static_cast<int32_t>(out_.groups.size());
    std::vector<std::string> types;
    size_t nodes = 0;
    for (const std::uint32_t source : k.sources) {
      if (!owner_.emplace(source, id).second) continue;
      ++nodes;
      const std::string type = source < source_ops_.size() ? source_ops_[source] : "?";
      if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    }
    std::string name = k.onnx_nodes.empty() ? k.node : k.onnx_nodes.back();
    if (nodes > 1) name += fmt::format(" +{}", nodes - 1);
    out_.groups.push_back({joined_types(types), std::move(name)});
    forward_ops_.emplace_back();
    return id;
  }

  const std::vector<KernelRow>& kernels_;
  const std::vector<std::string>& source_ops_;
  std::unordered_map<std::uint32_t, int32_t> owner_;  // group of an ONNX node
  std::vector<std::set<std::string>> forward_ops_;    // by group
  OnnxGroups out_;
};

}  // namespace

OnnxGroups onnx_groups(const std::vector<KernelRow>& kernels, const std::vector<std::string>& source_ops) {
  return Grouping(kernels, source_ops).make();
}

std::string layer_stem(std::string_view name) {
  std::string stem;
  for (size_t i = 0; i < name.size();) {
    size_t end = i;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    const bool begins = i == 0 || name[i - 1] == '.' || name[i - 1] == '/';
    const bool ends = end == name.size() || name[end] == '.' || name[end] == '/' || name[end] == ' ';
    if (end > i && begins && ends)
      stem += '*';
    else
      stem += name.substr(i, std::max(end, i + 1) - i);
    i = std::max(end, i + 1);
  }
  return stem;
}

ScopeStructures::ScopeStructures(const std::vector<KernelRow>& kernels, size_t most_levels, size_t most) {
  scopes_.emplace_back();
  for (const KernelRow& row : kernels) add(row.info, most_levels, most);
  find_structures();
}

int32_t ScopeStructures::child(int32_t parent, const std::string& label) {
  const auto [at, added] = by_label_.try_emplace({parent, label}, static_cast<int32_t>(scopes_.size()));
  if (added) {
    scopes_[static_cast<size_t>(parent)].children.push_back(at->second);
    scopes_.emplace_back();
    scopes_.back().label = label;
    scopes_.back().parent = parent;
  }
  return at->second;
}

void ScopeStructures::add(const KernelInfo& kernel, size_t most_levels, size_t most) {
  const auto [known, fresh] = by_name_.try_emplace(kernel.scope, 0);
  std::string_view rest = fresh ? kernel.scope : std::string_view();
  for (size_t level = 0; level < most_levels && !rest.empty() && scopes_.size() < most; ++level) {
    const size_t end = std::min(rest.find('/'), rest.size());
    if (end > 0) known->second = child(known->second, std::string(rest.substr(0, end)));
    rest = rest.substr(std::min(end + 1, rest.size()));
  }
  const int32_t at = known->second;
  of_row_.push_back(at);
  Scope& scope = scopes_[static_cast<size_t>(at)];
  scope.ops.insert(kernel.op);
  if (!is_forward(kernel)) return;
  scope.forward_ops.insert(kernel.op);
  for (int32_t up = at; up >= 0 && !scopes_[static_cast<size_t>(up)].forward;
       up = scopes_[static_cast<size_t>(up)].parent)
    scopes_[static_cast<size_t>(up)].forward = true;
}

void ScopeStructures::find_structures() {
  NameMap<int32_t> known;
  for (size_t i = scopes_.size(); i-- > 0;) {  // children come behind their parents
    Scope& scope = scopes_[i];
    std::vector<std::string> parts;
    for (const int32_t c : scope.children) {
      // A name says what a module is, a number does not: passes may have fused the last layer with what follows it.
      const bool told = scopes_[static_cast<size_t>(c)].children.empty() && layer_stem(label(c)) == label(c);
      parts.push_back(told ? label(c) : fmt::format("{}\n{}", label(c), structure(c)));
    }
    if (parts.empty()) {
      const std::set<std::string>& ops = scope.forward ? scope.forward_ops : scope.ops;
      parts.assign(ops.begin(), ops.end());
    }
    std::sort(parts.begin(), parts.end());
    std::string key = scope.children.empty() ? "operators" : "modules";
    for (const std::string& part : parts) key += "\n\n" + part;
    scope.structure = known.try_emplace(std::move(key), static_cast<int32_t>(known.size())).first->second;
  }
}

std::vector<int32_t> ScopeStructures::way_to(int32_t row) const {
  std::vector<int32_t> way;
  for (int32_t at = of_row_[static_cast<size_t>(row)]; at > 0; at = scopes_[static_cast<size_t>(at)].parent)
    way.push_back(at);
  std::reverse(way.begin(), way.end());
  return way;
}

}  // namespace gradloom
