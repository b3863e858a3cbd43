// The icicle tab: one step of the recorded run as a tree of its time. What is selected in it is selected in the graph
// and the kernel table, too.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <set>
#include <utility>

#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

void make_tree(Ui& ui) {
  const RunRecord& run = ui.state().run->record;
  icicle_set_tree(ui.icicle,
                  build_step_tree(run.kernels, run.source_ops, ui.icicle_samples,
                                  held_at_peak(ui.state().run->memory), ui.icicle.by, ui.icicle.fold));
}

// The nodes of the graph that the selection stands for, the one that takes longest last: it is the one that
// views of a single node show.
std::vector<std::string> selected_nodes(const Ui& ui, const std::vector<std::int32_t>& selection) {
  const std::vector<KernelRow>& kernels = ui.state().run->record.kernels;
  std::set<std::uint32_t> rows;
  for (const std::int32_t id : selection)
    for (const std::uint32_t row : ui.icicle.tree.rows_of(id)) rows.insert(row);
  std::vector<std::uint32_t> by_time(rows.begin(), rows.end());
  std::stable_sort(by_time.begin(), by_time.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return kernels[a].step_ns < kernels[b].step_ns; });
  std::vector<std::string> names;
  for (const std::uint32_t row : by_time) names.push_back(kernels[row].info.node);
  return names;
}

void select_in_views(Ui& ui, const std::vector<std::int32_t>& selection) {
  const std::vector<std::string> nodes = selected_nodes(ui, selection);
  if (nodes.empty()) return;
  ui.kernel_table.wanted = nodes.back();
  ui.select_first([&](const GraphModel& model) {
    std::vector<std::string> known;
    for (const std::string& node : nodes)
      if (model.find(node) >= 0) known.push_back(node);
    return known;
  });
}

// A node of the tree as --speed of what-if names it: by one word, or else kernel by kernel.
std::vector<std::string> speed_selectors(const Ui& ui, std::int32_t id) {
  const StepTree& tree = ui.icicle.tree;
  const auto at = [&](std::int32_t node) -> const StepNode& {
    return tree.nodes[static_cast<std::size_t>(node)];
  };
  const bool inner = at(id).rows.empty() && !at(id).label.starts_with('(');
  if (inner && tree.by == TreeBy::kScope) {
    std::string path = unnumbered_label(at(id));
    for (std::int32_t up = at(id).parent; up > 0; up = at(up).parent)
      path = unnumbered_label(at(up)) + "/" + path;
    return {"scope:" + path};
  }
  if (inner && at(id).parent == 0 && tree.by == TreeBy::kOp) return {"op:" + at(id).label};
  if (inner && at(id).parent == 0 && tree.by == TreeBy::kPhase) return {"phase:" + at(id).label};
  std::set<std::string> nodes;
  for (const std::uint32_t row : tree.rows_of(id))
    nodes.insert("node:" + ui.state().run->record.kernels[row].info.node);
  return {nodes.begin(), nodes.end()};
}

void answer(Ui& ui, const IcicleEvents& events) {
  const IcicleState& state = ui.icicle;
  if (events.selected) select_in_views(ui, state.selection);
  if (events.faster >= 0) ui.asks.twice_as_fast = speed_selectors(ui, events.faster);
  if (events.show_graph >= 0) {
    ui.panes.show("Graph");
    select_in_views(ui, {events.show_graph});
  }
  if (events.show_kernels >= 0) {
    ui.show_recorded = true;
    const std::vector<std::uint32_t>& rows =
        state.tree.nodes[static_cast<std::size_t>(events.show_kernels)].rows;
    if (rows.size() == 1)
      ui.asks.go_to_kernel = ui.state().run->record.kernels[rows.front()].info.node;
    else
      ui.asks.filter_kernels = kernel_query(state.tree, events.show_kernels);
  }
}

}  // namespace

void draw_icicle_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.run || s.run->trace.steps.empty())
    return empty_state(
        "Nothing timed yet",
        "Run with kernel timing (sampled or all): a step then stands here as a tree of its modules, "
        "each as wide as its time.");
  const RunRecord& run = s.run->record;
  if (s.run.get() != ui.icicle_source) {
    ui.icicle_source = s.run.get();
    ui.icicle_samples = step_samples(run, s.run->trace);
    make_tree(ui);
  }
  const std::string about =
      fmt::format("run {}, {}", run.summary.id, plural_text(ui.icicle_samples.steps, "timed step"));
  times_chip(ui, "icicle.times", ImGui::GetContentRegionAvail().x);
  if (ui.filters()) ImGui::SameLine(0, px(14));
  filter_chips(ui, "icicle");
  const ImVec2 at = ImGui::GetCursorScreenPos(), region = ImGui::GetContentRegionAvail();
  const IcicleEvents events =
      draw_icicle(run.kernels, about, {ui.selected(), ui.outline, ui.inside}, ui.icicle, ui.asks);
  ui.drawn(Canvas::icicle, ImGui::IsMouseHoveringRect(at, {at.x + region.x, at.y + region.y}));
  answer(ui, events);
  if (events.changed_tree) return make_tree(ui);
  if (ui.takes_keys(Canvas::icicle) && icicle_keys(ui.icicle)) select_in_views(ui, ui.icicle.selection);
}

}  // namespace gradloom
