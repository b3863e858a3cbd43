// A search of tune: its configurations as dots with the front as a line, as a table, and the waterfall of passes.
#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/text.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/views.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

constexpr float kNear = 14;  // points from a dot in which the mouse is over it

std::string name_of(const TuneTableRow& row) { return row.is_job() ? "the job" : escaped(row.label); }

std::string speed_text(const TuneTableRow& row) {
  if (row.is_job()) return "1";
  return fmt::format("{:.3f}\u00d7 [{:.3f}, {:.3f}]", row.ratio.value, row.ratio.low, row.ratio.high);
}

std::string bytes_of(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

// "-12.5 % of the job's"
std::string change_text(double value, double of) {
  return value == of || of <= 0 ? "as the job's"
                                : fmt::format("{:+.1f} % of the job's", 100 * (value / of - 1));
}

// A dot of the plot: time of a step of the job's samples by the plan's peak.
struct Dot {
  double bytes = 0, ns = 0, low_ns = 0, high_ns = 0;
  bool measured = false;
};

Dot dot_of(const TuneTableRow& row, double job_ns) {
  Dot dot{static_cast<double>(row.peak_bytes)};
  dot.measured = row.measured();
  const double speed = row.measured() ? row.ratio.value : row.predicted;
  if (row.round < 0 || speed <= 0) return {};
  dot.ns = dot.low_ns = dot.high_ns = job_ns / speed;
  if (row.measured() && row.ratio.low > 0) {
    dot.low_ns = job_ns / row.ratio.high;
    dot.high_ns = job_ns / row.ratio.low;
  }
  return dot;
}

void card(const TuneTableRow& row, const TuneTableRow& job) {
  ImGui::BeginTooltip();
  ImGui::PushTextWrapPos(ImGui::GetFontSize() * 28);
  text(name_of(row), palette().text, theme().bold);
  const auto line = [](const std::string& said) { text(said, palette().text_dim, theme().small); };
  if (row.measured()) {
    line(row.is_job() ? duration_text(row.step_ns) + " per step: what all others are measured against"
                      : fmt::format("{} per step, {} as fast as the job", duration_text(row.step_ns),
                                    speed_text(row)));
  } else {
    line("not measured yet");
  }
  if (row.predicted > 0) line(fmt::format("predicted {:.3f}\u00d7", row.predicted));
  line(fmt::format("peak {}, {}", bytes_of(row.peak_bytes),
                   change_text(static_cast<double>(row.peak_bytes), static_cast<double>(job.peak_bytes))));
  line(row.error >= 0 ? "gradients off by " + format_error(row.error) + " at most, against f64"
                      : "error of the gradients: told of the front when the search ends");
  if (!row.is_job() && row.measured())
    line(fmt::format("measured {}", row.round == 1 ? "once" : fmt::format("in {} rounds", row.round)));
  if (row.on_front) line("on the front: nothing is both faster and smaller");
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

void draw_front_lines(const TuneTable& table, const Plot& plot, double job_ns) {
  for (const auto& [precision, rows] : table.front()) {
    std::vector<ImVec2> points;
    for (const std::int32_t i : rows) {
      const Dot dot = dot_of(table.rows()[static_cast<std::size_t>(i)], job_ns);
      const ImVec2 at{plot.to_x(dot.bytes), plot.to_y(dot.ns)};
      if (!points.empty()) points.push_back({at.x, points.back().y});  // no dot lies below the steps
      points.push_back(at);
    }
    if (points.empty()) continue;
    points.push_back({plot.max.x, points.back().y});
    points.insert(points.begin(), {points.front().x, plot.min.y});
    plot.list->AddPolyline(points.data(), static_cast<int>(points.size()), with_alpha(palette().accent, 0.7f),
                           0, px(1.6f));
    if (precision.empty()) continue;
    ImFont* font = theme().small;
    plot.list->AddText(font, font->FontSize, {points[1].x + px(6), points[1].y - px(16)}, palette().accent,
                       precision.c_str());
  }
}

void draw_dot(const Plot& plot, const TuneTableRow& row, const Dot& dot, bool pinned) {
  const Palette& p = palette();
  const ImVec2 at{plot.to_x(dot.bytes), plot.to_y(dot.ns)};
  if (!dot.measured) {
    plot.list->AddCircle(at, px(3), with_alpha(p.text_faint, 0.7f), 12, px(1));
    return;
  }
  const ImU32 color = row.is_job() ? p.text : row.on_front ? p.accent : p.text_dim;
  if (dot.high_ns > dot.low_ns)
    plot.list->AddLine({at.x, plot.to_y(dot.low_ns)}, {at.x, plot.to_y(dot.high_ns)}, with_alpha(color, 0.6f),
                       px(1.4f));
  plot.list->AddCircleFilled(at, px(row.on_front ? 4.5f : 3.2f), color, 16);
  if (pinned) plot.list->AddCircle(at, px(7), p.warn, 20, px(1.5f));
}

}  // namespace

void draw_tune_front(const TuneTable& table, TuneViewState& state, ImVec2 size) {
  const TuneTableRow* const job = table.job();
  if (job == nullptr || job->step_ns <= 0) return;
  double low_x = std::numeric_limits<double>::max(), high_x = 0, low_y = low_x, high_y = 0;
  std::vector<Dot> dots;
  for (const TuneTableRow& row : table.rows()) {
    dots.push_back(dot_of(row, job->step_ns));
    const Dot& dot = dots.back();
    if (dot.ns <= 0) continue;
    low_x = std::min(low_x, dot.bytes);
    high_x = std::max(high_x, dot.bytes);
    low_y = std::min(low_y, dot.low_ns);
    high_y = std::max(high_y, dot.high_ns);
  }
  const Plot plot = begin_plot("tune.plot", size, Axis::fit(low_x, high_x, Unit::kBytes),
                               Axis::fit(low_y, high_y, Unit::kNs), "time of a step by planned peak memory");
  register_item("tune.plot", "front", std::to_string(table.measured()));
  draw_front_lines(table, plot, job->step_ns);
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  float nearest = px(kNear);
  int over = -1;
  for (std::size_t i = 0; i < dots.size(); ++i) {
    if (dots[i].ns <= 0) continue;
    const TuneTableRow& row = table.rows()[i];
    draw_dot(plot, row, dots[i], state.pinned.count(row.changes) != 0);
    const ImVec2 at{plot.to_x(dots[i].bytes), plot.to_y(dots[i].ns)};
    register_rect("tune.dot." + name_of(row), {at.x - px(4), at.y - px(4)}, {at.x + px(4), at.y + px(4)},
                  name_of(row),
                  row.on_front     ? "front"
                  : row.measured() ? "measured"
                                   : "predicted");
    const float away = std::hypot(mouse.x - at.x, mouse.y - at.y);
    if (plot.hovered && away < nearest) nearest = away, over = static_cast<int>(i);
  }
  for (std::size_t i = 0; i < dots.size(); ++i) {
    const TuneTableRow& row = table.rows()[i];
    const bool hovered = static_cast<int>(i) == over || state.hovered == row.changes;
    if (dots[i].ns <= 0 || (!hovered && state.selected != row.changes)) continue;
    plot.list->AddCircle({plot.to_x(dots[i].bytes), plot.to_y(dots[i].ns)}, px(hovered ? 9 : 7),
                         palette().text, 24, px(hovered ? 2.f : 1.5f));
  }
  const TuneTableRow* const best = table.best();
  const auto place = [&](const TuneTableRow& row) {
    return ImVec2{plot.to_x(static_cast<double>(row.peak_bytes)), plot.to_y(row.step_ns)};
  };
  // Where both are close together the label of what was found is the one that is read.
  const bool apart = best == nullptr || std::abs(place(*best).y - place(*job).y) > px(16) ||
                     std::abs(place(*best).x - place(*job).x) > px(80);
  if (apart) plot_marker(plot, static_cast<double>(job->peak_bytes), job->step_ns, palette().text, "the job");
  if (best != nullptr)
    plot_marker(plot, static_cast<double>(best->peak_bytes), best->step_ns, palette().good,
                fmt::format("{:.2f}\u00d7", best->ratio.value));
  end_plot(plot);
  state.hovered.reset();
  if (over < 0) return;
  const TuneTableRow& row = table.rows()[static_cast<std::size_t>(over)];
  state.hovered = row.changes;
  card(row, *job);
  if (!ImGui::IsMouseReleased(0)) return;
  state.selected = row.changes;
  state.table.scroll_to = -2;  // once the order of the rows is known
}

namespace {

void pin_cell(const TuneTableRow& row, TuneViewState& state, int place) {
  const bool on = state.pinned.count(row.changes) != 0;
  const std::string id = "tune.pin." + std::to_string(place);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float d = ImGui::GetTextLineHeight();
  ImGui::PushID(id.c_str());
  if (ImGui::InvisibleButton("pin", {d + px(4), d})) state.pin = row.changes;
  const bool hovered = ImGui::IsItemHovered();
  ImGui::PopID();
  register_item(id, "pin", on ? "on" : "off");
  focus_stop(id);
  tip(on ? "Pinned: it stays at the top. A click takes the pin away" : "Keep it at the top of the list");
  const char* const star = on ? "\u2605" : "\u2606";
  ImGui::GetWindowDrawList()->AddText({at.x + px(2), at.y}, on || hovered ? palette().warn : palette().border,
                                      star);
}

void row_cell(const TuneTableRow& row, TuneViewState& state, int place, TuneColumn column, double most) {
  const Palette& p = palette();
  switch (column) {
    case TuneColumn::kPin: pin_cell(row, state, place); break;
    case TuneColumn::kName:
      text(row.on_front     ? "\u25cf"
           : row.round < 0  ? "\u2717"
           : row.measured() ? "\u00b7"
                            : " ",
           row.round < 0 ? p.bad : p.accent);
      if (row.on_front) tip("On the front: nothing is both faster and smaller");
      ImGui::SameLine(0, px(6));
      text(fit_text(theme().ui, theme().ui->FontSize, name_of(row), ImGui::GetContentRegionAvail().x),
           row.measured() ? p.text : p.text_dim);
      tip(row.is_job() ? "What all others are measured against" : escaped(row.changes));
      break;
    case TuneColumn::kSpeed:
      if (row.round < 0) return text("cannot run", p.bad);
      if (!row.measured()) return text("not measured", p.text_faint);
      cell_bar(row.is_job() ? 0 : std::abs(std::log(row.ratio.value)) / most,
               row.ratio.low > 1    ? p.good
               : row.ratio.high < 1 ? p.bad
                                    : p.text_faint,
               speed_text(row));
      break;
    case TuneColumn::kPredicted:
      number_cell(row.predicted > 0 ? fmt::format("{:.3f}\u00d7", row.predicted) : "\u2013");
      break;
    case TuneColumn::kStep:
      number_cell(row.measured() && row.step_ns > 0 ? duration_text(row.step_ns) : "\u2013");
      break;
    case TuneColumn::kPeak: number_cell(bytes_of(row.peak_bytes)); break;
    case TuneColumn::kError: number_cell(row.error >= 0 ? format_error(row.error) : "\u2013"); break;
    case TuneColumn::kRound:
      number_cell(row.measured() && !row.is_job() ? std::to_string(row.round) : "\u2013");
      break;
  }
}

}  // namespace

void draw_tune_rows(const TuneTable& table, TuneViewState& state, float height) {
  const std::vector<std::int32_t> order =
      table.order(state.table.sort_column, state.table.descending, state.pinned);
  const auto row_at = [&](int r) -> const TuneTableRow& {
    return table.rows()[static_cast<std::size_t>(order[static_cast<std::size_t>(r)])];
  };
  // The selection is a configuration; the table knows places.
  state.table.selected = -1;
  for (int r = 0; r < static_cast<int>(order.size()); ++r)
    if (state.selected == row_at(r).changes) state.table.selected = r;
  if (state.table.scroll_to == -2) state.table.scroll_to = state.table.selected;
  double most = 0.05;
  for (const TuneTableRow& row : table.rows())
    if (row.measured() && row.ratio.value > 0) most = std::max(most, std::abs(std::log(row.ratio.value)));
  TableRows rows;
  rows.has_own_order = true;  // the fastest first
  rows.count = static_cast<int>(order.size());
  rows.id = [&](int r) { return name_of(row_at(r)); };
  rows.value = [&](int r) {
    return row_at(r).measured() ? fmt::format("{:.3f}", row_at(r).ratio.value) : std::string("-");
  };
  rows.cell = [&](int r, int c) {
    if (c == 0 && state.hovered == row_at(r).changes)
      ImGui::TableSetBgColor(ImGuiTableBgTarget_RowBg1, with_alpha(palette().accent, 0.25f));
    row_cell(row_at(r), state, r, static_cast<TuneColumn>(c), most);
  };
  const TableEvents events =
      draw_table("tune.rows",
                 {{"\u2605", 24, false, false, "Pinned rows stay at the top"},
                  {"Change"},
                  {"Speed", 190, true, false, "Time of the job / time of this, with its 95 % interval"},
                  {"Predicted", 82, true, false, "The same by the cost model, before it was measured", 3},
                  {"Step", 84, true, false, "Time of as many samples as the job's step takes", 1},
                  {"Peak", 84, true, false, "Memory that the plan takes at its peak"},
                  {"Error", 74, true, false,
                   "Largest relative error of a gradient against f64: of the front, at the end", 2},
                  {"Round", 60, true, false, "How often it was measured", 4}},
                 rows, state.table, height);
  if (events.clicked >= 0) state.selected = row_at(events.clicked).changes;
  if (events.hovered >= 0) state.hovered = row_at(events.hovered).changes;
}

namespace {

struct WaterfallLook {
  std::string name, amount;
  ImU32 color;
};

Unit unit_of(bool memory) { return memory ? Unit::kBytes : Unit::kNs; }

// "saves 1.2 ms [1.1, 1.3 ms]"
std::string saved_text(const WaterfallBar& bar, bool memory) {
  if (bar.saved() == 0 && bar.low == bar.high) return "nothing";
  const auto change = [&](double saved) { return format_change(-saved, unit_of(memory)); };
  if (bar.low == bar.high) return change(bar.saved());
  return change(bar.saved()) + "  [" + change(bar.low) + ", " + change(bar.high) + "]";
}

WaterfallLook look_of(const WaterfallBar& bar, bool memory) {
  const Palette& p = palette();
  switch (bar.kind) {
    case WaterfallBar::Kind::none: return {"no passes", format_value(bar.to, unit_of(memory)), p.text_dim};
    case WaterfallBar::Kind::all: return {"all passes", format_value(bar.to, unit_of(memory)), p.accent};
    case WaterfallBar::Kind::together: return {"together", saved_text(bar, memory), p.text_faint};
    case WaterfallBar::Kind::pass: break;
  }
  const bool sure = bar.low == bar.high ? bar.saved() != 0 : bar.low > 0 || bar.high < 0;
  return {bar.pass, saved_text(bar, memory), !sure ? p.text_faint : bar.saved() > 0 ? p.good : p.bad};
}

std::string bar_tip(const WaterfallBar& bar, bool alone) {
  switch (bar.kind) {
    case WaterfallBar::Kind::none: return "The job without any pass";
    case WaterfallBar::Kind::all: return "The job as it stands";
    case WaterfallBar::Kind::together:
      return "What is left over: passes that do part of one another's work count it twice, and some only gain "
             "with each other";
    case WaterfallBar::Kind::pass: break;
  }
  return alone ? "With it alone against no passes, measured interleaved. A click shows the pass"
               : "The job without it against the job, measured interleaved. A click shows the pass";
}

void waterfall_row(const WaterfallBar& bar, const Waterfall& all, WaterfallViewState& state) {
  const WaterfallLook look = look_of(bar, state.memory);
  const float width = ImGui::GetContentRegionAvail().x, height = ImGui::GetTextLineHeight() + px(6);
  const float name_width = std::min(px(190), width * 0.3f), amount_width = std::min(px(230), width * 0.36f);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const std::string id = "waterfall." + look.name;
  ImGui::PushID(id.c_str());
  if (ImGui::InvisibleButton("row", {width, height}) && bar.kind == WaterfallBar::Kind::pass)
    state.open_pass = bar.pass;
  const bool hovered = ImGui::IsItemHovered();
  ImGui::PopID();
  register_item(id, look.name, look.amount);
  focus_stop(id);
  tip(bar_tip(bar, state.alone));
  ImDrawList* list = ImGui::GetWindowDrawList();
  if (hovered)
    list->AddRectFilled(at, {at.x + width, at.y + height}, with_alpha(palette().hover, 0.7f), px(4));
  const float y = at.y + (height - ImGui::GetTextLineHeight()) / 2;
  const bool whole = bar.kind == WaterfallBar::Kind::none || bar.kind == WaterfallBar::Kind::all;
  ImFont* font = whole ? theme().bold : theme().ui;
  list->AddText(font, font->FontSize, {at.x + px(4), y}, palette().text,
                fit_text(font, font->FontSize, look.name, name_width - px(10)).c_str());
  const float left = at.x + name_width, room = width - name_width - amount_width - px(10);
  const auto x_of = [&](double value) {
    return left + room * static_cast<float>(std::clamp(value / all.most, 0.0, 1.0));
  };
  const float top = at.y + px(4), bottom = at.y + height - px(4), middle = (top + bottom) / 2;
  const float x0 = x_of(std::min(bar.from, bar.to)),
              x1 = std::max(x_of(std::max(bar.from, bar.to)), x0 + px(2));
  list->AddRectFilled({x0, top}, {x1, bottom}, mix(palette().panel, look.color, whole ? 0.55f : 0.8f), px(2));
  if (bar.low != bar.high) {
    // Of a pass: where its bar would end.
    const double near = whole ? bar.low : bar.from - bar.low, far = whole ? bar.high : bar.from - bar.high;
    list->AddLine({x_of(near), middle}, {x_of(far), middle}, palette().text, px(1.5f));
    for (const double end : {near, far})
      list->AddLine({x_of(end), middle - px(3)}, {x_of(end), middle + px(3)}, palette().text, px(1.5f));
  }
  const float amount = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, look.amount.c_str()).x;
  list->AddText(font, font->FontSize, {std::max(at.x + width - amount - px(4), left + room + px(8)), y},
                palette().text, fit_text(font, font->FontSize, look.amount, amount_width).c_str());
}

// Passes that have no bar: what they do is the same, or was not measured.
void tell_others(const WorthTable& table, bool alone) {
  std::string same, unknown;
  for (const PassWorth& p : table.passes) {
    const WorthSide& side = alone ? p.alone : p.among;
    if (side.measured()) continue;
    std::string& list = side.state == WorthSide::State::same ? same : unknown;
    list += (list.empty() ? "" : ", ") + p.pass;
  }
  const auto line = [](const std::string& said) {
    muted(fit_text(theme().small, theme().small->FontSize, said, ImGui::GetContentRegionAvail().x));
    tip(said);
  };
  if (!same.empty()) line("The same work with and without: " + same);
  if (!unknown.empty()) line("Not measured: " + unknown);
}

}  // namespace

void draw_waterfall(const WorthTable& table, WaterfallViewState& state) {
  int of = state.memory ? 1 : 0, side = state.alone ? 1 : 0;
  segmented("waterfall.of", &of, {"Time", "Memory"});
  ImGui::SameLine(0, px(10));
  segmented("waterfall.side", &side, {"Among the others", "Alone"});
  state.memory = of == 1;
  state.alone = side == 1;
  const Waterfall made = waterfall(table, state.alone, state.memory);
  spacer(2);
  muted(
      state.memory
          ? "Planned peak memory: exact, no interval"
          : "Time of a step. Lines: 95 % intervals; grey: the interval holds nothing gained and nothing lost");
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {px(8), px(1)});
  for (const WaterfallBar& bar : made.bars) waterfall_row(bar, made, state);
  ImGui::PopStyleVar();
  spacer(4);
  tell_others(table, state.alone);
}

}  // namespace gradloom
