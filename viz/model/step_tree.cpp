#include "viz/model/step_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "engine/base/names.h"
#include "engine/base/text.h"
#include "profiler/sampler.h"
#include "viz/model/kernel_table.h"
#include "viz/model/step_groups.h"

namespace gradloom {
namespace {

// Deeper scopes, and those beyond so many nodes, are cut: names come from files of strangers.
constexpr size_t kMostLevels = 24, kMostNodes = 250'000;

// Operators that ranks exchange with. As globs of the search language.
constexpr const char* kExchanges[] = {"AllReduce*", "ShareParameters", "ReduceGradients", "GatherParameters"};

// A node before anything is folded.
struct Raw {
  std::string label;
  int32_t parent = -1;
  int32_t row = -1;  // of a kernel
  int32_t structure = -1;
  double ns = 0;
  std::vector<int32_t> children;
};

// Raw nodes that become one: `each` of several things, every one of which may be of several layers.
struct Merged {
  std::string label;
  std::vector<std::vector<int32_t>> each;
  int32_t structure = -1;
  int32_t below = 0;  // so many levels below what was folded
};

double quantile(const std::vector<double>& sorted, double part) {
  const double at = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

// What a kernel takes of a step.
double time_of(const KernelRow& row, const StepSamples& samples, size_t kernel) {
  if (!samples.has(kernel)) return static_cast<double>(row.step_ns);
  std::vector<double> ns;  // of the steps in which it ran
  for (size_t i = samples.first[kernel]; i < samples.first[kernel + 1]; ++i) {
    const StepSamples::Entry& entry = samples.entries[i];
    if (i == samples.first[kernel] || samples.entries[i - 1].step != entry.step) ns.push_back(0);
    ns.back() += entry.ns;
  }
  const auto steps = static_cast<double>(ns.size());
  return median(std::move(ns)) * steps / samples.steps;
}

class TreeBuilder {
 public:
  TreeBuilder(const std::vector<KernelRow>& kernels, const std::vector<std::string>& source_ops,
              const StepSamples& samples, const std::map<std::string, int64_t>& held, TreeBy by, bool fold)
      : kernels_(kernels), samples_(samples), scopes_(kernels, kMostLevels, kMostNodes) {
    tree_.by = by;
    tree_.folded = fold;
    tree_.steps = samples.steps;
    // What a node of several kernels made is the first one's.
    std::map<std::string, int64_t> left = held;
    for (const KernelRow& row : kernels)
      held_.push_back(static_cast<double>(std::exchange(left[row.info.node], 0)));
    if (by == TreeBy::kNode) groups_ = onnx_groups(kernels, source_ops);
  }

  StepTree build() {
    raw_.push_back({"step"});
    for (size_t row = 0; row < kernels_.size(); ++row) ns_.push_back(time_of(kernels_[row], samples_, row));
    for (size_t row = 0; row < kernels_.size(); ++row) place(static_cast<int32_t>(row));
    sums_.resize(kMostLevels + 4);
    emit({"step", {{0}}, -1, 0}, -1);
    return std::move(tree_);
  }

 private:
  int32_t child(int32_t parent, std::string label, int32_t structure) {
    if (label.empty()) label = "(no name)";
    const auto [at, added] = by_label_.try_emplace({parent, label}, static_cast<int32_t>(raw_.size()));
    if (added) {
      raw_[static_cast<size_t>(parent)].children.push_back(at->second);
      raw_.push_back({label, parent, -1, structure});
    }
    return at->second;
  }

  void place(int32_t row) {
    const KernelInfo& k = kernels_[static_cast<size_t>(row)].info;
    int32_t at = 0;
    if (tree_.by == TreeBy::kNode) {
      const int32_t group = groups_.of_row[static_cast<size_t>(row)];
      at = child(0, group < 0 ? "(no ONNX node)" : groups_.groups[static_cast<size_t>(group)].type, -1);
      if (group >= 0) {
        const OnnxGroup& g = groups_.groups[static_cast<size_t>(group)];
        at = child(at, g.name, g.structure);
      }
    } else {
      if (tree_.by != TreeBy::kScope) at = child(at, group_of(k), -1);
      at = place_in_scope(at, row);
    }
    const auto leaf = static_cast<int32_t>(raw_.size());
    raw_[static_cast<size_t>(at)].children.push_back(leaf);
    std::string_view name = inside_scope(k.node, k.scope);
    if (name.size() > 1 && name[0] == '/') name.remove_prefix(1);
    raw_.push_back({std::string(name.empty() ? "(no name)" : name), at, row});
    const double ns = ns_[static_cast<size_t>(row)];
    for (int32_t up = leaf; up >= 0; up = raw_[static_cast<size_t>(up)].parent)
      raw_[static_cast<size_t>(up)].ns += ns;
  }

  std::string group_of(const KernelInfo& k) const {
    if (tree_.by == TreeBy::kPhase) return kStepPartNames[static_cast<size_t>(step_part(k))];
    if (tree_.by == TreeBy::kOp) return k.op;
    return k.passes.empty() ? "(not rewritten)" : last_pass(k.passes);
  }

  int32_t place_in_scope(int32_t at, int32_t row) {
    const KernelInfo& k = kernels_[static_cast<size_t>(row)].info;
    if (raw_.size() > kMostNodes) return child(at, "(more)", -1);
    const std::vector<int32_t> way = scopes_.way_to(row);
    if (way.empty()) {
      // What belongs to no module is told apart where nothing above does it.
      const StepPart part = step_part(k);
      const bool own = part == StepPart::kOptimizer || part == StepPart::kExchange;
      if (tree_.by != TreeBy::kScope) return at;
      return child(at, own ? fmt::format("({})", kStepPartNames[static_cast<size_t>(part)]) : "(no scope)",
                   -1);
    }
    const auto [known, fresh] = placed_.try_emplace({at, way.back()}, -1);
    if (fresh)
      for (const int32_t scope : way)
        known->second = at = child(at, scopes_.label(scope), scopes_.structure(scope));
    return known->second;
  }

  const Raw& raw(int32_t i) const { return raw_[static_cast<size_t>(i)]; }

  // The children of raw nodes that are one node: things of one name become one.
  std::vector<Merged> children_of(const Merged& node) const {
    std::vector<Merged> children;
    if (node.each.size() == 1 && node.each.front().size() == 1) {
      for (const int32_t c : raw(node.each.front().front()).children)
        children.push_back({raw(c).label, {{c}}, raw(c).structure, node.below + 1});
      return children;
    }
    std::map<std::string, size_t> by_key;
    for (const std::vector<int32_t>& things : node.each)
      for (const int32_t thing : things) {
        std::map<std::string, int> nth;  // of its phase and operator
        for (const int32_t c : raw(thing).children) {
          std::string key = "/" + raw(c).label;
          if (raw(c).row >= 0) {
            const KernelInfo& k = kernels_[static_cast<size_t>(raw(c).row)].info;
            key = k.phase + " " + k.op;
            key += " " + std::to_string(nth[key]++);
          }
          const auto [at, added] = by_key.try_emplace(key, children.size());
          if (added) children.push_back({raw(c).label, {}, raw(c).structure, node.below + 1});
          Merged& to = children[at->second];
          to.each.push_back({c});
          if (to.label != raw(c).label) to.label = common_label(to.label, c);
        }
      }
    return children;
  }

  std::string common_label(const std::string& label, int32_t other) const {
    const std::string stem = layer_stem(label);
    if (stem == layer_stem(raw(other).label)) return stem;
    return raw(other).row < 0 ? label : kernels_[static_cast<size_t>(raw(other).row)].info.op;
  }

  static std::vector<int32_t> all_of(const Merged& node) {
    std::vector<int32_t> all;
    for (const auto& things : node.each) all.insert(all.end(), things.begin(), things.end());
    return all;
  }

  // Layers that are alike become one of them.
  static std::vector<Merged> folded(std::vector<Merged> children) {
    std::map<std::pair<std::string, int32_t>, size_t> layers;
    std::vector<Merged> out;
    std::vector<size_t> count;
    for (Merged& c : children) {
      const std::string stem = layer_stem(c.label);
      if (c.structure < 0 || stem == c.label) {
        out.push_back(std::move(c));
        count.push_back(0);
        continue;
      }
      const auto [at, added] = layers.try_emplace({stem, c.structure}, out.size());
      if (added) {
        out.push_back(std::move(c));
        count.push_back(1);
        continue;
      }
      Merged& to = out[at->second];
      if (count[at->second]++ == 1) to.each = {all_of(to)};
      to.each.push_back(all_of(c));
    }
    for (size_t i = 0; i < out.size(); ++i)
      if (count[i] > 1) {
        out[i].label = fmt::format("{} x {}", count[i], layer_stem(out[i].label));
        out[i].below = 0;
      }
    return out;
  }

  static void make_unique(std::vector<Merged>& children) {
    NameMap<int> used;  // label, and the last number that was put behind it
    for (Merged& c : children) {
      const std::string label = c.label;
      while (!used.try_emplace(c.label, 1).second) c.label = fmt::format("{} #{}", label, ++used.at(label));
    }
  }

  void set_repeats(StepNode& node, const Merged& of) const {
    node.repeats = static_cast<int64_t>(of.each.size());
    std::vector<double> ns;
    size_t longest = 0;
    for (const auto& things : of.each) {
      ns.push_back(0);
      for (const int32_t thing : things) ns.back() += raw(thing).ns;
      if (ns.back() > ns[longest]) longest = ns.size() - 1;
    }
    node.most_ns = ns[longest];
    node.each_ns = median(ns);
    int32_t layer = of.each[longest].front();
    for (int32_t up = 0; up < of.below && raw(layer).parent > 0; ++up) layer = raw(layer).parent;
    if (node.repeats > 1) node.longest = raw(layer).label;
  }

  void set_spread(StepNode& node, std::vector<double> steps) const {
    if (steps.empty()) return;
    std::sort(steps.begin(), steps.end());
    node.low_ns = quantile(steps, 0.25);
    node.median_ns = quantile(steps, 0.5);
    node.high_ns = quantile(steps, 0.75);
  }

  void add_kernel(StepNode& node, int32_t row, std::vector<double>& steps) const {
    const KernelRow& k = kernels_[static_cast<size_t>(row)];
    node.rows.push_back(static_cast<uint32_t>(row));
    const double ns = ns_[static_cast<size_t>(row)];
    node.total_ns += ns;
    node.self_ns += ns;
    node.part_ns[static_cast<size_t>(step_part(k.info))] += ns;
    ++node.kernels;
    node.peak_bytes += held_[static_cast<size_t>(row)];
    const auto at = static_cast<size_t>(row);
    if (!samples_.has(at)) return;
    for (size_t i = samples_.first[at]; i < samples_.first[at + 1]; ++i)
      steps[samples_.entries[i].step] += samples_.entries[i].ns;
    node.launches += static_cast<double>(samples_.first[at + 1] - samples_.first[at]) /
                     std::max<double>(1, samples_.steps);
  }

  // Adds the node and all below it; what it takes in each step is then in sums_[depth].
  int32_t emit(const Merged& of, int32_t parent) {
    const auto id = static_cast<int32_t>(tree_.nodes.size());
    tree_.nodes.emplace_back();
    StepNode node;
    node.label = of.label;
    node.parent = parent;
    node.depth = parent < 0 ? 0 : tree_.nodes[static_cast<size_t>(parent)].depth + 1;
    const auto depth = static_cast<size_t>(node.depth);
    tree_.nodes[static_cast<size_t>(id)].depth = node.depth;
    sums_[depth].assign(samples_.steps, 0.0);
    std::vector<Merged> children;
    for (const auto& things : of.each)
      for (const int32_t thing : things)
        if (raw(thing).row >= 0) add_kernel(node, raw(thing).row, sums_[depth]);
    if (node.rows.empty()) children = children_of(of);
    if (tree_.folded) children = folded(std::move(children));
    make_unique(children);
    for (const Merged& c : children) {
      const int32_t at = emit(c, id);
      node.children.push_back(at);
      const StepNode& made = tree_.nodes[static_cast<size_t>(at)];
      node.total_ns += made.total_ns;
      if (!made.rows.empty()) node.self_ns += made.total_ns;
      node.kernels += made.kernels;
      node.launches += made.launches;
      node.peak_bytes += made.peak_bytes;
      for (size_t p = 0; p < kStepParts; ++p) node.part_ns[p] += made.part_ns[p];
      for (size_t s = 0; s < sums_[depth].size(); ++s) sums_[depth][s] += sums_[depth + 1][s];
    }
    std::stable_sort(node.children.begin(), node.children.end(), [&](int32_t a, int32_t b) {
      return tree_.nodes[static_cast<size_t>(a)].total_ns > tree_.nodes[static_cast<size_t>(b)].total_ns;
    });
    set_spread(node, sums_[depth]);
    set_repeats(node, of);
    tree_.nodes[static_cast<size_t>(id)] = std::move(node);
    return id;
  }

  const std::vector<KernelRow>& kernels_;
  const StepSamples& samples_;
  std::vector<double> ns_, held_;  // by kernel
  const ScopeStructures scopes_;
  OnnxGroups groups_;
  std::vector<Raw> raw_;
  std::map<std::pair<int32_t, std::string>, int32_t> by_label_;
  // Of a group's node and a scope the scope's node in it.
  std::map<std::pair<int32_t, int32_t>, int32_t> placed_;
  std::vector<std::vector<double>> sums_;  // by depth
  StepTree tree_;
};

}  // namespace

StepPart step_part(const KernelInfo& kernel) {
  for (const char* exchange : kExchanges)
    if (glob_match(exchange, kernel.op)) return StepPart::kExchange;
  for (size_t p = 0; p < kStepParts; ++p)
    if (kernel.phase == kStepPartNames[p]) return static_cast<StepPart>(p);
  return StepPart::kOther;
}

StepPart StepNode::main_part() const {
  return static_cast<StepPart>(std::max_element(part_ns.begin(), part_ns.end()) - part_ns.begin());
}

StepSamples step_samples(const TraceDocument& trace, size_t kernels, int64_t warmup) {
  std::map<int64_t, uint32_t> number;  // of the steps that count
  for (size_t i = 0; i < trace.rows.size(); ++i)
    if (i == 0 || trace.rows[i].step != trace.rows[i - 1].step) number.try_emplace(trace.rows[i].step, 0);
  if (!number.empty() && number.rbegin()->first > warmup)
    number.erase(number.begin(), number.upper_bound(warmup));
  StepSamples samples;
  for (auto& [step, n] : number) n = samples.steps++;
  samples.first.assign(kernels + 1, 0);
  // Rows come by step: `take` gets what counts, with the number of its step.
  const auto each_row = [&](const auto& take) {
    auto step = number.end();
    for (const TraceRow& row : trace.rows) {
      if (row.plan_step < 0 || static_cast<size_t>(row.plan_step) >= kernels) continue;
      if (step == number.end() || step->first != row.step) step = number.find(row.step);
      if (step != number.end()) take(static_cast<size_t>(row.plan_step), step->second, row.duration_ns);
    }
  };
  each_row([&](size_t kernel, uint32_t, int64_t) { ++samples.first[kernel + 1]; });
  std::partial_sum(samples.first.begin(), samples.first.end(), samples.first.begin());
  samples.entries.resize(samples.first.back());
  std::vector<size_t> next(samples.first.begin(), samples.first.end());
  each_row([&](size_t kernel, uint32_t step, int64_t ns) {
    samples.entries[next[kernel]++] = {step, static_cast<double>(ns)};
  });
  return samples;
}

StepSamples step_samples(const RunRecord& run, const TraceDocument& trace) {
  return step_samples(trace, run.kernels.size(), run.summary.last_warmup_step());
}

StepTree build_step_tree(const std::vector<KernelRow>& kernels, const std::vector<std::string>& source_ops,
                         const StepSamples& samples, const std::map<std::string, int64_t>& held, TreeBy by,
                         bool fold) {
  return TreeBuilder(kernels, source_ops, samples, held, by, fold).build();
}

double StepTree::share(int32_t node) const {
  const double all = nodes.front().total_ns;
  return all > 0 ? nodes[static_cast<size_t>(node)].total_ns / all : 0;
}

std::string StepTree::path(int32_t node) const {
  std::string path;
  for (; node > 0; node = nodes[static_cast<size_t>(node)].parent)
    path = nodes[static_cast<size_t>(node)].label + (path.empty() ? "" : "/") + path;
  return path;
}

int32_t StepTree::find(std::string_view path) const {
  if (path.empty()) return 0;
  // Labels may hold slashes themselves: each that the rest begins with is tried.
  std::vector<std::pair<int32_t, std::string_view>> open{{0, path}};
  while (!open.empty()) {
    const auto [at, rest] = open.back();
    open.pop_back();
    for (const int32_t c : nodes[static_cast<size_t>(at)].children) {
      const std::string& label = nodes[static_cast<size_t>(c)].label;
      if (rest == label) return c;
      if (rest.starts_with(label) && rest[label.size()] == '/')
        open.emplace_back(c, rest.substr(label.size() + 1));
    }
  }
  return -1;
}

bool StepTree::is_within(int32_t node, int32_t outer) const {
  while (node >= 0 && node != outer) node = nodes[static_cast<size_t>(node)].parent;
  return node == outer;
}

std::vector<uint32_t> StepTree::rows_of(int32_t node) const {
  std::vector<uint32_t> rows;
  std::vector<int32_t> open{node};
  while (!open.empty()) {
    const StepNode& at = nodes[static_cast<size_t>(open.back())];
    open.pop_back();
    rows.insert(rows.end(), at.rows.begin(), at.rows.end());
    open.insert(open.end(), at.children.rbegin(), at.children.rend());
  }
  return rows;
}

StepSum sum_of(const StepTree& tree, const std::vector<int32_t>& nodes) {
  StepSum sum;
  const std::set<int32_t> chosen(nodes.begin(), nodes.end());
  for (const int32_t id : chosen) {
    const StepNode& node = tree.nodes[static_cast<size_t>(id)];
    ++sum.nodes;
    bool inside = false;
    for (int32_t up = node.parent; up >= 0 && !inside; up = tree.nodes[static_cast<size_t>(up)].parent)
      inside = chosen.count(up) != 0;
    if (inside) continue;
    sum.kernels += node.kernels;
    sum.ns += node.total_ns;
    sum.share += tree.share(id);
    sum.launches += node.launches;
    sum.peak_bytes += node.peak_bytes;
    for (size_t p = 0; p < kStepParts; ++p) sum.part_ns[p] += node.part_ns[p];
  }
  return sum;
}

std::string unnumbered_label(const StepNode& node) {
  const std::string count = fmt::format("{} x ", node.repeats);
  return node.repeats > 1 && node.label.starts_with(count) ? node.label.substr(count.size()) : node.label;
}

std::string kernel_query(const StepTree& tree, int32_t node) {
  static constexpr std::array<const char*, 5> kKeys{"scope", "phase", "", "pass", "op"};
  const auto at = [&](int32_t id) -> const StepNode& { return tree.nodes[static_cast<size_t>(id)]; };
  if (tree.by == TreeBy::kNode) return {};
  std::string query, around, scope;  // around: the scope that the last label is in
  for (int32_t up = node; up > 0; up = at(up).parent) {
    const std::string label = unnumbered_label(at(up));
    const bool told = at(up).rows.empty() && label.find('"') == std::string::npos && !label.starts_with('(');
    const bool phase = tree.by == TreeBy::kPhase && at(up).parent == 0;
    if (!told || (phase && label == kStepPartNames[static_cast<size_t>(StepPart::kExchange)])) return {};
    if (at(up).parent == 0 && tree.by != TreeBy::kScope)
      query = fmt::format("{}:\"{}\"", kKeys[static_cast<size_t>(tree.by)], label);
    else if (up == node)
      scope = label;
    else
      around = label + "/" + around;
  }
  const bool exchanges = tree.nodes.front().part_ns[static_cast<size_t>(StepPart::kExchange)] > 0;
  if (scope.empty() && tree.by == TreeBy::kPhase && exchanges && !query.empty())
    for (const char* exchange : kExchanges)
      query += fmt::format(" -op:{}", exchange);  // they have a phase, too
  if (scope.empty()) return query;
  // All that begins so, but for the siblings that do: h.1 is not h.11.
  const std::string pattern = around + scope + "*";
  query += fmt::format("{}scope:\"{}\"", query.empty() ? "" : " ", pattern);
  for (const int32_t sibling : at(at(node).parent).children) {
    const std::string other = around + unnumbered_label(at(sibling));
    if (sibling != node && at(sibling).rows.empty() && glob_match(pattern, other))
      query += fmt::format(" -scope:\"{}*\"", other);
  }
  return query;
}

std::string parts_text(const std::array<double, kStepParts>& part_ns) {
  std::string text;
  for (size_t p = 0; p < kStepParts; ++p)
    if (part_ns[p] > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kStepPartNames[p], duration_text(part_ns[p]));
  return text;
}

}  // namespace gradloom
