#include "app/commands/show_tree.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <queue>
#include <set>

#include "engine/base/text.h"
#include "viz/model/memory_model.h"
#include "viz/model/step_tree.h"

namespace gradloom {
namespace {

Json number_or_null(double value) { return std::isnan(value) ? Json(nullptr) : Json(value); }

bool within(const StepNode& node, int depth) { return depth < 0 || node.depth < depth; }

Json node_json(const StepTree& tree, std::int32_t id, int depth) {
  const StepNode& node = tree.nodes[static_cast<std::size_t>(id)];
  Json object = {{"name", node.label},
                 {"total_ns", node.total_ns},
                 {"self_ns", node.self_ns},
                 {"share", tree.share(id)}};
  for (std::size_t p = 0; p < kStepParts; ++p)
    object[std::string(kStepPartNames[p]) + "_ns"] = node.part_ns[p];
  object["kernels"] = node.kernels;
  object["launches"] = node.launches;
  object["peak_bytes"] = node.peak_bytes;
  object["median_ns"] = number_or_null(node.median_ns);
  object["low_ns"] = number_or_null(node.low_ns);
  object["high_ns"] = number_or_null(node.high_ns);
  if (node.repeats > 1) {
    object["repeats"] = node.repeats;
    object["each_ns"] = node.each_ns;
    object["most_ns"] = node.most_ns;
    object["longest"] = node.longest;
  }
  if (!node.rows.empty()) object["plan_steps"] = node.rows;
  if (node.children.empty() || !within(node, depth)) return object;
  Json children = Json::array();
  for (const std::int32_t c : node.children) children.push_back(node_json(tree, c, depth));
  object["children"] = std::move(children);
  return object;
}

// The longest nodes, each with all above it: what is longer than another is so together with its parents.
std::set<std::int32_t> longest_nodes(const StepTree& tree, int depth, std::int64_t limit) {
  std::set<std::int32_t> chosen;
  std::priority_queue<std::pair<double, std::int32_t>> open;  // the later of equal ones first: any is right
  open.emplace(tree.nodes.front().total_ns, 0);
  while (!open.empty() && static_cast<std::int64_t>(chosen.size()) < limit) {
    const std::int32_t id = open.top().second;
    open.pop();
    chosen.insert(id);
    const StepNode& node = tree.nodes[static_cast<std::size_t>(id)];
    if (!within(node, depth)) continue;
    for (const std::int32_t c : node.children)
      open.emplace(tree.nodes[static_cast<std::size_t>(c)].total_ns, c);
  }
  return chosen;
}

class TreeTable {
 public:
  TreeTable(const StepTree& tree, int depth, std::int64_t limit)
      : tree_(tree), depth_(depth), chosen_(longest_nodes(tree, depth, limit)) {
    for (std::size_t p = 0; p < kStepParts; ++p)
      if (tree.nodes.front().part_ns[p] > 0) parts_.push_back(p);
  }

  std::string text() {
    std::vector<std::string> head{std::string("by ") + kTreeByNames[static_cast<std::size_t>(tree_.by)],
                                  "total", "share", "", "self"};
    for (const std::size_t p : parts_) head.emplace_back(kStepPartNames[p]);
    head.insert(head.end(), {"kernels", "launches", "at peak", "quartiles of steps", "each, longest"});
    add(0);
    const int bar = 3, each = static_cast<int>(head.size()) - 1;
    return table_text(head, rows_, {bar, each});
  }

 private:
  static std::string bar(double share) {
    constexpr double kWidth = 10;
    return std::string(static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * kWidth)), '#');
  }

  static std::string peak_text(double bytes) { return bytes > 0 ? bytes_text(bytes) : "-"; }

  std::vector<std::string> cells(const std::string& name, double total_ns, double self_ns,
                                 const std::array<double, kStepParts>& part_ns) const {
    const double all = tree_.nodes.front().total_ns, share = all > 0 ? total_ns / all : 0;
    std::vector<std::string> row{name, duration_text(total_ns), percent_text(share), bar(share),
                                 self_ns > 0 ? duration_text(self_ns) : "-"};
    for (const std::size_t p : parts_) row.push_back(part_ns[p] > 0 ? duration_text(part_ns[p]) : "-");
    return row;
  }

  void add(std::int32_t id) {
    const StepNode& node = tree_.nodes[static_cast<std::size_t>(id)];
    const std::string indent(static_cast<std::size_t>(2 * node.depth), ' ');
    auto row = cells(indent + escaped(node.label), node.total_ns, node.self_ns, node.part_ns);
    row.push_back(std::to_string(node.kernels));
    row.push_back(short_text(node.launches));
    row.push_back(peak_text(node.peak_bytes));
    row.push_back(
        std::isnan(node.median_ns) ? "-" : duration_text(node.low_ns) + " - " + duration_text(node.high_ns));
    row.push_back(node.repeats > 1 ? duration_text(node.each_ns) + ", " + duration_text(node.most_ns) +
                                         " in " + escaped(node.longest)
                                   : "");
    rows_.push_back(std::move(row));
    if (!within(node, depth_)) return;
    std::vector<std::int32_t> left_out;
    for (const std::int32_t c : node.children) {
      if (chosen_.count(c) != 0)
        add(c);
      else
        left_out.push_back(c);
    }
    if (left_out.empty() || left_out.size() == node.children.size()) return;
    const StepSum sum = sum_of(tree_, left_out);
    row = cells(indent + "  (" + std::to_string(sum.nodes) + " more)", sum.ns, 0, sum.part_ns);
    row.insert(row.end(),
               {std::to_string(sum.kernels), short_text(sum.launches), peak_text(sum.peak_bytes), "", ""});
    rows_.push_back(std::move(row));
  }

  const StepTree& tree_;
  const int depth_;
  const std::set<std::int32_t> chosen_;
  std::vector<std::size_t> parts_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace

void declare_tree(CLI::App& app, TreeOptions& options) {
  CLI::Option* const tree =
      app.add_option(
             "--tree", options.by,
             "one step as a tree: by scope (modules) | phase | node (type of ONNX node, then node) | pass | "
             "op; each with what it takes by itself, by phase, in half of the steps, and how much of what it made is live at the peak")
          ->check(CLI::IsMember(std::vector<std::string>(kTreeByNames.begin(), kTreeByNames.end())));
  app.add_option("--depth", options.depth, "with --tree: levels below the step; all without it")
      ->check(CLI::Range(0, 1'000'000))
      ->needs(tree);
  app.add_flag("--unfold", options.unfold, "with --tree: each layer by itself, not as '12 x h.*'")
      ->needs(tree);
}

Status show_tree(const Output& out, const RunRecord& run, const TraceDocument& trace,
                 const TreeOptions& options, std::int64_t limit) {
  const auto by = std::find(kTreeByNames.begin(), kTreeByNames.end(), options.by) - kTreeByNames.begin();
  const StepTree tree =
      build_step_tree(run.kernels, run.source_ops, step_samples(run, trace),
                      held_at_peak(build_memory_model(run)), static_cast<TreeBy>(by), !options.unfold);
  if (out.json()) {
    out.object({{"run_id", run.summary.id},
                {"tree", options.by},
                {"folded", tree.folded},
                {"timed_steps", tree.steps},
                {"step", node_json(tree, 0, options.depth)}});
    return {};
  }
  const std::string id = "run " + std::to_string(run.summary.id) + ": ";
  if (tree.steps == 0) {
    out.text(id + "no kernel timings were recorded");
    return {};
  }
  out.text(id + plural_text(tree.nodes.front().kernels, "kernel") + " take " +
           duration_text(tree.nodes.front().total_ns) + " of a step, by the medians of " +
           plural_text(tree.steps, "timed step"));
  out.text("\n" + TreeTable(tree, options.depth, limit).text());
  return {};
}

}  // namespace gradloom
