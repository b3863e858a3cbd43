#include "app/explain.h"

#include <algorithm>
#include <optional>
#include <set>

#include "engine/base/text.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

bool share(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](std::uint32_t s) { return std::find(b.begin(), b.end(), s) != b.end(); });
}

std::vector<std::int32_t> steps_of_nodes(const Compiled& compiled) {
  std::vector<std::int32_t> steps(compiled.train.graph.nodes.size(), -1);
  for (std::size_t i = 0; i < compiled.plan.steps.size(); ++i)
    steps[compiled.plan.steps[i].node] = static_cast<std::int32_t>(i);
  return steps;
}

std::vector<std::string> onnx_names(const Graph& graph, const Node& node) {
  std::vector<std::string> names;
  for (const std::uint32_t source : node.origin.sources) names.push_back(graph.sources[source].name);
  return names;
}

// By the first kind of name that something has.
std::vector<NodeId> named(const Compiled& compiled, const std::vector<std::int32_t>& steps,
                          const std::string& name) {
  const Graph& graph = compiled.train.graph;
  const auto all = [&](auto fits) {
    std::vector<NodeId> nodes;
    for (NodeId id = 0; id < graph.nodes.size(); ++id)
      if (graph.nodes[id].alive() && fits(id)) nodes.push_back(id);
    return nodes;
  };
  std::vector<NodeId> found = all([&](NodeId id) { return graph.nodes[id].name == name; });
  if (found.empty())
    found = all([&](NodeId id) {
      const std::vector<std::string> names = onnx_names(graph, graph.nodes[id]);
      return std::find(names.begin(), names.end(), name) != names.end();
    });
  if (found.empty())
    found = all([&](NodeId id) {
      return steps[id] >= 0 && compiled.plan.steps[static_cast<std::size_t>(steps[id])].kernel == name;
    });
  if (found.empty()) found = all([&](NodeId id) { return glob_match(name, graph.nodes[id].name); });
  std::stable_sort(found.begin(), found.end(), [&](NodeId a, NodeId b) { return steps[a] < steps[b]; });
  return found;
}

// What passes, and the choice of what is trained on, did where the record fits; in their order.
template <class Fits>
std::vector<Explained::Event> events_where(const Compiled& compiled, const Fits& fits) {
  std::vector<Explained::Event> events;
  const auto add = [&](const std::string& pass, PassPhase at, const std::vector<RewriteRecord>& log) {
    for (const RewriteRecord& record : log)
      if (fits(record)) events.push_back({pass, at, &record});
  };
  const auto add_passes = [&](PassPhase at) {
    for (const PassReport& report : compiled.reports)
      if (report.at == at) add(report.name, at, report.log);
  };
  add_passes(PassPhase::pre_gradient);
  add("training", PassPhase::pre_gradient, compiled.train.removed);
  add_passes(PassPhase::post_gradient);
  return events;
}

// An ONNX node, or one that a pass made, of which nothing is left. None: nothing was ever called so.
std::optional<Explained> explain_gone(const Compiled& compiled, const std::string& name) {
  const std::vector<SourceNode>& sources = compiled.train.graph.sources;
  std::vector<std::uint32_t> own;
  for (std::uint32_t i = 0; i < sources.size(); ++i)
    if (sources[i].name == name) own.push_back(i);
  Explained gone;
  gone.name = name;
  gone.events = events_where(compiled, [&](const RewriteRecord& record) {
    return record.site == name || share(record.sources, own) ||
           std::find(record.removed.begin(), record.removed.end(), name) != record.removed.end();
  });
  return own.empty() && gone.events.empty() ? std::nullopt : std::optional(std::move(gone));
}

std::vector<std::string> known_names(const Compiled& compiled) {
  std::set<std::string> names;
  for (const Node& node : compiled.train.graph.nodes)
    if (node.alive()) names.insert(node.name);
  for (const SourceNode& source : compiled.train.graph.sources) names.insert(source.name);
  for (const PlanStep& step : compiled.plan.steps) names.insert(step.kernel);
  return {names.begin(), names.end()};
}

std::string phase_suffix(PassPhase phase) {
  return phase == PassPhase::post_gradient ? " (after autodiff)" : "";
}

std::string values_text(const Graph& graph, const std::vector<ValueId>& values) {
  std::string text;
  for (const ValueId v : values)
    if (v != kNone)
      text += (text.empty() ? "" : ", ") + escaped(graph.values[v].name) + " " + to_string(graph.type(v));
  return text;
}

// Names that many layers share come by the dozen.
std::string short_list(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i ? ", " : "") + escaped(names[i]);
  if (names.size() > kShown) text += ", ... (" + std::to_string(names.size()) + ")";
  return text.empty() ? "none" : text;
}

std::string event_text(const Explained::Event& event) {
  const RewriteRecord& record = *event.record;
  std::string text =
      std::string(record.matched ? "+ " : "- ") + event.pass + phase_suffix(event.at) + ": " + record.rule;
  if (record.matched) {
    text += " at " + escaped(record.site);
    if (!record.removed.empty()) text += "; replaces " + short_list(record.removed);
    if (!record.added.empty()) text += "; makes " + short_list(record.added);
    if (!record.changed.empty()) text += "; changes " + short_list(record.changed);
  } else {
    text += " not at " + escaped(record.site);
  }
  return text + (record.why.empty() ? "" : "; " + escaped(record.why));
}

// A line for each, those that say the same once.
std::string events_text(const std::vector<Explained::Event>& events) {
  std::string text;
  std::set<std::string> said;
  for (const Explained::Event& event : events)
    if (const std::string line = event_text(event); said.insert(line).second) text += "\n  " + line;
  return text;
}

}  // namespace

Result<std::vector<Explained>> explain(const Compiled& compiled, const std::string& name) {
  const Graph& graph = compiled.train.graph;
  const std::vector<std::int32_t> steps = steps_of_nodes(compiled);
  const std::vector<NodeId> nodes = named(compiled, steps, name);
  if (nodes.empty())
    if (std::optional<Explained> gone = explain_gone(compiled, name)) return std::vector{std::move(*gone)};
  if (nodes.empty())
    return Error{Errc::usage, "no node, ONNX node or kernel is called '" + escaped(name) +
                                  "'; did you mean " + escaped(nearest_name(name, known_names(compiled))) +
                                  "?"};
  std::vector<Explained> all;
  for (const NodeId id : nodes) {
    const Node& node = graph.nodes[id];
    Explained e;
    e.node = id;
    e.name = node.name;
    e.plan_step = steps[id];
    e.events = events_where(compiled, [&](const RewriteRecord& record) {
      return record.site == node.name || share(record.sources, node.origin.sources);
    });
    for (NodeId other = 0; other < graph.nodes.size(); ++other)
      if (other != id && graph.nodes[other].alive() &&
          share(graph.nodes[other].origin.sources, node.origin.sources))
        e.relatives.push_back(other);
    all.push_back(std::move(e));
  }
  return all;
}

Json explained_json(const Compiled& compiled, const Explained& e) {
  const Graph& graph = compiled.train.graph;
  Json events = Json::array(), relatives = Json::array();
  for (const Explained::Event& event : e.events)
    events.push_back({{"pass", event.pass},
                      {"phase", event.at == PassPhase::pre_gradient ? "pre-gradient" : "post-gradient"},
                      {"rule", event.record->rule},
                      {"site", event.record->site},
                      {"matched", event.record->matched},
                      {"why", event.record->why},
                      {"removed", event.record->removed},
                      {"added", event.record->added},
                      {"changed", event.record->changed}});
  if (e.node == kNone) return {{"node", e.name}, {"gone", true}, {"events", events}};
  const Node& node = graph.nodes[e.node];
  for (const NodeId other : e.relatives)
    relatives.push_back(
        {{"node", graph.nodes[other].name}, {"phase", phase_name(graph.nodes[other].origin.phase)}});
  return {
      {"node", node.name},
      {"gone", false},
      {"op", node.op->name},
      {"phase", phase_name(node.origin.phase)},
      {"plan_step", e.plan_step < 0 ? Json(nullptr) : Json(e.plan_step)},
      {"kernel", e.plan_step < 0 ? "" : compiled.plan.steps[static_cast<std::size_t>(e.plan_step)].kernel},
      {"onnx_nodes", onnx_names(graph, node)},
      {"passes", passes_text(graph, node)},
      {"events", events},
      {"relatives", relatives}};
}

std::string explained_text(const Compiled& compiled, const Explained& e) {
  if (e.node == kNone)
    return escaped(e.name) + "  gone: no node of the step stands for it" +
           (e.events.empty() ? "\n  no pass met it: the import took it in" : events_text(e.events));
  const Graph& graph = compiled.train.graph;
  const Node& node = graph.nodes[e.node];
  std::string text = escaped(node.name) + "  " + node.op->name + ", " + phase_name(node.origin.phase);
  if (e.plan_step >= 0)
    text += ", step " + std::to_string(e.plan_step) + ", kernel " +
            compiled.plan.steps[static_cast<std::size_t>(e.plan_step)].kernel;
  else
    text += ", a view: no kernel";
  text += "\n  from    " + short_list(onnx_names(graph, node));
  if (!node.origin.sources.empty()) {
    const std::string& scope = graph.sources[node.origin.sources.front()].scope;
    if (!scope.empty()) text += " of " + escaped(scope);
  }
  text +=
      "\n  reads   " + values_text(graph, node.inputs) + "\n  writes  " + values_text(graph, node.outputs);
  text += e.events.empty() ? "\n  no pass met it" : events_text(e.events);
  for (const Phase phase : {Phase::forward, Phase::loss, Phase::backward, Phase::optimizer}) {
    std::vector<std::string> names;
    for (const NodeId other : e.relatives)
      if (graph.nodes[other].origin.phase == phase) names.push_back(graph.nodes[other].name);
    if (!names.empty()) text += std::string("\n  in ") + phase_name(phase) + ": " + short_list(names);
  }
  return text;
}

}  // namespace gradloom
