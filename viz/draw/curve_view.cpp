#include "viz/draw/curve_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/text.h"
#include "viz/draw/items.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

constexpr size_t kMostLegendRows = 3;

float small_width_of(const std::string& s) {
  return theme().small->CalcTextSizeA(theme().small->FontSize, FLT_MAX, 0, s.c_str()).x;
}

// Where each curve's name and value stand: in rows from the left, each as wide as it can become.
struct CurveLegend {
  struct Entry {
    float x = 0, name_width = 0;
    size_t row = 0;
  };
  std::vector<Entry> entries;  // of the first curves; what is left is told as a number
  size_t rows = 1;
  float line = 0, value_width = 0;
  float height() const { return static_cast<float>(rows) * line + px(2); }
};

// A curve's number with its unit behind it.
std::string with_unit(std::string number, const char* unit) {
  return *unit == 0 ? number : std::move(number) + " " + unit;
}

CurveLegend legend_of(const std::vector<Curve>& curves, const char* unit, float width) {
  CurveLegend legend;
  legend.line = theme().small->FontSize + px(4);
  legend.value_width = small_width_of(with_unit("0.00000e-00", unit)) + px(16);
  const float more = small_width_of("+99 more");
  float x = 0;
  for (size_t i = 0; i < curves.size(); ++i) {
    CurveLegend::Entry entry;
    entry.name_width = std::min(small_width_of(escaped(curves[i].name)), std::max(px(24), width * 0.4f));
    const float wide = px(13) + entry.name_width + px(7) + legend.value_width;
    const bool last_row = legend.rows == kMostLegendRows, is_last = i + 1 == curves.size();
    if (x > 0 && x + wide + (last_row && !is_last ? more : 0) > width) {
      if (last_row) break;
      ++legend.rows;
      x = 0;
    }
    entry.x = x;
    entry.row = legend.rows - 1;
    x += wide;
    legend.entries.push_back(entry);
  }
  return legend;
}

void draw_legend_entry(const Curve& curve, size_t i, CurveOf of, const char* unit, double cursor,
                       const CurveLegend& legend, ImVec2 origin, float right) {
  const CurveLegend::Entry& entry = legend.entries[i];
  ImFont* font = theme().small;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 at{std::round(origin.x + entry.x),
                  std::round(origin.y + static_cast<float>(entry.row) * legend.line)};
  const float middle = std::round(at.y + font->FontSize / 2);
  list->AddRectFilled({at.x, middle - px(1.5f)}, {at.x + px(9), middle + px(1.5f)},
                      category_color(curve.place), px(1));
  register_rect(fmt::format("curve.colour.{}", i), at, {at.x + px(9), at.y + legend.line}, curve.name,
                std::to_string(curve.place));
  const std::string name = fit_text(font, font->FontSize, escaped(curve.name), entry.name_width + 1);
  list->AddText(font, font->FontSize, {at.x + px(13), at.y}, palette().text_dim, name.c_str());
  const int index = std::isnan(cursor) ? static_cast<int>(curve.steps.size()) - 1 : curve.at(cursor);
  const double value = index < 0 ? std::nan("") : curve.shown()[static_cast<size_t>(index)];
  const std::string said = with_unit(curve_value_text(of, value), unit);
  const float x = at.x + px(13) + entry.name_width + px(7);
  list->AddText(font, font->FontSize, {x, at.y}, palette().text,
                fit_text(font, font->FontSize, said, right - x).c_str());
  register_rect(fmt::format("curve.legend.{}", i), at, {x + legend.value_width, at.y + legend.line},
                curve.name, said);
}

struct CurveBounds {
  double low = std::numeric_limits<double>::infinity(), high = -low, least_positive = low, last = 1;
  bool any() const { return low <= high; }
};

CurveBounds bounds_of_curves(const std::vector<Curve>& curves) {
  CurveBounds b;
  for (const Curve& curve : curves) {
    for (const double value : curve.values) {
      if (!std::isfinite(value)) continue;
      b.low = std::min(b.low, value);
      b.high = std::max(b.high, value);
      if (value > 0) b.least_positive = std::min(b.least_positive, value);
    }
    if (!curve.empty()) b.last = std::max(b.last, curve.steps.back());
  }
  return b;
}

}  // namespace

void draw_curves(const std::vector<Curve>& curves, CurveOf of, const char* unit, double planned,
                 CurveViewState& state, float height) {
  const CurveKind& kind = curve_kind(of);
  const CurveBounds bounds = bounds_of_curves(curves);
  if (!bounds.any()) return empty_state(std::string("No ") + kind.title, "No step of these runs tells it.");
  const ImVec2 origin = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const CurveLegend legend = legend_of(curves, unit, width);
  ImGui::Dummy({width, legend.height()});
  const bool log = state.log && bounds.least_positive <= bounds.high;
  const Axis y = Axis::fit(log ? bounds.least_positive : bounds.low, bounds.high, kind.unit, log,
                           kind.from_zero && !log);
  const double last = std::max(planned, bounds.last);
  const float rest = std::max(px(60), height - legend.height() - ImGui::GetStyle().ItemSpacing.y);
  const Plot plot =
      begin_plot("curve.plot", {width, rest}, {0, last * 1.02, false, Unit::kCount}, y, "step", &state.view);
  double cursor = std::nan("");
  for (size_t i = 0; i < curves.size(); ++i) {
    const Curve& curve = curves[i];
    const ImU32 color = category_color(curve.place);
    if (!curve.smooth.empty()) plot_line(plot, curve.steps, curve.values, with_alpha(color, 0.3f), 1.f);
    plot_line(plot, curve.steps, curve.shown(), color, 1.7f, curves.size() == 1);
  }
  for (size_t i = 0; i < curves.size(); ++i) {
    const Curve& curve = curves[i];
    const int at = plot_hover(plot, curve.steps, curve.shown(), category_color(curve.place));
    if (at >= 0 && (std::isnan(cursor) || i == 0)) cursor = curve.steps[static_cast<size_t>(at)];
  }
  if (!std::isnan(cursor))
    plot_label(plot, {plot.to_x(cursor) + px(6), plot.min.y}, palette().text_dim,
               fmt::format("step {:.0f}", cursor));
  end_plot(plot);
  const float right = origin.x + width;
  for (size_t i = 0; i < legend.entries.size(); ++i)
    draw_legend_entry(curves[i], i, of, unit, cursor, legend, origin, right);
  if (const size_t left = curves.size() - legend.entries.size(); left > 0) {
    const std::string more = fmt::format("+{} more", left);
    ImGui::GetWindowDrawList()->AddText(
        theme().small, theme().small->FontSize,
        {right - small_width_of(more), origin.y + static_cast<float>(legend.rows - 1) * legend.line},
        palette().text_faint, more.c_str());
  }
}

}  // namespace gradloom
