#include "app/desktop/panels.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "app/desktop/ui.h"

namespace gradloom {
namespace {

constexpr Panel kPanels[] = {
    {"Model", nullptr, "Passes", draw_model_panel, true},
    {"Passes", nullptr, "Model", draw_pass_panel, true},
    {"Graph", "view.graph", "Kernels", draw_graph_panel},
    {"Kernels", "view.kernels", "Graph", draw_kernel_panel},
    {"Icicle", "view.icicle", "Kernels", draw_icicle_panel},
    {"Memory", "view.memory", "Kernels", draw_memory_panel},
    {"Timeline", "view.timeline", "Memory", draw_timeline_panel},
    {"Roofline", "view.roofline", "Timeline", draw_roofline_panel},
    {"Compare", "view.compare", "Timeline", draw_compare_panel},
    {"Advice", "view.advice", "Compare", draw_advice_panel},
    {"What if", "view.what-if", "Advice", draw_what_if_panel},
    {"Scaling", "view.scaling", "What if", draw_scaling_panel},
    {"Tune", "view.tune", "What if", draw_tune_panel},
    {"Trends", "view.trends", "What if", draw_trends_panel},
    {"Node", nullptr, "Graph", draw_node_panel, true},
    {"Run", nullptr, "Curve", draw_run_panel, true},
    {"Curve", "view.loss", "Runs", draw_curve_panel, true},
    {"Runs", "view.runs", "Curve", draw_session_panel, true},
    {"Notes", "view.notes", "Runs", draw_notes_panel, true},
};

std::vector<TabPlace> places() {
  std::vector<TabPlace> all;
  for (const Panel& panel : kPanels) all.push_back({panel.name, panel.beside});
  return all;
}

}  // namespace

std::span<const Panel> panels() { return kPanels; }

const Panel* find_panel(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kPanels), std::end(kPanels), [&](const Panel& p) { return name == p.name; });
  return found == std::end(kPanels) ? nullptr : found;
}

ImVec2 least_room_of(std::string_view name) {
  const Panel* const panel = find_panel(name);
  return panel != nullptr && panel->narrow ? ImVec2{258, 120} : ImVec2{480, 270};
}

// What a layout does not name is behind what it shows (keep_tabs).
std::span<const NamedLayout> built_in_layouts() {
  static const NamedLayout kLayouts[] = {
      {"Default",
       "h0.215(v0.340(Model*,Passes*),v0.640(h0.745(Graph*|Kernels|Icicle|Memory|Timeline|Roofline|Compare|Advice|What if|Trends|Tune|Scaling,Node*),"
       "h0.500(Run*,Curve*|Runs|Notes)))"},
      {"Graph focus",
       "h0.800(Graph*|Kernels|Icicle|Memory|Timeline|Roofline|Compare|Advice|What if|Trends|Tune|Scaling,Node*|Model|Passes|Run|Curve|Runs|Notes)"},
      {"Memory",
       "h0.240(v0.500(Passes*|Model,Run*|Curve|Runs|Notes),v0.580(Memory*|Timeline|Icicle|Roofline|Compare|Advice|What if|Trends|Tune|Scaling,"
       "h0.650(Graph*|Kernels,Node*)))"},
      {"Compare",
       "v0.600(h0.560(Compare*|Timeline|Icicle|Memory|Roofline|Advice|What if|Trends|Tune|Scaling,Graph*|Kernels|Node),"
       "h0.560(Runs*|Notes,Curve*|Run|Passes|Model))"}};
  return kLayouts;
}

PaneTree default_panes() {
  PaneTree tree = std::move(PaneTree::parse(built_in_layouts().front().panes).value());
  tree.keep_tabs(places());
  return tree;
}

PaneTree panes_from(const std::string& text) {
  if (text.empty()) return default_panes();
  auto tree = PaneTree::parse(text);
  if (!tree) return default_panes();
  const auto tabs = tree->all_tabs();
  if (std::none_of(tabs.begin(), tabs.end(), [](const std::string& tab) { return find_panel(tab); }))
    return default_panes();
  tree->keep_tabs(places());
  return std::move(tree).value();
}

}  // namespace gradloom
