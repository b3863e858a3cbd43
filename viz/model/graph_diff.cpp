#include "viz/model/graph_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "engine/base/names.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

constexpr double kLeastCommon = 0.2;  // of the ONNX nodes, or of the nodes, of the smaller graph

// What must be the same of two nodes, without where they come from.
std::string signature(const DiffNode& node, bool whole) {
  std::string text = node.op + '\n' + node.phase + '\n' + node.kernel + '\n' + node.types;
  if (whole) text += '\n' + node.attributes + '\n' + std::to_string(node.inputs.size());
  return text;
}

std::string provenance(const DiffNode& node) {
  std::vector<std::string> names = node.onnx_nodes;
  std::sort(names.begin(), names.end());
  return fmt::to_string(fmt::join(names, "\n"));
}

// Takes the first of each list, in the order of the schedule.
class Unpaired {
 public:
  void add(const std::string& key, int32_t node) {
    if (!key.empty()) lists_[key].nodes.push_back(node);
  }
  // -1: there is none left.
  int32_t take(const std::string& key) {
    const auto found = lists_.find(key);
    if (found == lists_.end() || found->second.taken == found->second.nodes.size()) return -1;
    return found->second.nodes[found->second.taken++];
  }

 private:
  struct List {
    std::vector<int32_t> nodes;
    size_t taken = 0;
  };
  NameMap<List> lists_;
};

class Pairing {
 public:
  Pairing(const DiffGraph& left, const DiffGraph& right, bool whole)
      : left_(left),
        right_(right),
        whole_(whole),
        of_left_(left.nodes.size(), -1),
        of_right_(right.nodes.size(), -1) {
    pair_by_name();
    pair_by_provenance();
    if (!whole_) return;
    break_rewired();
    pair_by_structure();
  }

  bool left_is_paired(size_t node) const { return of_left_[node] >= 0; }
  bool right_is_paired(size_t node) const { return of_right_[node] >= 0; }
  size_t count() const {
    return static_cast<size_t>(
        std::count_if(of_left_.begin(), of_left_.end(), [](int32_t n) { return n >= 0; }));
  }

 private:
  void pair(size_t left, int32_t right) {
    if (right < 0) return;
    of_left_[left] = right;
    of_right_[static_cast<size_t>(right)] = static_cast<int32_t>(left);
  }

  // Nodes with an empty key find no pair. `key` is asked from producers to readers, of the right side first.
  template <class Key>
  void pair_by(const Key& key) {
    Unpaired rest;
    for (size_t r = 0; r < right_.nodes.size(); ++r)
      if (of_right_[r] < 0) rest.add(key(right_.nodes[r], false), static_cast<int32_t>(r));
    for (size_t l = 0; l < left_.nodes.size(); ++l)
      if (of_left_[l] < 0) pair(l, rest.take(key(left_.nodes[l], true)));
  }

  void pair_by_name() {
    pair_by([&](const DiffNode& node, bool) { return node.name + '\n' + signature(node, whole_); });
  }
  void pair_by_provenance() {
    pair_by([&](const DiffNode& node, bool) {
      return node.onnx_nodes.empty() ? "" : signature(node, whole_) + "\n\n" + provenance(node);
    });
  }

  // From producers to readers: what a broken pair made is no longer a reason to break its readers' pairs.
  void break_rewired() {
    for (size_t l = 0; l < left_.nodes.size(); ++l) {
      if (of_left_[l] < 0) continue;
      const auto r = static_cast<size_t>(of_left_[l]);
      if (same_inputs(left_.nodes[l], right_.nodes[r])) continue;
      of_left_[l] = of_right_[r] = -1;
    }
  }

  bool same_inputs(const DiffNode& l, const DiffNode& r) const {
    if (l.inputs.size() != r.inputs.size()) return false;
    for (size_t i = 0; i < l.inputs.size(); ++i) {
      const int32_t from = l.producers[i], to = r.producers[i];
      const bool from_paired = from >= 0 && of_left_[static_cast<size_t>(from)] >= 0,
                 to_paired = to >= 0 && of_right_[static_cast<size_t>(to)] >= 0;
      if (from < 0 && to < 0 ? l.inputs[i] != r.inputs[i]
                             : (from < 0 || from_paired) && (to < 0 || to_paired) &&
                                   (from < 0 || of_left_[static_cast<size_t>(from)] != to))
        return false;
    }
    return true;
  }

  // The operator and what it reads, in nodes of the right side.
  void pair_by_structure() {
    pair_by([&](const DiffNode& node, bool of_left) {
      std::string key = node.inputs.empty() ? "" : signature(node, true);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        int32_t producer = node.producers[i];
        if (producer >= 0 && of_left) {
          producer = of_left_[static_cast<size_t>(producer)];
          if (producer < 0) return std::string();
        }
        key += producer >= 0 ? "\n#" + std::to_string(producer) : "\n" + node.inputs[i];
      }
      return key;
    });
  }

  const DiffGraph &left_, &right_;
  const bool whole_;
  std::vector<int32_t> of_left_, of_right_;  // the node's pair; -1: none
};

// Differing nodes of both sides, left ones first, joined into regions.
class Regions {
 public:
  Regions(const DiffGraph& left, const DiffGraph& right, const Pairing& pairs) : sides_{&left, &right} {
    for (int side = 0; side < 2; ++side) {
      const std::vector<DiffNode>& nodes = sides_[side]->nodes;
      place_[side].assign(nodes.size(), -1);
      for (size_t n = 0; n < nodes.size(); ++n) {
        if (side == 0 ? pairs.left_is_paired(n) : pairs.right_is_paired(n)) continue;
        place_[side][n] = static_cast<int32_t>(differing_.size());
        differing_.emplace_back(side, static_cast<int32_t>(n));
      }
    }
    parent_.resize(differing_.size());
    std::iota(parent_.begin(), parent_.end(), 0);
    join_by_source();
    join_without_source();
  }

  std::vector<DiffRegion> gather() {
    std::map<int32_t, DiffRegion> regions;  // by the first node
    for (size_t i = 0; i < differing_.size(); ++i) {
      const auto [side, node] = differing_[i];
      DiffRegion& region = regions[root(static_cast<int32_t>(i))];
      (side == 0 ? region.left : region.right).push_back(node);
    }
    std::vector<DiffRegion> list;
    for (auto& [first, region] : regions) list.push_back(std::move(region));
    return list;
  }

 private:
  const DiffNode& node(size_t i) const {
    return sides_[differing_[i].first]->nodes[static_cast<size_t>(differing_[i].second)];
  }
  int32_t root(int32_t i) {
    while (parent_[static_cast<size_t>(i)] != i)
      i = parent_[static_cast<size_t>(i)] = parent_[static_cast<size_t>(parent_[static_cast<size_t>(i)])];
    return i;
  }
  void join(int32_t a, int32_t b) {  // the smaller stays: a region is known by its first node
    a = root(a), b = root(b);
    parent_[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
  }

  void join_by_source() {
    NameMap<int32_t> first;
    for (size_t i = 0; i < differing_.size(); ++i)
      for (const std::string& source : node(i).onnx_nodes)
        join(static_cast<int32_t>(i), first.try_emplace(source, static_cast<int32_t>(i)).first->second);
  }

  void join_without_source() {
    std::vector<bool> beside(differing_.size(), false);  // joined to what it reads or is read by
    for (size_t i = 0; i < differing_.size(); ++i) {
      const DiffNode& reader = node(i);
      for (const int32_t producer : reader.producers) {
        const int32_t at = producer < 0 ? -1 : place_[differing_[i].first][static_cast<size_t>(producer)];
        if (at < 0) continue;
        const DiffNode& made = node(static_cast<size_t>(at));
        const bool sourceless = reader.onnx_nodes.empty() || made.onnx_nodes.empty();
        if (!sourceless || reader.phase != made.phase || reader.phase == phase_name(Phase::optimizer))
          continue;
        join(static_cast<int32_t>(i), at);
        beside[i] = beside[static_cast<size_t>(at)] = true;
      }
    }
    std::map<std::string, int32_t> first;  // by phase, of those that stand alone
    for (size_t i = 0; i < differing_.size(); ++i)
      if (node(i).onnx_nodes.empty() && !beside[i])
        join(static_cast<int32_t>(i),
             first.try_emplace(node(i).phase, static_cast<int32_t>(i)).first->second);
  }

  const DiffGraph* sides_[2];
  std::vector<std::pair<int, int32_t>> differing_;  // side, node
  std::vector<int32_t> place_[2];                   // by node: its place in differing_, -1: it has a pair
  std::vector<int32_t> parent_;
};

void add_to(DiffSums& sums, const DiffNode& node) {
  ++sums.nodes;
  sums.kernels += node.has_kernel ? 1 : 0;
  sums.bytes += node.bytes;
  sums.flops += node.flops;
  if (std::isnan(node.time_ns)) return;
  ++sums.timed;
  sums.time_ns += node.time_ns;
}

void add_to(DiffSums& sums, const DiffSums& more) {
  sums.nodes += more.nodes;
  sums.kernels += more.kernels;
  sums.timed += more.timed;
  sums.time_ns += more.time_ns;
  sums.bytes += more.bytes;
  sums.flops += more.flops;
}

std::set<std::string> passes_of(const DiffGraph& graph, const std::vector<int32_t>& nodes) {
  std::set<std::string> passes;
  for (const int32_t n : nodes)
    for (const std::string& pass : split_top_level(graph.nodes[static_cast<size_t>(n)].passes))
      if (!pass.empty()) passes.insert(pass);
  return passes;
}

// What the nodes of a side are as a multiset, told apart by one of their texts.
std::vector<std::string> texts_of(const DiffGraph& graph, const std::vector<int32_t>& nodes,
                                  std::string DiffNode::*text) {
  std::vector<std::string> texts;
  for (const int32_t n : nodes) texts.push_back(graph.nodes[static_cast<size_t>(n)].*text);
  std::sort(texts.begin(), texts.end());
  return texts;
}

std::string why_of(const DiffGraph& left, const DiffGraph& right, const DiffRegion& region) {
  if (region.left.empty() || region.right.empty()) return region.left.empty() ? "only in B" : "only in A";
  for (const auto& [text, why] : {std::pair(&DiffNode::op, "other operators"),
                                  {&DiffNode::types, "other types"},
                                  {&DiffNode::kernel, "other kernels"},
                                  {&DiffNode::attributes, "other attributes"}})
    if (texts_of(left, region.left, text) != texts_of(right, region.right, text)) return why;
  return "other inputs";
}

size_t slash_of(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? 0 : slash;
}

// "layers.0/mlp: Add, Div, Erf": where its ONNX nodes are, and the last parts of their names.
std::string region_name(const std::vector<std::string>& onnx, const std::string& phase) {
  if (onnx.empty()) return phase;
  std::string scope = onnx.front().substr(0, slash_of(onnx.front()));
  for (const std::string& name : onnx)
    while (!scope.empty() && name.compare(0, scope.size() + 1, scope + "/") != 0)
      scope.resize(slash_of(scope));
  constexpr size_t kShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(onnx.size(), kShown); ++i)
    text += (i ? ", " : "") + onnx[i].substr(scope.empty() ? (onnx[i][0] == '/' ? 1 : 0) : scope.size() + 1);
  if (onnx.size() > kShown) text += fmt::format(", +{}", onnx.size() - kShown);
  if (!scope.empty() && scope[0] == '/') scope.erase(0, 1);
  return scope.empty() ? text : scope + ": " + text;
}

void describe(const DiffGraph& left, const DiffGraph& right, DiffRegion& region) {
  NameSet known;
  for (const auto& [graph, nodes, sums] : {std::tuple(&left, &region.left, &region.left_sums),
                                           std::tuple(&right, &region.right, &region.right_sums)}) {
    for (const int32_t n : *nodes) {
      const DiffNode& node = graph->nodes[static_cast<size_t>(n)];
      add_to(*sums, node);
      for (const std::string& source : node.onnx_nodes)
        if (known.insert(source).second) region.onnx_nodes.push_back(source);
    }
  }
  const DiffNode& first = region.left.empty() ? right.nodes[static_cast<size_t>(region.right.front())]
                                              : left.nodes[static_cast<size_t>(region.left.front())];
  region.name = region_name(region.onnx_nodes, first.phase);
  const std::set<std::string> of_left = passes_of(left, region.left),
                              of_right = passes_of(right, region.right);
  std::set_difference(of_left.begin(), of_left.end(), of_right.begin(), of_right.end(),
                      std::back_inserter(region.left_passes));
  std::set_difference(of_right.begin(), of_right.end(), of_left.begin(), of_left.end(),
                      std::back_inserter(region.right_passes));
  if (region.left_passes.empty() && region.right_passes.empty()) region.why = why_of(left, right, region);
}

NameSet sources_of(const DiffGraph& graph) {
  NameSet sources;
  for (const DiffNode& node : graph.nodes) sources.insert(node.onnx_nodes.begin(), node.onnx_nodes.end());
  return sources;
}

// Two graphs of one model have most of its nodes in common, or are built alike.
Status check_related(const DiffGraph& left, const DiffGraph& right, size_t pairs) {
  const NameSet a = sources_of(left), b = sources_of(right);
  for (const auto& [graph, sources] : {std::pair(&left, &a), std::pair(&right, &b)})
    if (sources->empty())
      return Error{Errc::usage, "nothing of " + escaped(graph->name) +
                                    " is known to come from an ONNX node: there is nothing to match it by"};
  size_t common = 0;
  for (const std::string& source : a) common += b.count(source);
  const size_t fewest = std::min(a.size(), b.size()), nodes = std::min(left.nodes.size(), right.nodes.size());
  if (static_cast<double>(common) >= kLeastCommon * static_cast<double>(fewest) ||
      static_cast<double>(pairs) >= kLeastCommon * static_cast<double>(nodes))
    return {};
  return Error{Errc::usage, fmt::format("{} and {} are too different to be matched: {} of {} ONNX nodes are "
                                        "in both; they seem to be of different models",
                                        escaped(left.name), escaped(right.name), common, fewest)};
}

void keep_kernels(DiffGraph& graph) {
  std::erase_if(graph.nodes, [](const DiffNode& node) { return !node.has_kernel; });
  for (DiffNode& node : graph.nodes) node.inputs.clear(), node.producers.clear(), node.attributes.clear();
  graph.whole = false;
}

}  // namespace

DiffGraph diff_graph_of(const Graph& graph, const Plan& plan, std::string name,
                        std::span<const double> step_ns) {
  DiffGraph out;
  out.name = std::move(name);
  out.whole = true;
  if (!step_ns.empty()) out.times = "predicted";
  std::vector<int32_t> step_of(graph.nodes.size(), -1), index_of(graph.nodes.size(), -1);
  for (size_t s = 0; s < plan.steps.size(); ++s) step_of[plan.steps[s].node] = static_cast<int32_t>(s);
  const auto order = topological_order(graph);
  CHECK(order.ok(), "a compiled graph has a cycle");
  for (const NodeId id : *order) {
    const Node& node = graph.nodes[id];
    DiffNode made;
    made.name = node.name;
    made.op = node.op->name;
    made.phase = phase_name(node.origin.phase);
    made.passes = passes_text(graph, node);
    made.types = result_types(graph, node);
    made.attributes = to_string(node.attrs);
    for (const uint32_t source : node.origin.sources) {
      const SourceNode& s = graph.sources[source];
      made.onnx_nodes.push_back(s.name.empty() ? s.op_type : s.name);
    }
    for (const ValueId v : node.inputs) {
      const NodeId producer = v == kNone ? kNone : graph.values[v].producer;
      made.producers.push_back(producer == kNone ? -1 : index_of[producer]);
      made.inputs.push_back(v == kNone || graph.values[v].role == Role::constant ? "" : graph.values[v].name);
    }
    made.has_kernel = step_of[id] >= 0;
    if (made.has_kernel) {
      const auto s = static_cast<size_t>(step_of[id]);
      made.kernel = plan.steps[s].kernel;
      made.bytes = plan.steps[s].bytes_read + plan.steps[s].bytes_written;
      made.flops = plan.steps[s].flops;
      if (s < step_ns.size()) made.time_ns = step_ns[s];
    }
    index_of[id] = static_cast<int32_t>(out.nodes.size());
    out.nodes.push_back(std::move(made));
  }
  return out;
}

DiffGraph diff_graph_of(const RunRecord& run) {
  DiffGraph out;
  out.name = "run " + std::to_string(run.summary.id) +
             (run.summary.name.empty() ? "" : " (" + run.summary.name + ")");
  for (const KernelRow& row : run.kernels) {
    DiffNode made;
    made.name = row.info.node;
    made.op = row.info.op;
    made.kernel = row.info.kernel;
    made.phase = row.info.phase;
    made.passes = row.info.passes;
    made.types = row.info.types;
    made.onnx_nodes = row.info.onnx_nodes;
    made.bytes = row.info.bytes_read + row.info.bytes_written;
    made.flops = row.info.flops;
    if (row.samples > 0) made.time_ns = static_cast<double>(row.step_ns), out.times = "measured";
    out.nodes.push_back(std::move(made));
  }
  return out;
}

Result<GraphDifference> difference_of(DiffGraph left, DiffGraph right) {
  const bool whole = left.whole && right.whole;
  if (!whole) keep_kernels(left), keep_kernels(right);
  GraphDifference difference;
  const Pairing pairs(left, right, whole);
  TRY(check_related(left, right, pairs.count()));
  difference.regions = Regions(left, right, pairs).gather();
  bool timed = false;
  for (DiffRegion& region : difference.regions) {
    describe(left, right, region);
    add_to(difference.left_sums, region.left_sums);
    add_to(difference.right_sums, region.right_sums);
    timed |= region.is_timed();
  }
  std::stable_sort(difference.regions.begin(), difference.regions.end(),
                   [timed](const DiffRegion& a, const DiffRegion& b) {
                     return timed ? std::abs(a.change_ns()) > std::abs(b.change_ns())
                                  : std::abs(a.change_bytes()) > std::abs(b.change_bytes());
                   });
  for (size_t l = 0; l < left.nodes.size(); ++l)
    if (pairs.left_is_paired(l)) add_to(difference.left_equal, left.nodes[l]);
  for (size_t r = 0; r < right.nodes.size(); ++r)
    if (pairs.right_is_paired(r)) add_to(difference.right_equal, right.nodes[r]);
  difference.left = std::move(left);
  difference.right = std::move(right);
  return difference;
}

}  // namespace gradloom
