#include "viz/draw/small_graph.h"

#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "viz/draw/graph_canvas.h"
#include "viz/draw/items.h"
#include "viz/draw/theme.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

constexpr float kBoxHeight = 22;

void draw_routes(const SmallGraph& graph, ImDrawList* list, ImVec2 at, float k) {
  for (const LayoutRoute& route : graph.layout.routes) {
    for (uint32_t i = 0; i < route.point_count; ++i) {
      const LayoutPoint& p = graph.layout.points[route.first_point + i];
      list->PathLineTo({at.x + p.x * k, at.y + p.y * k});
    }
    list->PathStroke(palette().text_faint, 0, px(1.2f));
  }
}

}  // namespace

SmallGraph make_small_graph(const Graph& graph) {
  SmallGraph small;
  small.model = build_graph_model(graph, nullptr);
  LayoutInput in = small.model.layout_input(std::vector<bool>(small.model.scopes.size(), false));
  in.scopes.clear();  // a few nodes need no frames around them
  for (size_t i = 0; i < in.nodes.size(); ++i) {
    in.nodes[i].height = kBoxHeight;
    in.nodes[i].width = std::max(44.f, 20 + 7.6f * static_cast<float>(small.model.boxes[i].title.size()));
    in.nodes[i].scope = -1;
  }
  in.gap = 12;
  in.row_gap = 14;
  in.column_gap = 30;
  small.layout = *layout_graph(in);  // never stopped
  return small;
}

void draw_small_graph(std::string_view id, const SmallGraph& graph) {
  const Palette& p = palette();
  const float room = ImGui::GetContentRegionAvail().x, pad = px(8);
  const float k = std::min(theme().scale, (room - 2 * pad) / std::max(graph.layout.width, 1.f));
  const ImVec2 min = ImGui::GetCursorScreenPos();
  const float height = graph.layout.height * k + 2 * pad;
  ImGui::Dummy({room, height});
  register_item(id, "graph", std::to_string(graph.model.boxes.size()));
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(min, {min.x + room, min.y + height}, p.window, px(6));
  const ImVec2 at{min.x + (room - graph.layout.width * k) / 2, min.y + pad};
  draw_routes(graph, list, at, k);
  ImFont* font = theme().small;
  const float size = std::max(px(8), std::min(font->FontSize, kBoxHeight * k * 0.62f));
  for (size_t b = 0; b < graph.model.boxes.size(); ++b) {
    const GraphBox& box = graph.model.boxes[b];
    const LayoutBox& place = graph.layout.node_boxes[b];
    const ImVec2 lo{at.x + place.x * k, at.y + place.y * k},
        hi{at.x + place.right() * k, at.y + place.bottom() * k};
    const bool input = box.node == kNone;
    const float rounding = input ? (hi.y - lo.y) / 2 : px(4);
    list->AddRectFilled(lo, hi, input ? mix(p.window, p.accent, 0.15f) : p.raised, rounding);
    list->AddRect(lo, hi, input ? mix(p.border, p.accent, 0.5f) : mix(p.border, phase_color(box.phase), 0.6f),
                  rounding);
    const std::string shown = fit_text(font, size, box.title, hi.x - lo.x - px(6));
    const ImVec2 text_size = font->CalcTextSizeA(size, FLT_MAX, 0, shown.c_str());
    list->AddText(font, size,
                  {std::round((lo.x + hi.x - text_size.x) / 2), std::round((lo.y + hi.y - text_size.y) / 2)},
                  p.text, shown.c_str());
  }
}

}  // namespace gradloom
