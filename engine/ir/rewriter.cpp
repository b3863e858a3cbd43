#include "engine/ir/rewriter.h"

#include <algorithm>

#include "engine/ir/op.h"

namespace gradloom {

Rewriter::Rewriter(Graph& graph, std::string pass, InstanceChoice chosen, RewriteWatch watch)
    : graph_(graph),
      builder_(graph),
      pass_(std::move(pass)),
      chosen_(std::move(chosen)),
      watch_(std::move(watch)),
      uses_(uses_of(graph)),
      extra_uses_(graph.values.size(), 0),
      first_own_node_(static_cast<NodeId>(graph.nodes.size())) {
  for (ValueId out : graph.outputs) ++extra_uses_[out];
  if (graph.loss != kNone) ++extra_uses_[graph.loss];
  for (const Update& u : graph.updates) {
    ++extra_uses_[u.next];
    ++extra_uses_[u.state];
  }
}

std::size_t Rewriter::use_count(ValueId id) const {
  return uses_[id].size() + static_cast<std::size_t>(extra_uses_[id]);
}
bool Rewriter::is_output(ValueId id) const { return extra_uses_[id] > 0; }

bool Rewriter::allowed(const std::string& rule, NodeId anchor, const std::vector<NodeId>& matched) {
  const std::string& fingerprint = namer_.name(graph_, rule, anchor, matched);
  if (chosen_.wants(graph_.nodes[anchor].name, fingerprint)) return true;
  reject(rule, anchor,
         chosen_.only.empty() ? "switched off for this instance" : "switched off but for other instances");
  log_.back().fingerprint = fingerprint;
  return false;
}

void Rewriter::reject(const std::string& rule, NodeId anchor, const std::string& why) {
  RewriteRecord record;
  record.rule = rule;
  record.site = graph_.nodes[anchor].name;
  record.why = why;
  record.sources = graph_.nodes[anchor].origin.sources;
  log_.push_back(std::move(record));
}

GraphBuilder& Rewriter::begin(const std::string& rule, NodeId anchor, const std::vector<NodeId>& replaced) {
  CHECK(current_.rule.empty(), "rewrite begun inside a rewrite");
  current_ = {};
  current_.rule = rule;
  current_.site = graph_.nodes[anchor].name;
  current_.fingerprint = namer_.known(rule, anchor);
  current_.matched = true;
  replaced_ = replaced;
  anchor_ = anchor;
  first_new_node_ = first_made_node_ = static_cast<NodeId>(graph_.nodes.size());
  current_.saves = SavedWork();
  BuildContext context{.rank = graph_.nodes[anchor].rank};
  context.origin.phase = graph_.nodes[anchor].origin.phase;
  std::set<std::uint32_t> sources, passes;
  for (NodeId id : replaced) {
    const Origin& from = graph_.nodes[id].origin;
    sources.insert(from.sources.begin(), from.sources.end());
    passes.insert(from.passes.begin(), from.passes.end());
  }
  context.origin.sources.assign(sources.begin(), sources.end());
  context.origin.passes.assign(passes.begin(), passes.end());  // ids are in the order of the passes
  context.origin.passes.push_back(pass_id());
  current_.sources = context.origin.sources;
  scope_.emplace(builder_, std::move(context));
  return builder_;
}

std::uint32_t Rewriter::pass_id() {
  if (pass_id_ == kNone) {
    pass_id_ = static_cast<std::uint32_t>(graph_.passes.size());
    graph_.passes.push_back(pass_);
  }
  return pass_id_;
}

void Rewriter::index_new_nodes() {
  uses_.resize(graph_.values.size());
  extra_uses_.resize(graph_.values.size(), 0);
  for (NodeId id = first_new_node_; id < graph_.nodes.size(); ++id) {
    const Node& node = graph_.nodes[id];
    current_.added.push_back(node.name);
    for (std::uint32_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] != kNone) uses_[node.inputs[i]].push_back({id, i});
  }
  first_new_node_ = static_cast<NodeId>(graph_.nodes.size());
}

void Rewriter::replace(ValueId old_value, ValueId new_value) {
  index_new_nodes();
  const Value& before = graph_.values[old_value];
  const Value& after = graph_.values[new_value];
  CHECK(before.type == after.type || !is_static(before.type.shape),
        ("replaced value '" + before.name + "' changes type from " + to_string(before.type) + " to " +
         to_string(after.type))
            .c_str());
  for (const Use& use : uses_[old_value]) {
    graph_.nodes[use.node].inputs[use.input_index] = new_value;
    uses_[new_value].push_back(use);
  }
  uses_[old_value].clear();
  move_outputs(old_value, new_value);
  // The name stays with what the model calls it, unless the new value has a name of its own (input,
  // parameter, older value).
  if (made_here(after.producer) && before.producer != kNone)
    std::swap(graph_.values[old_value].name, graph_.values[new_value].name);
}

void Rewriter::replace_outputs(ValueId old_value, ValueId new_value) {
  index_new_nodes();
  move_outputs(old_value, new_value);
  std::swap(graph_.values[old_value].name, graph_.values[new_value].name);
}

void Rewriter::retype_parameter(ValueId parameter, DType type) {
  CHECK(scope_.has_value() && graph_.values[parameter].role == Role::parameter,
        "not a parameter in a rewrite");
  count_readers_before(parameter);
  Value& value = graph_.values[parameter];
  value.type.dtype = type;
  if (value.data.defined()) value.data = value.data.cast(type);
}

void Rewriter::update(ValueId state, ValueId next) {
  CHECK(scope_.has_value(), "state updated outside of a rewrite");
  index_new_nodes();
  builder_.update(state, next);
  ++extra_uses_[state];
  ++extra_uses_[next];
}

void Rewriter::forget(ValueId state) {
  CHECK(scope_.has_value(), "state forgotten outside of a rewrite");
  for (const Update& u : graph_.updates) {
    if (u.state != state) continue;
    --extra_uses_[u.state];
    --extra_uses_[u.next];
  }
  std::erase_if(graph_.updates, [&](const Update& u) { return u.state == state; });
}

void Rewriter::move_outputs(ValueId old_value, ValueId new_value) {
  if (!is_output(old_value)) return;
  for (ValueId& out : graph_.outputs)
    if (out == old_value) out = new_value;
  if (graph_.loss == old_value) graph_.loss = new_value;
  for (Update& u : graph_.updates)
    if (u.next == old_value) u.next = new_value;
  const int moved = extra_uses_[old_value];
  extra_uses_[old_value] = 0;
  extra_uses_[new_value] += moved;
}

void Rewriter::stands_for_replaced(NodeId id) {
  CHECK(scope_.has_value(), "node changed outside of a rewrite");
  Node& node = graph_.nodes[id];
  if (node.origin.phase != builder_.context().origin.phase) return;
  const auto merge = [](std::vector<std::uint32_t>& into, const std::vector<std::uint32_t>& more) {
    std::set<std::uint32_t> all(into.begin(), into.end());
    all.insert(more.begin(), more.end());
    into.assign(all.begin(), all.end());
  };
  merge(node.origin.sources, builder_.context().origin.sources);
  merge(node.origin.passes, builder_.context().origin.passes);
  current_.changed.push_back(node.name);
}

void Rewriter::reorder(NodeId id, std::int64_t rank) {
  CHECK(scope_.has_value(), "node changed outside of a rewrite");
  graph_.nodes[id].rank = rank;
  current_.changed.push_back(graph_.nodes[id].name);
}

void Rewriter::retype(NodeId id, std::vector<ValueId> inputs, Attrs attrs) {
  CHECK(scope_.has_value(), "node changed outside of a rewrite");
  index_new_nodes();
  count_before(id);
  for (const ValueId out : graph_.nodes[id].outputs)
    if (out != kNone) count_readers_before(out);
  Node& node = graph_.nodes[id];
  for (ValueId in : node.inputs)
    if (in != kNone) std::erase_if(uses_[in], [&](const Use& use) { return use.node == id; });
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  if (!made_here(id)) {
    current_.changed.push_back(node.name);
    if (node.origin.passes.empty() || node.origin.passes.back() != pass_id())
      node.origin.passes.push_back(pass_id());
  }
  for (std::uint32_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] != kNone) uses_[node.inputs[i]].push_back({id, i});
  InferContext ctx{graph_, node.attrs, node.inputs, static_cast<int>(node.outputs.size()),
                   std::vector<Type>(node.outputs.size())};
  const Status inferred = node.op->infer(ctx);
  CHECK(inferred.ok(), (node.name + ": " + (inferred.ok() ? "" : inferred.error().message)).c_str());
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNone) continue;
    Value& value = graph_.values[node.outputs[i]];
    value.type = ctx.outputs[i];
    if (value.data.defined() && value.data.dtype() != value.type.dtype)
      value.data = value.data.cast(value.type.dtype);
  }
}

void Rewriter::commit(const std::string& why) {
  index_new_nodes();
  current_.why = why;
  // Remove replaced nodes whose outputs all became unused; repeat, since they can feed each other.
  bool changed = true;
  while (changed) {
    changed = false;
    for (NodeId id : replaced_) {
      if (!graph_.nodes[id].alive()) continue;
      const auto& outputs = graph_.nodes[id].outputs;
      const bool unused = std::all_of(outputs.begin(), outputs.end(),
                                      [&](ValueId v) { return v == kNone || use_count(v) == 0; });
      if (!unused) continue;
      current_.removed.push_back(graph_.nodes[id].name);
      count_before(id);
      remove_dead(id);
      changed = true;
    }
  }
  for (NodeId id = first_made_node_; id < graph_.nodes.size(); ++id) count_work(id, -1);
  for (const NodeId id : counted_) count_work(id, -1);
  Node &anchor = graph_.nodes[anchor_], &result = graph_.nodes.back();
  if (!current_.added.empty() && builder_.named_last() && !anchor.alive()) {
    std::swap(anchor.name, result.name);
    current_.added.back() = result.name;
  }
  log_.push_back(std::move(current_));
  current_ = {};
  replaced_.clear();
  counted_.clear();
  scope_.reset();
  if (watch_) watch_(graph_, log_.back());
}

// What the node's kernel has to do, so many times, into what the rewrite saves.
void Rewriter::count_work(NodeId id, int times) {
  const Node& node = graph_.nodes[id];
  if (!current_.saves || !node.alive() || node.op->has(kView) || node.op->cost == nullptr) return;
  if (!shapes_known(graph_, node)) {
    current_.saves.reset();
    return;
  }
  const Cost cost = node.op->cost(node_types(graph_, node));
  current_.saves->flops += times * cost.flops;
  current_.saves->bytes += times * (cost.bytes_read + cost.bytes_written);
  current_.saves->kernels += times;
}

// Once, while the node and what it reads are as the rewrite found them.
void Rewriter::count_before(NodeId id) {
  if (id < first_made_node_ && counted_.insert(id).second) count_work(id, 1);
}

void Rewriter::count_readers_before(ValueId value) {
  for (const Use& use : uses_[value]) count_before(use.node);
}

void Rewriter::remove_dead(NodeId id) {
  Node& node = graph_.nodes[id];
  for (ValueId out : node.outputs)
    CHECK(out == kNone || use_count(out) == 0, "removed node has used outputs");
  for (ValueId in : node.inputs) {
    if (in == kNone) continue;
    // From the back: nodes that go together mostly go last to first, and a value may have very many
    // readers.
    auto& uses = uses_[in];
    const auto use = std::find_if(uses.rbegin(), uses.rend(), [&](const Use& u) { return u.node == id; });
    uses.erase(std::next(use).base());
  }
  for (ValueId out : node.outputs)
    if (out != kNone) graph_.values[out].data = Tensor();
  node.op = nullptr;
  node.inputs.clear();
}

Status remove_unneeded(Rewriter& rw, const char* rule) {
  const Graph& graph = rw.graph();
  const std::vector<NodeId> order = TRY(topological_order(graph));
  std::vector<bool> needed(graph.nodes.size(), false);
  std::vector<NodeId> unneeded;
  for (std::size_t i = order.size(); i-- > 0;) {
    for (ValueId v : graph.nodes[order[i]].outputs) {
      if (v == kNone) continue;
      const auto& uses = rw.uses(v);
      const bool read =
          std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return needed[use.node]; });
      if (read || rw.is_output(v)) needed[order[i]] = true;
    }
    if (!needed[order[i]]) unneeded.push_back(order[i]);
  }
  for (NodeId id : unneeded) {  // consumers first
    if (!rw.allowed(rule, id)) continue;
    const auto& outputs = graph.nodes[id].outputs;
    if (std::any_of(outputs.begin(), outputs.end(),
                    [&](ValueId v) { return v != kNone && rw.use_count(v) > 0; }))
      continue;
    rw.begin(rule, id, {id});
    rw.commit();
  }
  return {};
}

int Rewriter::matched_count() const {
  return static_cast<int>(
      std::count_if(log_.begin(), log_.end(), [](const RewriteRecord& r) { return r.matched; }));
}

}  // namespace gradloom
