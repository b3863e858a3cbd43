#include "viz/draw/plots.h"

#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "viz/draw/items.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

void small_text(ImDrawList* list, ImVec2 at, ImU32 color, const std::string& s) {
  ImFont* font = theme().small;
  list->AddText(font, font->FontSize, {std::round(at.x), std::round(at.y)}, color, s.c_str());
}

ImVec2 small_size(const std::string& s) {
  ImFont* font = theme().small;
  return font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, s.c_str());
}

std::vector<Tick> y_ticks_of(const Axis& y, float height) {
  return ticks(y, std::max(2, static_cast<int>(height / px(34))));
}

void zoom_view(PlotView& view, const Axis& full, const ImVec2& min, const ImVec2& max) {
  const ImGuiIO& io = ImGui::GetIO();
  const double width = max.x - min.x;
  const double factor = io.MouseWheel != 0 ? std::pow(0.8, io.MouseWheel) : 1;
  const double pan = ImGui::IsMouseDragging(1, 0) ? -io.MouseDelta.x / width : 0;
  plot_move(view, full, (io.MousePos.x - min.x) / width, factor, pan);
  if (ImGui::IsMouseDoubleClicked(0)) view = {};
}

}  // namespace

void plot_move(PlotView& view, const Axis& full, double t, double factor, double pan) {
  // In the axis' own fractions, so that of a logarithmic one the value under the mouse stays there, too.
  double low = view.zoomed() ? full.to_fraction(view.min) : 0,
         high = view.zoomed() ? full.to_fraction(view.max) : 1;
  const double at = low + (high - low) * t, shift = pan * (high - low);
  low = at - (at - low) * factor + shift;
  high = at + (high - at) * factor + shift;
  const double span = std::max(high - low, 1e-6);
  low = std::clamp(low, 0.0, std::max(0.0, 1 - span));
  high = std::min(1.0, low + span);
  view = span >= 0.999 ? PlotView() : PlotView{full.from_fraction(low), full.from_fraction(high)};
}

float y_labels_width(const Axis& y, float height) {
  float width = px(20);
  for (const Tick& t : y_ticks_of(y, height)) width = std::max(width, small_size(t.label).x);
  return width;
}

Plot begin_plot(std::string_view id, ImVec2 size, Axis x, Axis y, std::string_view x_title, PlotView* view,
                float labels) {
  const Palette& p = palette();
  const std::string name(id);
  Plot plot;
  plot.list = ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  size.x = std::max(size.x, px(80));
  size.y = std::max(size.y, px(60));
  const float label_width = std::max(labels, y_labels_width(y, size.y));
  plot.min = {std::round(at.x + label_width + px(8)), at.y + px(6)};
  plot.max = {std::round(at.x + size.x - px(8)), at.y + size.y - px(22)};
  ImGui::InvisibleButton(name.c_str(), size,
                         ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight);
  register_rect(id, ImGui::GetItemRectMin(), ImGui::GetItemRectMax(), x_title);
  plot.hovered = ImGui::IsItemHovered() && ImGui::IsMouseHoveringRect(plot.min, plot.max);
  if (view && (plot.hovered || ImGui::IsItemActive())) {
    zoom_view(*view, x, plot.min, plot.max);
    if (plot.hovered) ImGui::SetItemUsingMouseWheel();
  }
  if (view && view->zoomed()) x.min = view->min, x.max = view->max;
  plot.x = x;
  plot.y = y;
  // Lines at whole pixels: ImGui::AddLine adds the half that is to their middle.
  for (const Tick& t : y_ticks_of(y, size.y)) {
    const float ty = std::round(plot.to_y(t.value));
    plot.list->AddLine({plot.min.x, ty}, {plot.max.x, ty}, p.grid);
    const ImVec2 s = small_size(t.label);
    small_text(plot.list, {plot.min.x - px(8) - s.x, ty - s.y / 2}, p.text_faint, t.label);
  }
  const float title_width = x_title.empty() ? 0 : small_size(std::string(x_title)).x + px(12);
  for (const Tick& t : ticks(x, std::max(2, static_cast<int>(size.x / px(90))))) {
    const float tx = std::round(plot.to_x(t.value));
    const ImVec2 s = small_size(t.label);
    plot.list->AddLine({tx, plot.max.y}, {tx, plot.max.y + px(3)}, p.border);
    if (tx + s.x / 2 > plot.max.x - title_width) continue;
    small_text(plot.list, {std::max(plot.min.x, tx - s.x / 2), plot.max.y + px(5)}, p.text_faint, t.label);
  }
  if (!x_title.empty()) {
    small_text(plot.list, {plot.max.x - title_width + px(12), plot.max.y + px(5)}, p.text_dim,
               std::string(x_title));
  }
  const float ground = std::round(plot.max.y);
  plot.list->AddLine({plot.min.x, ground}, {plot.max.x, ground}, p.border);
  plot.list->PushClipRect({plot.min.x, plot.min.y - px(4)}, {plot.max.x + px(4), plot.max.y + 1}, true);
  return plot;
}

void end_plot(const Plot& plot) { plot.list->PopClipRect(); }

void plot_line(const Plot& plot, const std::vector<double>& x, const std::vector<double>& y, ImU32 color,
               float thickness, bool fill) {
  const size_t n = std::min(x.size(), y.size());
  if (n == 0) return;
  const auto begin = std::lower_bound(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n), plot.x.min);
  const auto end = std::upper_bound(begin, x.begin() + static_cast<std::ptrdiff_t>(n), plot.x.max);
  const auto first = static_cast<uint32_t>(std::max<std::ptrdiff_t>(0, begin - x.begin() - 1));
  const auto last =
      static_cast<uint32_t>(std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(n), end - x.begin() + 1));
  std::vector<ImVec2> points;
  auto flush = [&] {
    if (points.size() == 1) plot.list->AddCircleFilled(points[0], px(2.5f), color);
    if (fill) {
      const ImDrawListFlags flags =
          plot.list->Flags;  // anti-aliased edges between the quads would show as seams
      plot.list->Flags &= ~ImDrawListFlags_AntiAliasedFill;
      for (size_t i = 0; i + 1 < points.size(); ++i) {
        plot.list->AddQuadFilled(points[i], points[i + 1], {points[i + 1].x, plot.max.y},
                                 {points[i].x, plot.max.y}, with_alpha(color, 0.12f));
      }
      plot.list->Flags = flags;
    }
    plot.list->AddPolyline(points.data(), static_cast<int>(points.size()), color, 0, px(thickness));
    points.clear();
  };
  for (uint32_t i : decimate(y, first, last, static_cast<uint32_t>(std::max(1.f, plot.max.x - plot.min.x)))) {
    if (std::isfinite(y[i])) {
      points.emplace_back(plot.to_x(x[i]), plot.to_y(y[i]));
    } else {
      flush();  // a gap where a value is missing
    }
  }
  flush();
}

void plot_steps(const Plot& plot, const std::vector<double>& x, const std::vector<double>& y, ImU32 color,
                float fill_alpha) {
  ImVec2 previous{};
  const ImU32 fill = with_alpha(color, fill_alpha);
  float column = -1,
        highest = plot.max.y;  // steps narrower than a pixel are drawn as the highest of the pixel
  for (size_t i = 0; i < y.size() && i + 1 < x.size(); ++i) {
    const float x0 = std::max(plot.to_x(x[i]), plot.min.x), x1 = std::min(plot.to_x(x[i + 1]), plot.max.x);
    if (x1 < plot.min.x || x0 > plot.max.x) continue;
    const float yy = plot.to_y(y[i]);
    if (x1 - x0 < 1 && std::floor(x0) == column && i + 1 < y.size()) {
      highest = std::min(highest, yy);
      continue;
    }
    const float top = std::floor(x0) == column ? std::min(highest, yy) : yy;
    plot.list->AddRectFilled({x0, top}, {std::max(x1, x0 + 1), plot.max.y}, fill);
    if (previous.x > 0) plot.list->AddLine(previous, {x0, top}, color, px(1.2f));
    plot.list->AddLine({x0, top}, {x1, top}, color, px(1.2f));
    previous = {x1, top};
    column = std::floor(x0);
    highest = top;
  }
}

void plot_marker(const Plot& plot, double x, double y, ImU32 color, std::string_view label) {
  const ImVec2 at{plot.to_x(x), plot.to_y(y)};
  plot.list->AddCircleFilled(at, px(4), color, 16);
  plot.list->AddCircle(at, px(6.5f), with_alpha(color, 0.5f), 20, px(1.2f));
  const std::string s(label);
  const ImVec2 size = small_size(s);
  float left = at.x + px(10);
  if (left + size.x > plot.max.x) left = at.x - px(10) - size.x;
  const float top = std::clamp(at.y - size.y / 2, plot.min.y, plot.max.y - size.y);
  plot.list->AddRectFilled({left - px(4), top - px(1)}, {left + size.x + px(4), top + size.y + px(2)},
                           with_alpha(palette().panel, 0.85f), px(4));
  small_text(plot.list, {left, top}, palette().text, s);
}

void plot_label(const Plot& plot, ImVec2 at, ImU32 color, std::string_view label) {
  const std::string s(label);
  const ImVec2 size = small_size(s);
  at.x = std::clamp(at.x, plot.min.x + px(4), std::max(plot.min.x + px(4), plot.max.x - size.x - px(4)));
  at.y = std::clamp(at.y, plot.min.y, std::max(plot.min.y, plot.max.y - size.y));
  plot.list->AddRectFilled({at.x - px(3), at.y}, {at.x + size.x + px(3), at.y + size.y},
                           with_alpha(palette().panel, 0.8f), px(2));
  small_text(plot.list, at, color, s);
}

void plot_rule(const Plot& plot, double y, ImU32 color, std::string_view label, bool left) {
  const float yy = std::round(plot.to_y(y));
  for (float x = plot.min.x; x < plot.max.x; x += px(8)) {
    plot.list->AddLine({x, yy}, {std::min(x + px(4), plot.max.x), yy}, color, px(1.2f));
  }
  const std::string s(label);
  const ImVec2 size = small_size(s);
  const float at = left ? plot.min.x + px(4) : plot.max.x - size.x - px(4);
  small_text(plot.list, {at, yy - size.y - px(2)}, color, s);
}

int plot_hover(const Plot& plot, const std::vector<double>& x, const std::vector<double>& y, ImU32 color) {
  const size_t n = std::min(x.size(), y.size());
  if (!plot.hovered || n == 0) return -1;
  const double at = plot.value_x(ImGui::GetIO().MousePos.x);
  auto i = static_cast<size_t>(std::lower_bound(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n), at) -
                               x.begin());
  if (i == n || (i > 0 && at - x[i - 1] < x[i] - at)) --i;
  const float sx = std::round(plot.to_x(x[i]));
  plot.list->AddLine({sx, plot.min.y}, {sx, plot.max.y}, with_alpha(palette().text_faint, 0.6f));
  if (std::isfinite(y[i])) {
    plot.list->AddCircleFilled({sx, plot.to_y(y[i])}, px(4), palette().panel, 16);
    plot.list->AddCircleFilled({sx, plot.to_y(y[i])}, px(3), color, 16);
  }
  return static_cast<int>(i);
}

void interval_bar(std::string_view id, const Interval& interval, double reference, const Axis& axis,
                  float height, ImU32 color) {
  const Palette& p = palette();
  const ImVec2 min = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, bar = height - theme().small->FontSize,
              middle = std::round(min.y + bar / 2) + 0.5f;
  ImGui::Dummy({width, height});
  register_item(id, {}, format_value(interval.value, axis.unit));
  ImDrawList* list = ImGui::GetWindowDrawList();
  // Of an interval without an end, as a comparison that was stopped early has, the end is that of the bar.
  auto at = [&](double v) {
    const double fraction = axis.to_fraction(v);
    const double part = std::isnan(fraction) ? (v < reference ? 0.0 : 1.0) : std::clamp(fraction, 0.0, 1.0);
    return min.x + static_cast<float>(part) * width;
  };
  list->AddLine({min.x, middle}, {min.x + width, middle}, p.grid);
  list->AddLine({at(reference), min.y}, {at(reference), min.y + bar}, p.text_faint, px(1));
  std::vector<Tick> marks{{reference, format_value(reference, axis.unit)}};
  if (axis.min > 0 && std::isfinite(axis.max))
    for (Tick& tick : ticks(axis, std::max(3, static_cast<int>(width / px(90)))))
      marks.push_back(std::move(tick));
  std::vector<std::pair<float, float>> taken;
  std::string said;
  for (const Tick& mark : marks) {
    const std::string label = mark.label + "\u00d7";
    const float wide = small_size(label).x, x = at(mark.value),
                left = std::clamp(x - wide / 2, min.x, std::max(min.x, min.x + width - wide));
    const bool free = std::all_of(taken.begin(), taken.end(), [&](const auto& other) {
      return left > other.second + px(8) || left + wide + px(8) < other.first;
    });
    if (!free) continue;
    taken.emplace_back(left, left + wide);
    list->AddLine({x, middle}, {x, middle + px(4)}, p.text_faint, px(1));
    small_text(list, {left, min.y + bar}, p.text_faint, label);
    said += (said.empty() ? "" : " ") + label;
  }
  register_rect(std::string(id) + ".axis", {min.x, min.y + bar}, {min.x + width, min.y + height}, "axis",
                said);
  const float cap = bar * 0.3f;
  list->AddRectFilled({at(interval.low), middle - cap},
                      {std::max(at(interval.high), at(interval.low) + px(2)), middle + cap},
                      with_alpha(color, 0.35f), px(2));
  list->AddCircleFilled({at(interval.value), middle}, std::min(px(4.5f), bar * 0.4f), color, 16);
}

void cell_bar(double fraction, ImU32 color, std::string_view label) {
  const ImVec2 min = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, height = ImGui::GetTextLineHeight();
  const float bar = width * static_cast<float>(std::clamp(fraction, 0.0, 1.0));
  if (bar >= 1) {
    ImGui::GetWindowDrawList()->AddRectFilled({min.x + width - bar, min.y}, {min.x + width, min.y + height},
                                              with_alpha(color, 0.24f), px(3));
  }
  right_text(label, width - px(4));
}

}  // namespace gradloom
