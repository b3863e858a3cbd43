#include "viz/model/graph_folds.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "viz/model/step_tree.h"

namespace gradloom {
namespace {

std::vector<std::vector<int32_t>> children_of_scopes(const GraphModel& model) {
  std::vector<std::vector<int32_t>> children(model.scopes.size());
  for (size_t s = 0; s < model.scopes.size(); ++s)
    if (model.scopes[s].parent >= 0)
      children[static_cast<size_t>(model.scopes[s].parent)].push_back(static_cast<int32_t>(s));
  return children;
}

// Equal numbers for scopes that are alike.
std::vector<int32_t> structures_of_scopes(const GraphModel& model,
                                          const std::vector<std::vector<int32_t>>& children) {
  std::vector<std::set<std::string>> ops(model.scopes.size());
  for (const GraphBox& box : model.boxes)
    if (box.scope >= 0 && box.column == LayoutColumn::kForward)
      ops[static_cast<size_t>(box.scope)].insert(box.op);
  std::map<std::set<std::string>, int32_t> known;
  std::vector<int32_t> structures(model.scopes.size(), -1);
  for (size_t s = model.scopes.size(); s-- > 0;) {  // children come after their parents
    std::set<std::string> parts;
    for (const int32_t c : children[s])
      parts.insert(fmt::format("{}/{}", model.scopes[static_cast<size_t>(c)].name,
                               structures[static_cast<size_t>(c)]));
    if (children[s].empty())
      for (const std::string& op : ops[s]) parts.insert(":" + op);
    structures[s] = known.try_emplace(std::move(parts), static_cast<int32_t>(known.size())).first->second;
  }
  return structures;
}

}  // namespace

void join_chains(GraphModel& model) {
  const std::vector<std::vector<int32_t>> children = children_of_scopes(model);
  std::vector<bool> has_boxes(model.scopes.size(), false);
  for (const GraphBox& box : model.boxes)
    if (box.partner < 0 && box.scope >= 0) has_boxes[static_cast<size_t>(box.scope)] = true;
  std::vector<ScopeInfo> kept;
  std::vector<int32_t> now(model.scopes.size(), -1);  // of those that go, the parent's
  std::map<int32_t, std::string> begun;               // by a child that will be one with them: their names
  for (size_t s = 0; s < model.scopes.size(); ++s) {
    ScopeInfo& scope = model.scopes[s];
    const int32_t parent = scope.parent < 0 ? -1 : now[static_cast<size_t>(scope.parent)];
    if (const auto at = begun.find(static_cast<int32_t>(s)); at != begun.end())
      scope.name = at->second + scope.name;
    if (!has_boxes[s] && children[s].size() == 1) {
      begun[children[s].front()] = scope.name + "/";
      now[s] = parent;
      continue;
    }
    scope.parent = parent;
    scope.depth = parent < 0 ? 0 : kept[static_cast<size_t>(parent)].depth + 1;
    now[s] = static_cast<int32_t>(kept.size());
    kept.push_back(std::move(scope));
  }
  model.scopes = std::move(kept);
  for (GraphBox& box : model.boxes)
    if (box.partner < 0 && box.scope >= 0) box.scope = now[static_cast<size_t>(box.scope)];
}

void find_folds(GraphModel& model) {
  const std::vector<std::vector<int32_t>> children = children_of_scopes(model);
  const std::vector<int32_t> structures = structures_of_scopes(model, children);
  std::map<std::pair<std::pair<int32_t, std::string>, int32_t>, std::vector<int32_t>> alike;
  for (size_t s = 0; s < model.scopes.size(); ++s) {
    const ScopeInfo& scope = model.scopes[s];
    const std::string stem = layer_stem(scope.name);
    if (stem != scope.name) alike[{{scope.parent, stem}, structures[s]}].push_back(static_cast<int32_t>(s));
  }
  for (auto& [key, layers] : alike) {
    if (layers.size() < kFewestFolded) continue;
    const auto& [parent, stem] = key.first;
    const auto fold = static_cast<int32_t>(model.folds.size());
    ScopeInfo box;
    box.name = fmt::format("{} x {}", layers.size(), stem);
    box.path = (parent < 0 ? "" : model.scopes[static_cast<size_t>(parent)].path + "/") + stem;
    // Another structure under the same names is another fold.
    const auto taken = [&](const std::string& path) {
      return std::any_of(model.scopes.begin(), model.scopes.end(),
                         [&](const ScopeInfo& s) { return s.path == path; });
    };
    for (int n = 2; taken(box.path); ++n)
      box.path = fmt::format("{} #{}", box.path.substr(0, box.path.find(" #")), n);
    box.parent = parent;
    box.depth = model.scopes[static_cast<size_t>(layers.front())].depth;
    box.box_of = fold;
    for (const int32_t layer : layers) model.scopes[static_cast<size_t>(layer)].layer_of = fold;
    model.folds.push_back({static_cast<int32_t>(model.scopes.size()), std::move(layers)});
    model.scopes.push_back(std::move(box));
  }
}

std::vector<int32_t> GraphModel::folded_into(const std::vector<int32_t>& layers) const {
  std::vector<int32_t> into(scopes.size(), -1);
  for (size_t s = 0; s < scopes.size(); ++s) {
    const ScopeInfo& scope = scopes[s];
    if (scope.parent >= 0) into[s] = into[static_cast<size_t>(scope.parent)];
    if (into[s] >= 0 || scope.layer_of < 0) continue;
    const auto f = static_cast<size_t>(scope.layer_of);
    const int32_t shown = f < layers.size() ? layers[f] : kFolded;
    const bool is_shown =
        shown == kUnfolded || (shown >= 0 && shown < static_cast<int32_t>(folds[f].layers.size()) &&
                               folds[f].layers[static_cast<size_t>(shown)] == static_cast<int32_t>(s));
    if (!is_shown) into[s] = folds[f].box;
  }
  return into;
}

}  // namespace gradloom
