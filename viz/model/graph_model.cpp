#include "viz/model/graph_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "viz/model/axis.h"
#include "viz/model/graph_folds.h"
#include "viz/model/graph_heat.h"

namespace gradloom {
namespace {

const char* role_name(Role role) {
  switch (role) {
    case Role::activation: return "activation";
    case Role::input: return "input";
    case Role::parameter: return "parameter";
    case Role::constant: return "constant";
    case Role::gradient: return "gradient";
    case Role::state: return "state";
    case Role::hyper: return "hyper";
  }
  return "";
}

// "f32 8\u00d764\u00d7128": shorter than the dump's form, for boxes and edges.
std::string short_type(const Graph& graph, const Value& value) {
  if (!value.has_type) return "?";
  std::string out = dtype_name(value.type.dtype);
  for (size_t i = 0; i < value.type.shape.size(); ++i) {
    const int64_t dim = value.type.shape[i];
    out += i == 0 ? " " : "\u00d7";
    const auto symbol = static_cast<size_t>(-dim - 1);
    out += dim >= 0                        ? std::to_string(dim)
           : symbol < graph.symbols.size() ? escaped(graph.symbols[symbol])
                                           : "?";
  }
  return out;
}

int64_t bytes_of(const Value& value) {
  return value.has_type && is_static(value.type.shape) ? static_cast<int64_t>(byte_size(value.type)) : 0;
}

LayoutColumn column_of(Phase phase) {
  if (phase == Phase::backward) return LayoutColumn::kBackward;
  return phase == Phase::optimizer ? LayoutColumn::kOptimizer : LayoutColumn::kForward;
}

std::string common_scope(const std::string& a, const std::string& b) {
  size_t end = 0;
  for (size_t i = 0; i <= std::min(a.size(), b.size()); ++i) {
    const bool a_ends = i == a.size() || a[i] == '/', b_ends = i == b.size() || b[i] == '/';
    if (a_ends && b_ends) end = i;
    if (i == std::min(a.size(), b.size()) || a[i] != b[i]) break;
  }
  return a.substr(0, end);
}

// What the title does not say already: "#3" of MatMul_3, "\u2202 Add" of .../Add/grad/ReduceSum, else the
// last part of the name.
std::string subtitle_of(const std::string& name, const std::string& op) {
  const size_t grad = name.rfind("/grad/");
  if (grad != std::string::npos) {
    const size_t start = name.rfind('/', grad == 0 ? 0 : grad - 1);
    return "\u2202 " + escaped(name.substr(start == std::string::npos ? 0 : start + 1,
                                           grad - (start == std::string::npos ? 0 : start + 1)));
  }
  const size_t slash = name.rfind('/');
  const std::string leaf = slash == std::string::npos ? name : name.substr(slash + 1);
  if (leaf == op) return {};
  if (leaf.compare(0, op.size() + 1, op + "_") == 0) return "#" + escaped(leaf.substr(op.size() + 1));
  return escaped(leaf);
}

class Builder {
 public:
  Builder(const Graph& graph, const Plan* plan) : graph_(graph), plan_(plan) {}

  GraphModel build() {
    model_.name = graph_.name;
    for (const Value& value : graph_.values) model_.value_labels.push_back(short_type(graph_, value));
    producer_box_.assign(graph_.values.size(), -1);
    add_inputs();
    add_nodes();
    add_links();
    find_partners();
    collect_scopes();
    find_folds(model_);
    find_most(model_);
    return std::move(model_);
  }

 private:
  void add_inputs() {
    for (ValueId id : graph_.inputs) {
      const Value& value = graph_.values[id];
      if (value.role != Role::input) continue;
      GraphBox box;
      box.name = value.name;
      box.op = "Input";
      box.title = escaped(value.name);
      box.subtitle = "graph input";
      box.type = model_.value_labels[id];
      box.outputs.push_back(port(id));
      producer_box_[id] = static_cast<int32_t>(model_.boxes.size());
      scope_path_.emplace_back();
      model_.by_name.emplace(value.name, producer_box_[id]);
      model_.boxes.push_back(std::move(box));
    }
  }

  std::vector<NodeId> schedule() const {
    std::vector<NodeId> order;
    auto sorted = topological_order(graph_);
    if (sorted.ok()) return std::move(sorted).value();
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {  // a graph opened for viewing may be broken
      if (graph_.nodes[id].alive()) order.push_back(id);
    }
    return order;
  }

  PortInfo port(ValueId id) const {
    if (id == kNone) return {"(omitted)", "", "", -1, 0};
    const Value& value = graph_.values[id];
    return {value.name, value.has_type ? to_string(value.type) : "?", role_name(value.role),
            producer_box_[id], bytes_of(value)};
  }

  void add_nodes() {
    std::vector<int32_t> step_of(graph_.nodes.size(), -1);
    std::vector<int32_t> launches(graph_.nodes.size(), 0);
    for (size_t i = 0; plan_ && i < plan_->steps.size(); ++i) {
      step_of[plan_->steps[i].node] = static_cast<int32_t>(i);
      ++launches[plan_->steps[i].node];
    }
    for (NodeId id : schedule()) {
      const Node& node = graph_.nodes[id];
      GraphBox box;
      box.node = id;
      box.name = node.name;
      box.op = node.op->name;
      box.title = node.op->name;
      box.unsupported = node.op->infer == nullptr;
      box.subtitle = box.unsupported ? "not supported" : subtitle_of(node.name, box.op);
      box.attributes = to_string(node.attrs);
      box.passes = passes_text(graph_, node);
      box.phase = node.origin.phase;
      box.column = column_of(node.origin.phase);
      box.plan_step = step_of[id];
      box.launches = launches[id];
      if (box.plan_step >= 0) {
        const PlanStep& step = plan_->steps[box.plan_step];
        box.kernel = step.kernel;
        box.flops = step.flops;
        box.bytes_read = step.bytes_read;
        box.bytes_written = step.bytes_written;
      }
      std::string scope;
      bool first = true;
      for (uint32_t source : node.origin.sources) {
        const SourceNode& s = graph_.sources[source];
        box.onnx_nodes.push_back(s.name.empty() ? s.op_type : s.name);
        scope = first ? s.scope : common_scope(scope, s.scope);
        first = false;
      }
      const auto index = static_cast<int32_t>(model_.boxes.size());
      for (ValueId value : node.inputs) box.inputs.push_back(port(value));
      for (ValueId value : node.outputs) {
        if (value == kNone) continue;
        producer_box_[value] = index;
        box.outputs.push_back(port(value));
        if (box.type.empty()) box.type = model_.value_labels[value];
      }
      model_.by_name.emplace(node.name, index);
      scope_path_.push_back(std::move(scope));
      model_.boxes.push_back(std::move(box));
    }
  }

  void add_links() {
    for (uint32_t b = 0; b < model_.boxes.size(); ++b) {
      const GraphBox& box = model_.boxes[b];
      if (box.node == kNone) continue;
      for (ValueId value : graph_.nodes[box.node].inputs) {
        if (value == kNone || producer_box_[value] < 0) continue;
        const auto src = static_cast<uint32_t>(producer_box_[value]);
        const bool saved =
            model_.boxes[src].column == LayoutColumn::kForward && box.column == LayoutColumn::kBackward;
        model_.links.push_back({src, b, value, saved});
      }
    }
  }

  // Through the ONNX nodes both stand for; an optimizer node through the parameter it updates.
  void find_partners() {
    std::vector<std::vector<int32_t>> forward_of(graph_.sources.size());
    std::vector<int32_t> reader_of(graph_.values.size(), -1);
    for (int32_t b = 0; b < static_cast<int32_t>(model_.boxes.size()); ++b) {
      const GraphBox& box = model_.boxes[b];
      if (box.node == kNone || box.column != LayoutColumn::kForward) continue;
      for (uint32_t source : graph_.nodes[box.node].origin.sources) forward_of[source].push_back(b);
      for (ValueId value : graph_.nodes[box.node].inputs) {
        if (value != kNone && reader_of[value] < 0) reader_of[value] = b;
      }
    }
    for (int32_t b = 0; b < static_cast<int32_t>(model_.boxes.size()); ++b) {
      GraphBox& box = model_.boxes[b];
      if (box.node == kNone || box.column == LayoutColumn::kForward) continue;
      std::map<int32_t, int> shared;  // forward box -> sources in common
      for (uint32_t source : graph_.nodes[box.node].origin.sources) {
        for (int32_t forward : forward_of[source]) ++shared[forward];
      }
      if (box.column == LayoutColumn::kOptimizer && shared.empty()) {
        for (ValueId value : graph_.nodes[box.node].inputs) {
          if (value != kNone && graph_.values[value].role == Role::parameter && reader_of[value] >= 0)
            ++shared[reader_of[value]];
        }
        if (shared.size() > 1) shared.clear();  // one kernel for many parameters belongs to none of them
      }
      int most = 0;
      for (const auto& [forward, count] : shared) {
        box.related.push_back(forward);
        model_.boxes[forward].related.push_back(b);
        if (count > most) {
          most = count;
          box.partner = forward;
        }
      }
    }
  }

  int32_t scope_index(const std::string& path) {
    if (path.empty()) return -1;
    const auto known = scope_ids_.find(path);
    if (known != scope_ids_.end()) return known->second;
    const size_t slash = path.rfind('/');
    const int32_t parent = slash == std::string::npos ? -1 : scope_index(path.substr(0, slash));
    ScopeInfo scope;
    scope.path = path;
    scope.name = escaped(slash == std::string::npos ? path : path.substr(slash + 1));
    scope.parent = parent;
    scope.depth = parent < 0 ? 0 : model_.scopes[parent].depth + 1;
    model_.scopes.push_back(std::move(scope));
    return scope_ids_[path] = static_cast<int32_t>(model_.scopes.size()) - 1;
  }

  void collect_scopes() {
    for (size_t b = 0; b < model_.boxes.size(); ++b) {
      GraphBox& box = model_.boxes[b];
      if (box.partner < 0) box.scope = scope_index(scope_path_[b]);
    }
    join_chains(model_);
    for (GraphBox& box : model_.boxes) {
      if (box.partner >= 0) box.scope = model_.boxes[box.partner].scope;
      const int c = static_cast<int>(box.column);
      for (int32_t s = box.scope; s >= 0; s = model_.scopes[s].parent) {
        ++model_.scopes[s].boxes[c];
        model_.scopes[s].bytes[c] += box.bytes();
        model_.scopes[s].flops[c] += box.flops;
        model_.scopes[s].launches[c] += box.launches;
      }
    }
  }

  const Graph& graph_;
  const Plan* plan_;
  GraphModel model_;
  std::vector<int32_t> producer_box_;
  std::vector<std::string> scope_path_;
  NameMap<int32_t> scope_ids_;
};

}  // namespace

GraphModel build_graph_model(const Graph& graph, const Plan* plan) {
  GraphModel model = Builder(graph, plan).build();
  model.planned = plan != nullptr;
  return model;
}

void apply_times(GraphModel& model, const std::vector<KernelRow>& kernels, const std::string& other_plan) {
  model.other_plan = other_plan;
  model.total_time_ns = 0;
  model.timed = false;
  for (GraphBox& box : model.boxes)
    box.time_ns = std::nan(""), box.samples = 0, box.step_flops = box.step_bytes = 0;
  for (ScopeInfo& scope : model.scopes) scope.time_ns = scope.step_flops = {}, scope.timed = false;
  for (const KernelRow& row : kernels) {
    const auto found = model.by_name.find(row.info.node);
    if (found == model.by_name.end() || row.samples == 0) continue;
    GraphBox& box = model.boxes[found->second];
    box.time_ns = (std::isnan(box.time_ns) ? 0 : box.time_ns) + static_cast<double>(row.step_ns);
    box.samples = row.samples;
    box.step_flops += row.step_flops();
    box.step_bytes += row.step_bytes();
    model.timed = true;
    model.total_time_ns += static_cast<double>(row.step_ns);
    for (int32_t s = box.scope; s >= 0; s = model.scopes[s].parent) {
      model.scopes[s].time_ns[static_cast<int>(box.column)] += static_cast<double>(row.step_ns);
      model.scopes[s].step_flops[static_cast<int>(box.column)] += row.step_flops();
      model.scopes[s].timed = true;
    }
  }
  apply_other(model, {}, "");
}

std::string GraphModel::time_text(double ns) const {
  return (other_plan.empty() || std::isnan(ns) ? "" : "~") + format_value(ns, Unit::kNs);
}

int32_t GraphModel::find(const std::string& wanted) const {
  const auto found = by_name.find(wanted);
  return found == by_name.end() ? -1 : found->second;
}

SearchFields GraphModel::fields(int32_t index) const {
  const GraphBox& box = boxes[index];
  SearchFields f;
  f.name = box.name;
  f.op = box.op;
  f.phase = phase_name(box.phase);
  if (box.scope >= 0) f.scope = scopes[box.scope].path;
  f.passes = box.passes;
  f.kernel = box.kernel;
  f.type = box.type;
  f.time_ns = box.time_ns;
  f.bytes = box.bytes();
  f.flops = box.flops;
  return f;
}

std::vector<int32_t> GraphModel::search(const Query& query) const {
  std::vector<int32_t> hits;
  if (query.empty()) return hits;
  for (int32_t b = 0; b < static_cast<int32_t>(boxes.size()); ++b) {
    if (query.matches(fields(b))) hits.push_back(b);
  }
  return hits;
}

std::string GraphModel::example() const {
  std::vector<SearchFields> rows;
  for (int32_t b = 0; b < static_cast<int32_t>(boxes.size()); ++b)
    if (boxes[b].node != kNone) rows.push_back(fields(b));
  return example_query(rows);
}

std::vector<bool> GraphModel::default_collapsed(size_t most_boxes) const {
  std::vector<bool> collapsed(scopes.size(), true);
  const std::vector<int32_t> folded = folded_into({});
  int32_t deepest = -1;
  for (const ScopeInfo& scope : scopes) deepest = std::max(deepest, scope.depth);
  std::vector<size_t> nodes_at(deepest + 2, 0),
      boxes_at(deepest + 2, 0);  // shown when scopes of depth < d are open
  for (const GraphBox& box : boxes) {
    if (box.scope >= 0 && folded[box.scope] >= 0) continue;
    const int32_t depth = box.scope < 0 ? 0 : scopes[box.scope].depth + 1;
    for (int32_t d = depth; d < static_cast<int32_t>(nodes_at.size()); ++d) ++nodes_at[d];
  }
  for (const ScopeInfo& scope : scopes) {
    if (folded[&scope - scopes.data()] >= 0) continue;
    for (uint32_t count : scope.boxes) boxes_at[scope.depth] += count > 0 ? 1 : 0;
  }
  int32_t open_below = 0;
  for (int32_t d = 1; d < static_cast<int32_t>(nodes_at.size()); ++d) {
    if (nodes_at[d] + boxes_at[d] <= most_boxes) open_below = d;
  }
  for (size_t s = 0; s < scopes.size(); ++s) collapsed[s] = scopes[s].depth >= open_below;
  return collapsed;
}

LayoutInput GraphModel::layout_input(const std::vector<bool>& collapsed,
                                     const std::vector<int32_t>& layers) const {
  const std::vector<int32_t> folded = folded_into(layers);
  LayoutInput in;
  in.nodes.reserve(boxes.size());
  for (const GraphBox& box : boxes) {
    LayoutNode node;
    // Sized for the text at zoom 1 (14 px title, 12 px subtitle) without asking a font:
    // the same layout everywhere.
    const double text = std::max(static_cast<double>(box.title.size()) * 8.4,
                                 static_cast<double>(box.subtitle.size() + 9) * 6.6);
    node.width = static_cast<float>(std::clamp(std::round((28 + text) / 8) * 8, 96.0, 240.0));
    node.height = 44;
    node.scope = box.scope >= 0 && folded[box.scope] >= 0 ? folded[box.scope] : box.scope;
    node.column = box.column;
    node.partner = box.partner;
    node.order = static_cast<int64_t>(in.nodes.size());
    in.nodes.push_back(node);
  }
  for (const GraphLink& link : links) in.edges.push_back({link.src, link.dst});
  for (size_t s = 0; s < scopes.size(); ++s) {
    LayoutScope scope;
    scope.parent = scopes[s].parent;
    scope.collapsed = scopes[s].box_of >= 0 || (s < collapsed.size() && collapsed[s]);
    scope.width =
        static_cast<float>(std::clamp(60.0 + static_cast<double>(scopes[s].name.size()) * 9.0, 190.0, 300.0));
    if (scopes[s].box_of >= 0) scope.width = 300;  // its layers' spread, and the arrows
    scope.height = 56;
    in.scopes.push_back(scope);
  }
  return in;
}

void apply_training(GraphModel& model, const NameMap<TrainingOf>& initializers) {
  for (GraphBox& box : model.boxes) {
    for (PortInfo& port : box.inputs) {
      const auto known = initializers.find(port.value);
      if (port.box >= 0 || known == initializers.end()) continue;
      port.trained = known->second.trained;
      port.why = known->second.why;
    }
  }
}

std::vector<int32_t> boxes_of_row(const GraphModel& model, const ComparedRow& row) {
  const std::set<std::string_view> wanted(row.nodes.begin(), row.nodes.end());
  const bool whole_phase = row.nodes.empty() && row.name == row.phase;
  std::vector<int32_t> found;
  for (int32_t b = 0; b < static_cast<int32_t>(model.boxes.size()); ++b) {
    const GraphBox& box = model.boxes[b];
    if (box.node == kNone) continue;
    // The tables of a comparison count the loss as forward.
    const Phase phase = box.phase == Phase::loss ? Phase::forward : box.phase;
    if (!row.phase.empty() && row.phase != phase_name(phase)) continue;
    const bool shares = std::any_of(box.onnx_nodes.begin(), box.onnx_nodes.end(),
                                    [&](const std::string& name) { return wanted.count(name) != 0; });
    if (whole_phase || shares || wanted.count(box.name) != 0) found.push_back(b);
  }
  return found;
}

GraphDiff diff_graphs(const GraphModel& before, const GraphModel& after) {
  GraphDiff diff;
  for (int32_t b = 0; b < static_cast<int32_t>(after.boxes.size()); ++b) {
    const int32_t old = before.find(after.boxes[b].name);
    if (old >= 0 && before.boxes[old].op == after.boxes[b].op) {
      ++diff.common;
    } else {
      diff.added.push_back(b);
    }
  }
  for (int32_t b = 0; b < static_cast<int32_t>(before.boxes.size()); ++b) {
    const int32_t now = after.find(before.boxes[b].name);
    if (now < 0 || after.boxes[now].op != before.boxes[b].op) diff.removed.push_back(b);
  }
  return diff;
}

}  // namespace gradloom
