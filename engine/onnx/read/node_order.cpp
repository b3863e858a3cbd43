// Kahn's algorithm over the names, without recursion: a million-node chain takes as
// little stack as three nodes.
#include "engine/onnx/read/node_order.h"

#include <algorithm>
#include <queue>
#include <string_view>

#include "engine/base/text.h"
#include "engine/onnx/file/subgraph.h"

namespace gradloom {

namespace {

constexpr int kInput = -1, kInitializer = -2;

class Orderer {
 public:
  Orderer(const onnx::GraphProto& graph, const std::vector<std::string>& labels, const IsOuter& is_outer)
      : graph_(graph), labels_(labels), is_outer_(is_outer) {}

  Result<NodeOrder> run() {
    TRY(index_producers());
    NodeOrder result;
    std::vector<int> missing(labels_.size(), 0);
    std::vector<std::vector<int>> consumers(labels_.size());
    for (int i = 0; i < graph_.node_size(); ++i) {
      for (const std::string& name : reads_of(graph_.node(i))) {
        const auto it = producers_.find(name);
        if (it == producers_.end()) {
          if (is_outer_ != nullptr && is_outer_(name)) continue;
          return missing_input(i, name);
        }
        if (it->second < 0) continue;
        consumers[index(it->second)].push_back(i);
        ++missing[index(i)];
        result.was_sorted = result.was_sorted && it->second < i;
      }
    }
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (std::size_t i = 0; i < missing.size(); ++i) {
      if (missing[i] == 0) ready.push(static_cast<int>(i));
    }
    while (!ready.empty()) {
      const int node = ready.top();
      ready.pop();
      result.order.push_back(node);
      for (const int consumer : consumers[index(node)]) {
        if (--missing[index(consumer)] == 0) ready.push(consumer);
      }
    }
    if (result.order.size() != labels_.size()) return cycle(missing);
    return result;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  // Names of the inputs that are there, and of what subgraphs capture.
  static std::vector<std::string> reads_of(const onnx::NodeProto& node) {
    std::vector<std::string> names = captured_names(node);
    for (const std::string& name : node.input())
      if (!name.empty()) names.push_back(name);
    return names;
  }

  Error missing_input(int i, const std::string& name) const {
    const auto& inputs = graph_.node(i).input();
    const auto position = std::find(inputs.begin(), inputs.end(), name) - inputs.begin();
    const std::string what =
        position == inputs.size() ? std::string("a captured value") : "input " + std::to_string(position);
    return Error{Errc::bad_input,
                 labels_[index(i)] + ": " + what + " '" + escaped(name) + "' is produced by nothing"};
  }

  std::string place(int producer) const {
    return producer == kInput         ? "a graph input"
           : producer == kInitializer ? "an initializer"
                                      : labels_[index(producer)];
  }

  Status declare(const std::string& name, int producer) {
    if (name.empty()) return Error{Errc::bad_input, place(producer) + " has no name"};
    if (is_outer_ != nullptr && is_outer_(name)) {
      return Error{
          Errc::bad_input,
          "'" + escaped(name) + "' is defined twice: around a subgraph and in it by " + place(producer)};
    }
    const auto [it, fresh] = producers_.try_emplace(name, producer);
    if (fresh) return {};
    // Older files list initializers as inputs too: then the initializer is what the name stands for.
    if (it->second == kInput && producer == kInitializer) {
      it->second = kInitializer;
      return {};
    }
    return Error{Errc::bad_input, "'" + escaped(name) + "' is defined twice: by " + place(it->second) +
                                      " and by " + place(producer)};
  }

  Status index_producers() {
    for (const auto& input : graph_.input()) TRY(declare(input.name(), kInput));
    for (const auto& initializer : graph_.initializer()) TRY(declare(initializer.name(), kInitializer));
    for (int i = 0; i < graph_.node_size(); ++i) {
      for (const std::string& name : graph_.node(i).output()) {
        if (!name.empty()) TRY(declare(name, i));
      }
    }
    return {};
  }

  // Walks producers that are not ready, from any blocked node until one repeats:
  // those are the nodes of one cycle.
  Error cycle(const std::vector<int>& missing) const {
    int current = 0;
    while (missing[index(current)] == 0) ++current;
    std::vector<int> path;
    std::vector<bool> seen(labels_.size(), false);
    while (!seen[index(current)]) {
      seen[index(current)] = true;
      path.push_back(current);
      int next = current;
      for (const std::string& name : graph_.node(current).input()) {
        const auto it = name.empty() ? producers_.end() : producers_.find(name);
        if (it != producers_.end() && it->second >= 0 && missing[index(it->second)] > 0) next = it->second;
      }
      current = next;
    }
    std::string names;
    std::size_t shown = 0;
    bool inside = false;
    for (const int node : path) {
      inside = inside || node == current;
      if (!inside) continue;
      if (++shown > 10) {
        names += " <- ...";
        break;
      }
      names += (names.empty() ? "" : " <- ") + labels_[index(node)];
    }
    return Error{Errc::bad_input, "the graph has a cycle: " + names};
  }

  const onnx::GraphProto& graph_;
  const std::vector<std::string>& labels_;
  const IsOuter& is_outer_;
  NameViewMap<int> producers_;
};

}  // namespace

NodeNaming unique_node_names(const onnx::GraphProto& graph) {
  NodeNaming naming;
  for (const auto& node : graph.node()) naming.taken.insert(node.name());
  NameMap<int> bearers;
  for (int i = 0; i < graph.node_size(); ++i) {
    const auto& node = graph.node(i);
    std::string name = node.name();
    if (name.empty()) {
      name = node.op_type() + "_" + std::to_string(i);
      while (!naming.taken.insert(name).second) name += "_";
    } else if (int& bearer = bearers[name]; ++bearer > 1) {
      ++naming.renamed;
      while (!naming.taken.insert(name + "_" + std::to_string(bearer)).second) ++bearer;
      name += "_" + std::to_string(bearer);
    }
    naming.names.push_back(std::move(name));
  }
  return naming;
}

Result<NodeOrder> order_nodes(const onnx::GraphProto& graph, const std::vector<std::string>& labels,
                              const IsOuter& is_outer) {
  return Orderer(graph, labels, is_outer).run();
}

}  // namespace gradloom
