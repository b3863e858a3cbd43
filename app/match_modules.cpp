#include "app/match_modules.h"

#include <algorithm>
#include <map>
#include <set>

namespace gradloom {
namespace {

constexpr std::size_t kMostPlaced = 10'000;  // modules that are matched by place

std::vector<std::string> parts_of(const std::string& scope) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= scope.size();) {
    const std::size_t end = std::min(scope.find('/', begin), scope.size());
    parts.push_back(scope.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string joined(const std::vector<std::string>& parts, std::size_t from, std::size_t to, char by) {
  std::string text;
  for (std::size_t i = from; i < to; ++i) text += (i == from ? "" : std::string(1, by)) + parts[i];
  return text;
}

// "body/body.0" and "body.0" -> "body.0".
std::string attribute_path(const std::string& scope) {
  std::vector<std::string> kept;
  for (std::string& part : parts_of(scope)) {
    if (!kept.empty() && part.starts_with(kept.back() + ".")) kept.pop_back();
    kept.push_back(std::move(part));
  }
  return joined(kept, 0, kept.size(), '.');
}

std::string without_first(const std::string& path) {
  const std::size_t end = path.find('.');
  return end == std::string::npos ? "" : path.substr(end + 1);
}

using Names = std::map<std::string, std::string>;  // path in the trace -> scope of the model

// Modules by their attribute paths, those around them included; the first spelling counts.
Names spellings(const std::vector<std::string>& scopes) {
  Names names;
  for (const std::string& scope : scopes) {
    if (scope.empty()) continue;
    const std::vector<std::string> parts = parts_of(scope);
    for (std::size_t n = 1; n <= parts.size(); ++n) {
      const std::string outer = joined(parts, 0, n, '/');
      names.try_emplace(attribute_path(outer), outer);
    }
  }
  return names;
}

enum class Around { none, trace, model };  // which side has a module more around all

Names match_by_name(const std::vector<std::string>& found, const Names& model) {
  Names best;
  for (const Around around : {Around::none, Around::trace, Around::model}) {
    Names inner;  // of the model
    if (around == Around::model)
      for (const auto& [path, scope] : model) inner.try_emplace(without_first(path), scope);
    const Names& known = around == Around::model ? inner : model;
    Names names;
    for (const std::string& scope : found) {
      const std::string path = attribute_path(scope);
      const auto at = known.find(around == Around::trace ? without_first(path) : path);
      if (at != known.end() && !at->first.empty()) names[scope] = at->second;
    }
    if (names.size() > best.size()) best = std::move(names);
  }
  return best;
}

// Modules inside one another, in the order in which they were met.
struct ModuleTree {
  std::vector<std::pair<std::string, ModuleTree>> inside;  // each with its last name
  void add(const std::vector<std::string>& parts) {
    ModuleTree* at = this;
    for (const std::string& part : parts) at = &at->module(part);
  }
  ModuleTree& module(const std::string& name) {
    for (auto& [known, tree] : inside)
      if (known == name) return tree;
    return inside.emplace_back(name, ModuleTree()).second;
  }
};

void pair_up(const ModuleTree& trace, const std::string& trace_path, const ModuleTree& model,
             const std::string& model_path, Names& names) {
  const auto below = [](const std::string& path, const std::string& part) {
    return path.empty() ? part : path + "/" + part;
  };
  if (trace.inside.size() != model.inside.size()) {
    // One module more around all.
    if (trace_path.empty() && trace.inside.size() == 1)
      pair_up(trace.inside[0].second, trace.inside[0].first, model, model_path, names);
    return;
  }
  for (std::size_t i = 0; i < trace.inside.size(); ++i) {
    const std::string from = below(trace_path, trace.inside[i].first),
                      to = below(model_path, model.inside[i].first);
    names[from] = to;
    pair_up(trace.inside[i].second, from, model.inside[i].second, to, names);
  }
}

Names match_by_place(const std::vector<std::string>& found, const std::vector<std::string>& scopes) {
  ModuleTree trace, model;
  for (const std::string& scope : found) trace.add(parts_of(scope));
  for (const std::string& scope : scopes)
    if (!scope.empty()) model.add(parts_of(scope));
  Names names;
  pair_up(trace, "", model, "", names);
  return names;
}

void rename(ImportedTrace& trace, const Names& names) {
  const auto apply = [&](std::string& scope, std::string& name) {
    const auto at = names.find(scope);
    if (at == names.end()) return;
    if (name.starts_with(scope + "/")) name = at->second + name.substr(scope.size());
    scope = at->second;
  };
  for (SourceNode& node : trace.operators) apply(node.scope, node.name);
  for (ImportedKernel& kernel : trace.kernels) apply(kernel.info.scope, kernel.info.node);
}

}  // namespace

ModuleMatch match_modules(ImportedTrace& trace, const std::vector<std::string>& scopes) {
  std::vector<std::string> found;  // of the forward: that is the order of the modules
  std::set<std::string> seen{""};
  for (const bool forward : {true, false})
    for (const ImportedKernel& kernel : trace.kernels)
      if ((kernel.info.phase == "forward") == forward && seen.insert(kernel.info.scope).second)
        found.push_back(kernel.info.scope);
  Names names = match_by_name(found, spellings(scopes));
  if (2 * names.size() < found.size() && found.size() <= kMostPlaced) {
    const Names placed = match_by_place(found, scopes);
    const auto count = [&](const Names& of) {
      return std::count_if(found.begin(), found.end(),
                           [&](const std::string& scope) { return of.count(scope) != 0; });
    };
    if (count(placed) > count(names)) names = placed;
  }
  ModuleMatch match;
  match.all = static_cast<std::int64_t>(found.size());
  for (const std::string& scope : found) {
    if (names.count(scope) != 0)
      ++match.matched;
    else
      match.others.push_back(scope);
  }
  rename(trace, names);
  return match;
}

}  // namespace gradloom
