// The step as it stands (B) beside another recipe's graph or a run's (A): regions of the model where they differ. A row
// selects the region's nodes in the graph; the marks show all of them there.
#include "app/desktop/difference_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "app/desktop/ui.h"
#include "app/graph_diff_report.h"
#include "engine/base/text.h"
#include "viz/model/axis.h"

namespace gradloom {
namespace {

// The nodes of a region in the graph that is shown, else in the first that has any of them.
void select_region(Ui& ui, const GraphDifference& d, const DiffRegion& region) {
  const bool any = ui.select_first([&](const GraphModel& model) {
    std::vector<std::string> names;
    const auto add = [&](const DiffGraph& side, const std::vector<std::int32_t>& nodes) {
      for (const std::int32_t n : nodes)
        if (const std::string& name = side.nodes[static_cast<std::size_t>(n)].name; model.find(name) >= 0)
          names.push_back(name);
    };
    add(d.right, region.right);
    if (names.empty()) add(d.left, region.left);
    return names;
  });
  if (any) return ui.panes.show("Graph");
  ui.app.notice(NoticeKind::info, "No node of this region is in a graph that can be shown");
}

void draw_sides(Ui& ui) {
  const std::vector<std::string> sides = ui.app.diff_sides();
  DifferenceView& view = ui.app.edit_state().difference;
  int side = static_cast<int>(std::find(sides.begin(), sides.end(), view.against) - sides.begin());
  ImGui::AlignTextToFramePadding();
  text("The step as it stands (B) against (A)", palette().text_dim);
  ImGui::SameLine(0, px(8));
  if (combo("compare.against", &side, sides, 200)) ui.app.diff_against(sides[static_cast<std::size_t>(side)]);
  ImGui::SameLine(0, px(12));
  bool marked = ui.state().difference.marked;
  if (toggle("compare.mark", &marked)) {
    ui.app.edit_state().difference.marked = marked;
    if (marked) ui.panes.show("Graph");
  }
  ImGui::SameLine(0, px(8));
  ImGui::AlignTextToFramePadding();
  text("mark in the graph", palette().text_dim);
  tip("+ only in B, ~ in A too, but otherwise; \u2212 only in A, in the graphs that have it");
}

std::string time_of(const DiffSums& sums) {
  return sums.is_timed() ? format_value(sums.time_ns, Unit::kNs) : "\u2013";
}

void draw_regions(Ui& ui, const GraphDifference& d) {
  const bool timed = d.left_sums.is_timed() || d.right_sums.is_timed();
  TableRows rows;
  rows.sortable = false;
  rows.count = static_cast<int>(d.regions.size());
  rows.id = [&](int r) { return d.regions[static_cast<std::size_t>(r)].name; };
  rows.value = [&](int r) { return cause_text(d.regions[static_cast<std::size_t>(r)]); };
  rows.cell = [&](int r, int column) {
    const DiffRegion& region = d.regions[static_cast<std::size_t>(r)];
    if (column == 0) name_cell(region.name);
    if (column == 1) name_cell(kernels_text(d.left, region.left), palette().text_dim);
    if (column == 2) name_cell(kernels_text(d.right, region.right), palette().text_dim);
    if (column == 3)
      number_cell(timed ? time_of(region.left_sums) : format_value(region.left_sums.bytes, Unit::kBytes));
    if (column == 4)
      number_cell(timed ? time_of(region.right_sums) : format_value(region.right_sums.bytes, Unit::kBytes));
    if (column == 5) name_cell(cause_text(region), palette().text_dim);
  };
  const char* const help = timed ? "Time of one step" : "Bytes that its kernels move; no times are known";
  const TableEvents events = draw_table("compare.regions",
                                        {{"Region"},
                                         {"Kernels of A", 145, false, false, "", 2},
                                         {"Kernels of B", 145, false, false, "", 3},
                                         {"A", 72, true, false, help},
                                         {"B", 72, true, false, help},
                                         {"Passes", 165, false, false, "\u2212 only in A, + only in B", 1}},
                                        rows, ui.compare.rows);
  const int chosen = std::max(events.clicked, events.opened);
  if (chosen >= 0) select_region(ui, d, d.regions[static_cast<std::size_t>(chosen)]);
}

}  // namespace

bool difference_switch(Ui& ui) {
  const std::vector<std::string> sides = ui.app.diff_sides();
  int view = ui.state().difference.against.empty() ? 0 : 1;
  if (!ui.state().plan || sides.empty()) return false;
  if (segmented("compare.view", &view, {"Times", "Graph"})) {
    ui.compare.rows = {};
    ui.app.diff_against(view == 0 ? "" : sides.front());
  }
  tip("How fast two sides are, or what their graphs do differently");
  spacer(4);
  return view == 1;
}

void draw_difference(Ui& ui) {
  draw_sides(ui);
  spacer(4);
  const DifferenceView& view = ui.state().difference;
  if (!view.problem.empty()) return empty_state("Nothing to compare", view.problem);
  if (!view.difference) return empty_state("Comparing\u2026", "");
  const GraphDifference& d = *view.difference;
  const std::string same = fmt::format("{} and {} are the same", plural_text(d.right_equal.nodes, "node"),
                                       plural_text(d.right_equal.kernels, "kernel"));
  const std::string said =
      d.empty() ? "No difference: " + same
                : fmt::format("{}, {} \u2192 {}; {}",
                              plural_text(static_cast<std::int64_t>(d.regions.size()), "region"),
                              d.left_sums.kernels, plural_text(d.right_sums.kernels, "kernel"), same);
  text(said, palette().text, theme().bold);
  register_item("compare.difference", said, std::to_string(d.regions.size()));
  spacer(2);
  if (!d.empty()) draw_regions(ui, d);
}

}  // namespace gradloom
