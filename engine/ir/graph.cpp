#include "engine/ir/graph.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <queue>
#include <set>
#include <span>
#include <unordered_map>

#include "engine/base/hash.h"
#include "engine/base/names.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

template <class T>
const T& expect(const AttrValue& value, const std::string& name) {
  const T* typed = std::get_if<T>(&value);
  CHECK(typed != nullptr, ("attribute '" + name + "' has another type").c_str());
  return *typed;
}

template <class T>
std::string list_text(const std::vector<T>& values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i) text += ", ";
    if constexpr (std::is_same_v<T, double>)
      text += number_text(values[i]);
    else
      text += std::to_string(values[i]);
  }
  return text + "]";
}

std::string tensor_text(const Tensor& t) {
  if (!t.defined()) return "undefined";
  if (t.count() > 8)
    return to_string(t.type()) + "#" +
           hash_hex({static_cast<const char*>(t.data()), t.bytes()}).substr(0, 12);
  std::string text = to_string(t.type()) + "{";
  for (std::int64_t i = 0; i < t.count(); ++i) {
    if (i) text += ", ";
    text +=
        is_float(t.dtype()) || is_small_float(t.dtype()) ? number_text(t.at(i)) : std::to_string(t.int_at(i));
  }
  return text + "}";
}

// Value references in dumps: names are unique, so they identify.
std::string value_ref(const Graph& graph, ValueId id) {
  return id == kNone ? "-" : "%" + escaped(graph.values[id].name);
}

Error cycle_error(const Graph& graph, const std::vector<int>& missing) {
  // Walk producers of unready inputs from any blocked node until one repeats:
  // those are the nodes of one cycle.
  NodeId current = kNone;
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (graph.nodes[id].alive() && missing[id] > 0) {
      current = id;
      break;
    }
  std::vector<NodeId> path;
  std::unordered_map<NodeId, std::size_t> seen;
  while (current != kNone && !seen.count(current)) {
    seen[current] = path.size();
    path.push_back(current);
    NodeId next = kNone;
    for (ValueId in : graph.nodes[current].inputs) {
      if (in == kNone) continue;
      const NodeId producer = graph.values[in].producer;
      if (producer != kNone && missing[producer] > 0) next = producer;
    }
    current = next;
  }
  std::string names;
  for (std::size_t i = current == kNone ? 0 : seen[current]; i < path.size(); ++i)
    names += (names.empty() ? "" : " <- ") + escaped(graph.nodes[path[i]].name);
  return Error{Errc::bad_input, "the graph has a cycle: " + names};
}

}  // namespace

std::int64_t Attrs::integer(const std::string& name, std::int64_t fallback) const {
  const auto it = map_.find(name);
  return it == map_.end() ? fallback : expect<std::int64_t>(it->second, name);
}

double Attrs::real(const std::string& name, double fallback) const {
  const auto it = map_.find(name);
  if (it == map_.end()) return fallback;
  if (const auto* i = std::get_if<std::int64_t>(&it->second)) return static_cast<double>(*i);
  return expect<double>(it->second, name);
}

std::string Attrs::text(const std::string& name, const std::string& fallback) const {
  const auto it = map_.find(name);
  return it == map_.end() ? fallback : expect<std::string>(it->second, name);
}

std::vector<std::int64_t> Attrs::integers(const std::string& name, std::vector<std::int64_t> fallback) const {
  const auto it = map_.find(name);
  if (it == map_.end()) return fallback;
  return expect<std::vector<std::int64_t>>(it->second, name);
}

std::vector<double> Attrs::reals(const std::string& name, std::vector<double> fallback) const {
  const auto it = map_.find(name);
  if (it == map_.end()) return fallback;
  return expect<std::vector<double>>(it->second, name);
}

const Tensor* Attrs::tensor(const std::string& name) const {
  const auto it = map_.find(name);
  return it == map_.end() ? nullptr : &expect<Tensor>(it->second, name);
}

bool Attrs::operator==(const Attrs& other) const {
  if (map_.size() != other.map_.size()) return false;
  for (auto a = map_.begin(), b = other.map_.begin(); a != map_.end(); ++a, ++b) {
    if (a->first != b->first || a->second.index() != b->second.index()) return false;
    if (const auto* ta = std::get_if<Tensor>(&a->second)) {
      if (!bit_equal(*ta, std::get<Tensor>(b->second))) return false;
      continue;
    }
    const bool equal = std::visit(
        [&](const auto& va) {
          using T = std::decay_t<decltype(va)>;
          if constexpr (std::is_same_v<T, Tensor>)
            return true;
          else
            return va == std::get<T>(b->second);
        },
        a->second);
    if (!equal) return false;
  }
  return true;
}

std::string to_string(const AttrValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::int64_t>)
          return std::to_string(v);
        else if constexpr (std::is_same_v<T, double>)
          return number_text(v);
        else if constexpr (std::is_same_v<T, std::string>)
          return "\"" + escaped(v) + "\"";
        else if constexpr (std::is_same_v<T, Tensor>)
          return tensor_text(v);
        else
          return list_text(v);
      },
      value);
}

std::string to_string(const Attrs& attrs) {
  std::string text = "{";
  for (const auto& [name, value] : attrs.all())
    text += (text.size() > 1 ? ", " : "") + name + "=" + to_string(value);
  return text + "}";
}

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::loss: return "loss";
    case Phase::backward: return "backward";
    case Phase::optimizer: return "optimizer";
  }
  return "?";
}

std::vector<std::vector<Use>> uses_of(const Graph& graph) {
  std::vector<std::vector<Use>> uses(graph.values.size());
  std::vector<std::uint32_t> counts(graph.values.size(), 0);
  for (const Node& node : graph.nodes)
    for (const ValueId in : node.inputs)
      if (node.alive() && in != kNone) ++counts[in];
  for (ValueId id = 0; id < uses.size(); ++id) uses[id].reserve(counts[id]);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (!node.alive()) continue;
    for (std::uint32_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] != kNone) uses[node.inputs[i]].push_back({id, i});
  }
  return uses;
}

std::size_t live_node_count(const Graph& graph) {
  return static_cast<std::size_t>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.alive(); }));
}

std::string passes_text(const Graph& graph, const Node& node) {
  std::string text;
  for (const std::uint32_t pass : node.origin.passes) text += (text.empty() ? "" : ",") + graph.passes[pass];
  return text;
}

std::string last_pass(const std::string& passes) {
  return passes.substr(passes.rfind(',') + 1);  // npos + 1 is 0: a list of one
}

ValueId find_value(const Graph& graph, const std::string& name) {
  for (ValueId id = 0; id < graph.values.size(); ++id)
    if (graph.values[id].name == name) return id;
  return kNone;
}

bool is_trained(const Graph& graph, ValueId id) {
  return graph.values[id].role == Role::parameter && !graph.values[id].frozen;
}

bool is_constant(const Graph& graph, ValueId id) {
  if (id == kNone) return false;
  const Value& v = graph.values[id];
  if (v.role == Role::constant) return true;
  return v.data.defined() && v.producer != kNone;  // folded contents; parameters and states have no producer
}

bool scalar_constant(const Graph& graph, ValueId id, double* value) {
  if (id == kNone || !is_constant(graph, id)) return false;
  const Tensor& data = graph.values[id].data;
  if (!data.defined() || data.count() != 1) return false;
  if (value != nullptr) *value = data.at(0);
  return true;
}

bool shape_known(const Graph& graph, ValueId id) {
  return graph.values[id].has_type && is_static(graph.values[id].type.shape);
}

bool shapes_known(const Graph& graph, const Node& node) {
  const auto known = [&](ValueId id) { return id == kNone || shape_known(graph, id); };
  return std::all_of(node.inputs.begin(), node.inputs.end(), known) &&
         std::all_of(node.outputs.begin(), node.outputs.end(), known);
}

namespace {

// Who reads each value, once for each time, in one piece of memory.
class Readers {
 public:
  explicit Readers(const Graph& graph) : first_(graph.values.size() + 2, 0) {
    const auto for_inputs = [&](const auto& body) {
      for (NodeId id = 0; id < graph.nodes.size(); ++id)
        if (graph.nodes[id].alive())
          for (const ValueId in : graph.nodes[id].inputs)
            if (in != kNone) body(id, in);
    };
    for_inputs([&](NodeId, ValueId in) { ++first_[in + 2]; });
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    nodes_.resize(first_.back());
    for_inputs([&](NodeId id, ValueId in) { nodes_[first_[in + 1]++] = id; });
  }
  std::span<const NodeId> operator[](ValueId id) const {
    return {nodes_.data() + first_[id], nodes_.data() + first_[id + 1]};
  }

 private:
  std::vector<std::size_t> first_;  // by value, where its readers begin; the next value's are behind them
  std::vector<NodeId> nodes_;
};

using Followers = std::map<NodeId, std::vector<NodeId>>;

// Nodes that read the value, as it is or through views, into `found`.
void collect_readers(const Graph& graph, const Readers& readers, ValueId id, std::set<NodeId>& found) {
  for (const NodeId reader : readers[id]) {
    const Node& node = graph.nodes[reader];
    if (!found.insert(reader).second || !node.op->has(kView)) continue;
    collect_readers(graph, readers, node.outputs[0], found);
  }
}

// What must come after a node though it reads nothing of it: nodes that write over what it reads.
Followers overwriters(const Graph& graph, const Readers& readers) {
  Followers followers;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (!node.alive() || !node.op->has(kMustAlias)) continue;
    std::set<NodeId> before;
    for (const auto& [output, input] : node.op->aliases(node))
      collect_readers(graph, readers, node.inputs[static_cast<std::size_t>(input)], before);
    before.erase(id);
    for (const NodeId reader : before) followers[reader].push_back(id);
  }
  return followers;
}

// Values that are written over, and by whom.
class Overwritten {
 public:
  explicit Overwritten(const Graph& graph) : graph_(graph) {
    for (NodeId id = 0; id < graph.nodes.size(); ++id) {
      const Node& node = graph.nodes[id];
      if (!node.alive() || !node.op->has(kMustAlias)) continue;
      if (first_.empty()) first_.assign(graph.values.size(), -1);
      for (const auto& [output, input] : node.op->aliases(node))
        add(node.inputs[static_cast<std::size_t>(input)], id);
    }
  }

  // REQUIRES nodes in the order in which they run, by their places there. Whether no operand of the node was written over
  // before; its result is, where it is a view, written over with its operand.
  bool may_follow(NodeId id, const std::vector<std::size_t>& places) {
    if (first_.empty()) return true;
    const Node& node = graph_.nodes[id];
    for (const ValueId in : node.inputs)
      if (in != kNone && first_[in] >= 0)
        for (std::int32_t i = first_[in]; i >= 0; i = writers_[static_cast<std::size_t>(i)].next)
          if (const NodeId by = writers_[static_cast<std::size_t>(i)].by; by != id && places[by] < places[id])
            return false;
    if (node.op->has(kView) && node.inputs[0] != kNone)
      for (std::int32_t i = first_[node.inputs[0]]; i >= 0; i = writers_[static_cast<std::size_t>(i)].next)
        add(node.outputs[0], writers_[static_cast<std::size_t>(i)].by);
    return true;
  }

 private:
  struct Writer {
    NodeId by;
    std::int32_t next;  // of the same value; -1: none
  };
  void add(ValueId value, NodeId by) {
    writers_.push_back({by, first_[value]});
    first_[value] = static_cast<std::int32_t>(writers_.size()) - 1;
  }

  const Graph& graph_;
  std::vector<std::int32_t> first_;  // by value, of writers_; none at all where nothing is written over
  std::vector<Writer> writers_;
};

// Nodes by rank and id, where each comes so behind all that it depends on. That is then the topological order, which takes
// of the nodes that may come next the first by rank and id. Empty: some node comes too early.
std::vector<NodeId> order_by_rank(const Graph& graph) {
  std::vector<NodeId> order;
  order.reserve(graph.nodes.size());
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (graph.nodes[id].alive()) order.push_back(id);
  const auto before = [&](NodeId a, NodeId b) { return graph.nodes[a].rank < graph.nodes[b].rank; };
  if (!std::is_sorted(order.begin(), order.end(), before))
    std::stable_sort(order.begin(), order.end(), before);
  std::vector<std::size_t> places(graph.nodes.size(), graph.nodes.size());
  for (std::size_t i = 0; i < order.size(); ++i) places[order[i]] = i;
  Overwritten overwritten(graph);
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const ValueId in : graph.nodes[order[i]].inputs) {
      if (in == kNone || graph.values[in].producer == kNone) continue;
      if (places[graph.values[in].producer] >= i) return {};
    }
    if (!overwritten.may_follow(order[i], places)) return {};
  }
  return order;
}

}  // namespace

Result<std::vector<NodeId>> topological_order(const Graph& graph) {
  if (std::vector<NodeId> order = order_by_rank(graph); !order.empty()) return order;
  std::vector<int> missing(graph.nodes.size(), 0);
  const Readers readers(graph);
  const Followers followers = overwriters(graph, readers);
  for (const auto& [reader, after] : followers)
    for (const NodeId id : after) ++missing[id];
  using Key = std::pair<std::int64_t, NodeId>;
  std::priority_queue<Key, std::vector<Key>, std::greater<>> ready;
  std::size_t alive = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (!node.alive()) continue;
    ++alive;
    for (ValueId in : node.inputs)
      if (in != kNone && graph.values[in].producer != kNone) ++missing[id];
    if (missing[id] == 0) ready.push({node.rank, id});
  }
  std::vector<NodeId> order;
  order.reserve(alive);
  while (!ready.empty()) {
    const NodeId id = ready.top().second;
    ready.pop();
    order.push_back(id);
    for (ValueId out : graph.nodes[id].outputs) {
      if (out == kNone) continue;
      for (const NodeId reader : readers[out])
        if (--missing[reader] == 0) ready.push({graph.nodes[reader].rank, reader});
    }
    if (const auto it = followers.find(id); it != followers.end())
      for (const NodeId after : it->second)
        if (--missing[after] == 0) ready.push({graph.nodes[after].rank, after});
  }
  if (order.size() != alive) return cycle_error(graph, missing);
  return order;
}

namespace {

// Whether names are seen for the first time. A table of their places and hashes (seeded: names.h): no memory for each.
class DistinctNames {
 public:
  explicit DistinctNames(std::size_t most) : slots_(std::bit_ceil(2 * most + 2)) {}
  bool insert(std::string_view name) {
    const std::size_t hash = NameHash()(name);
    for (std::size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[i];
      if (slot.name.data() == nullptr) {
        slot = {hash, name};
        return true;
      }
      if (slot.hash == hash && slot.name == name) return false;
    }
  }

 private:
  struct Slot {
    std::size_t hash = 0;
    std::string_view name;
  };
  std::vector<Slot> slots_;
};

Error invalid(const std::string& message) { return Error{Errc::bug, "invalid graph: " + message}; }

// Every value written is written once, and points back to its producer. `producer` is filled, by value.
Status verify_outputs(const Graph& graph, NodeId id, std::vector<NodeId>& producer) {
  const Node& node = graph.nodes[id];
  if (node.outputs.empty()) return invalid("node '" + node.name + "' has no outputs");
  for (std::uint32_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId out = node.outputs[i];
    if (out == kNone) continue;
    if (out >= graph.values.size())
      return invalid("node '" + node.name + "' writes a value that does not exist");
    const Value& value = graph.values[out];
    if (producer[out] != kNone) return invalid("value '" + value.name + "' has two producers");
    producer[out] = id;
    if (value.producer != id || value.output_index != i)
      return invalid("value '" + value.name + "' does not point back to its producer '" + node.name + "'");
  }
  return {};
}

Status verify_node(const Graph& graph, const Node& node) {
  for (ValueId in : node.inputs) {
    if (in == kNone) continue;
    if (in >= graph.values.size())
      return invalid("node '" + node.name + "' reads a value that does not exist");
    const NodeId p = graph.values[in].producer;
    if (p != kNone && (p >= graph.nodes.size() || !graph.nodes[p].alive()))
      return invalid("node '" + node.name + "' reads '" + graph.values[in].name +
                     "', whose producer was removed");
  }
  for (std::uint32_t s : node.origin.sources)
    if (s >= graph.sources.size())
      return invalid("node '" + node.name + "' names a source that does not exist");
  for (std::uint32_t p : node.origin.passes)
    if (p >= graph.passes.size()) return invalid("node '" + node.name + "' names a pass that does not exist");
  return {};
}

Status verify_ends(const Graph& graph, const std::vector<NodeId>& producer) {
  const auto live = [&](ValueId id) {
    return id < graph.values.size() &&
           (graph.values[id].producer == kNone || producer[id] == graph.values[id].producer);
  };
  for (ValueId out : graph.outputs)
    if (!live(out)) return invalid("a graph output has no producer");
  if (graph.loss != kNone && !live(graph.loss)) return invalid("the loss has no producer");
  for (const Update& u : graph.updates) {
    if (!live(u.state) || !live(u.next)) return invalid("an update names a value without producer");
    const Value& state = graph.values[u.state];
    if (state.producer != kNone) return invalid("update of '" + state.name + "', which is not a state");
    if (state.type != graph.values[u.next].type)
      return invalid("update of '" + state.name + "' changes its type");
  }
  return {};
}

Status verify_values(const Graph& graph, const std::vector<NodeId>& producer) {
  DistinctNames names(graph.values.size());
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    const Value& v = graph.values[id];
    const bool used = v.producer == kNone || producer[id] != kNone;
    if (used && !names.insert(v.name)) return invalid("two values are named '" + v.name + "'");
    if (v.role == Role::constant && v.producer == kNone && !v.data.defined())
      return invalid("constant '" + v.name + "' has no contents");
    if (v.data.defined() && v.has_type && used && v.data.type() != v.type)
      return invalid("contents of '" + v.name + "' have another type");
  }
  return {};
}

// Inference accepts the node and gives the types that its results have.
Status verify_types(const Graph& graph, const Node& node) {
  if (!node.alive() || node.op->infer == nullptr) return {};
  bool typed = true;
  for (ValueId in : node.inputs) typed = typed && (in == kNone || graph.values[in].has_type);
  for (ValueId out : node.outputs)
    typed = typed && (out == kNone || graph.values[out].has_type);  // viewing: inference failed
  if (!typed) return {};
  InferContext ctx{graph, node.attrs, node.inputs, static_cast<int>(node.outputs.size()),
                   std::vector<Type>(node.outputs.size())};
  if (Status s = node.op->infer(ctx); !s) return invalid("node '" + node.name + "': " + s.error().message);
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNone) continue;
    const Type& stored = graph.values[node.outputs[i]].type;
    if (is_static(stored.shape) && is_static(ctx.outputs[i].shape) && stored != ctx.outputs[i])
      return invalid("node '" + node.name + "' output " + std::to_string(i) + " is " + to_string(stored) +
                     ", inference says " + to_string(ctx.outputs[i]));
  }
  return {};
}

}  // namespace

Status verify(const Graph& graph, bool deep) {
  DistinctNames names(graph.nodes.size());
  std::vector<NodeId> producer(graph.values.size(), kNone);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (!node.alive()) continue;
    if (!names.insert(node.name)) return invalid("two nodes are named '" + node.name + "'");
    TRY(verify_outputs(graph, id, producer));
    TRY(verify_node(graph, node));
  }
  TRY(verify_ends(graph, producer));
  TRY(verify_values(graph, producer));
  TRY(topological_order(graph));
  for (const Node& node : graph.nodes)
    if (deep) TRY(verify_types(graph, node));
  return {};
}

std::string dump(const Graph& graph) {
  std::string text;
  for (ValueId id : graph.inputs)
    text += "input " + value_ref(graph, id) + " " + to_string(graph.values[id].type) + "\n";
  for (ValueId id : graph.parameters)
    text += "parameter " + value_ref(graph, id) + " " + to_string(graph.values[id].type) + "\n";
  const auto order = topological_order(graph);
  if (!order) return text + "cycle\n";
  std::set<ValueId> printed;
  for (NodeId id : *order) {
    const Node& node = graph.nodes[id];
    for (ValueId in : node.inputs) {
      if (in == kNone || graph.values[in].producer != kNone || !printed.insert(in).second) continue;
      const Value& v = graph.values[in];
      if (v.role == Role::constant)
        text += "constant " + value_ref(graph, in) + " = " + tensor_text(v.data) + "\n";
      if (v.role == Role::state) text += "state " + value_ref(graph, in) + " " + to_string(v.type) + "\n";
    }
    std::string line;
    for (ValueId out : node.outputs)
      line += (line.empty() ? "" : ", ") + value_ref(graph, out) +
              (out == kNone ? "" : " " + to_string(graph.values[out].type));
    line += " = " + std::string(node.op->name) + "(";
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      line += (i ? ", " : "") + value_ref(graph, node.inputs[i]);
    line += ")";
    if (!node.attrs.all().empty()) line += " " + to_string(node.attrs);
    text += line + "  # " + phase_name(node.origin.phase) + "\n";
  }
  for (const Update& u : graph.updates)
    text += "update " + value_ref(graph, u.state) + " <- " + value_ref(graph, u.next) + "\n";
  for (ValueId id : graph.outputs) text += "output " + value_ref(graph, id) + "\n";
  if (graph.loss != kNone) text += "loss " + value_ref(graph, graph.loss) + "\n";
  return text;
}

std::string graph_hash(const Graph& graph) { return hash_hex(dump(graph)); }

}  // namespace gradloom
