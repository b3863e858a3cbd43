#include "viz/draw/trend_view.h"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/text.h"
#include "viz/draw/graph_canvas.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

ImU32 change_color(const TrendChange& change) { return change.slower() ? palette().bad : palette().good; }

std::string ratio_text(double ratio) { return fmt::format("{:.2f}\u00d7 as long", ratio); }

std::string date_text(const std::string& utc) {  // "2026-11-23T14:05:01Z"
  std::string date = utc.substr(0, 16);
  std::replace(date.begin(), date.end(), 'T', ' ');
  return escaped(date);
}

double place(std::size_t run) { return static_cast<double>(run) + 1; }

void draw_levels(const Plot& plot, const std::vector<TrendLevel>& levels) {
  const Palette& p = palette();
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const TrendLevel& level = levels[i];
    const float x0 = plot.to_x(place(level.from) - 0.5), x1 = plot.to_x(place(level.to) - 0.5);
    const float y = plot.to_y(level.median_ns);
    plot.list->AddRectFilled({x0, plot.to_y(level.high_ns)}, {x1, plot.to_y(level.low_ns)},
                             with_alpha(p.accent, 0.14f));
    plot.list->AddLine({x0, y}, {x1, y}, p.accent, px(2));
    if (i > 0)
      plot.list->AddLine({x0, plot.to_y(levels[i - 1].median_ns)}, {x0, y}, with_alpha(p.accent, 0.6f),
                         px(1.2f));
    register_rect("trends.level." + std::to_string(i + 1), {x0, plot.to_y(level.high_ns)},
                  {x1, plot.to_y(level.low_ns)}, "level", duration_text(level.median_ns));
  }
}

// Above their band, where the line of the run before does not cross it; in a high one above the median, which is what they say.
void label_levels(const Plot& plot, const std::vector<TrendLevel>& levels) {
  for (const TrendLevel& level : levels) {
    const float x0 = plot.to_x(place(level.from) - 0.5), x1 = plot.to_x(place(level.to) - 0.5);
    const std::string said = duration_text(level.median_ns);
    const float width = theme().small->CalcTextSizeA(theme().small->FontSize, FLT_MAX, 0, said.c_str()).x;
    if (x1 - x0 < width + px(10)) continue;
    const float height = theme().small->FontSize + px(4), line = plot.to_y(level.median_ns),
                top = plot.to_y(level.high_ns);
    plot_label(plot, {x1 - width - px(6), (line - top > 2 * height ? line : top) - height}, palette().text,
               said);
  }
}

void draw_baselines(const Plot& plot, const Trend& trend, const std::vector<TrendBaseline>& baselines) {
  for (const TrendBaseline& b : baselines)
    plot_rule(plot, trend.runs[b.run].step_ns(), palette().warn,
              "baseline " + trend_run_text(trend.runs[b.run], trend.several_sessions()));
}

// Numbered as in the table below; the one under the mouse, or -1.
int draw_marks(const Plot& plot, const Trend& trend, int chosen) {
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  int hovered = -1;
  for (std::size_t i = 0; i < trend.changes.size(); ++i) {
    const TrendChange& change = trend.changes[i];
    const float x = plot.to_x(place(change.point.at) - 0.5), r = px(9);
    if (x < plot.min.x - r || x > plot.max.x + r) continue;
    const ImVec2 at{x, plot.min.y + r + px(2)};
    const ImU32 color = change_color(change);
    for (float y = at.y + r; y < plot.max.y; y += px(7))
      plot.list->AddLine({x, y}, {x, std::min(y + px(3.5f), plot.max.y)}, with_alpha(color, 0.7f), px(1));
    const bool over = plot.hovered && std::hypot(mouse.x - at.x, mouse.y - at.y) < r + px(2);
    if (over) hovered = static_cast<int>(i);
    plot.list->AddCircleFilled(at, r, color, 24);
    if (over || chosen == static_cast<int>(i))
      plot.list->AddCircle(at, r + px(2.5f), palette().text, 24, px(1.5f));
    const std::string number = std::to_string(i + 1);
    ImFont* font = theme().small;
    const ImVec2 size = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, number.c_str());
    plot.list->AddText(font, font->FontSize, {at.x - size.x / 2, at.y - size.y / 2}, ink_on(color),
                       number.c_str());
    plot_label(plot, {at.x + r + px(6), at.y - size.y / 2}, color, ratio_text(change.ratio()));
    register_rect("trends.mark." + number, {at.x - r, at.y - r}, {at.x + r, at.y + r}, number,
                  ratio_text(change.ratio()));
  }
  return hovered;
}

// The run under the mouse, or -1.
int draw_runs(const Plot& plot, const Trend& trend, const std::string& path, std::int64_t shown) {
  const Palette& p = palette();
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  int hovered = -1;
  float nearest = px(12);
  const float radius = px(trend.runs.size() > 300 ? 2.f : 3.4f);
  const bool several = trend.several_sessions();
  for (std::size_t i = 0; i < trend.runs.size(); ++i) {
    const TrendRun& run = trend.runs[i];
    const ImVec2 at{plot.to_x(place(i)), plot.to_y(run.step_ns())};
    if (at.x < plot.min.x - radius || at.x > plot.max.x + radius) continue;
    plot.list->AddCircleFilled(at, radius, p.text, 16);
    if (run.run.pinned) plot.list->AddCircle(at, radius + px(3), p.warn, 20, px(1.8f));
    if (run.run.id == shown && run.session == path)
      plot.list->AddCircle(at, radius + px(5.5f), p.accent, 20, px(1.8f));
    register_rect("trends.run." + std::to_string(i + 1), {at.x - radius, at.y - radius},
                  {at.x + radius, at.y + radius}, trend_run_text(run, several), duration_text(run.step_ns()));
    const float away = std::hypot(mouse.x - at.x, mouse.y - at.y);
    if (plot.hovered && away < nearest) nearest = away, hovered = static_cast<int>(i);
  }
  if (hovered >= 0) {
    const TrendRun& run = trend.runs[static_cast<std::size_t>(hovered)];
    plot.list->AddCircle({plot.to_x(place(static_cast<std::size_t>(hovered))), plot.to_y(run.step_ns())},
                         radius + px(3), p.text, 20, px(1.5f));
  }
  return hovered;
}

void run_card(const TrendRun& run, bool several) {
  ImGui::BeginTooltip();
  text(trend_run_text(run, several), palette().text, theme().bold);
  const auto line = [](const std::string& said) { text(said, palette().text_dim, theme().small); };
  line(fmt::format("{} a step, median of {}", duration_text(run.step_ns()),
                   plural_text(run.run.steps, "step")));
  line("began " + date_text(run.run.started_utc) + " UTC");
  if (run.run.plan_peak_bytes > 0)
    line("planned peak " + bytes_text(static_cast<double>(run.run.plan_peak_bytes)));
  if (run.run.pinned) line("pinned: a baseline");
  std::string tags;
  for (const std::string& tag : run.run.tags) tags += (tags.empty() ? "#" : " #") + escaped(tag);
  if (!tags.empty()) line(tags);
  if (!run.run.note.empty()) line(escaped(run.run.note));
  text("Click shows the run", palette().text_faint, theme().small);
  ImGui::EndTooltip();
}

void change_card(const TrendChange& change) {
  ImGui::BeginTooltip();
  text(fmt::format("{}: {} \u2192 {}", change.slower() ? "Slower" : "Faster",
                   duration_text(change.point.before), duration_text(change.point.after)),
       change_color(change), theme().bold);
  for (const std::vector<std::string>* what : {&change.settings, &change.machine})
    for (const std::string& line : *what) text(line, palette().text_dim, theme().small);
  ImGui::EndTooltip();
}

// The run that was clicked, or -1.
int draw_plot(const Trend& trend, const std::string& path, std::int64_t shown, ImVec2 size,
              TrendViewState& state) {
  double low = std::numeric_limits<double>::max(), high = 0;
  for (const TrendRun& run : trend.runs) {
    low = std::min(low, run.step_ns());
    high = std::max(high, run.step_ns());
  }
  const double room = std::max(high - low, 0.02 * high);  // above for the marks, below for names of baselines
  const Axis across{0.5, static_cast<double>(trend.runs.size()) + 0.5, false, Unit::kCount};
  const Axis up{std::max(0.0, low - 0.16 * room), high + 0.28 * room, false, Unit::kNs};
  const Plot plot = begin_plot("trends.plot", size, across, up, "run, oldest first", &state.view);
  draw_levels(plot, state.levels);
  draw_baselines(plot, trend, state.baselines);
  const int run = draw_runs(plot, trend, path, shown);
  label_levels(plot, state.levels);
  const int mark = draw_marks(plot, trend, state.change);
  end_plot(plot);
  const bool clicked = ImGui::IsMouseReleased(0) && !ImGui::IsMouseDragPastThreshold(0);
  if (mark >= 0) {
    change_card(trend.changes[static_cast<std::size_t>(mark)]);
    if (clicked) state.change = mark;
    return -1;
  }
  if (run >= 0) run_card(trend.runs[static_cast<std::size_t>(run)], trend.several_sessions());
  return clicked ? run : -1;
}

void summary(const Trend& trend, const TrendViewState& state) {
  const TrendLevel& newest = state.levels.back();
  figure("trends.count", "Runs", std::to_string(trend.runs.size()), palette().text, true);
  figure("trends.newest", "Newest level",
         fmt::format("{} [{}, {}]", duration_text(newest.median_ns), duration_text(newest.low_ns),
                     duration_text(newest.high_ns)),
         palette().text, false);
  if (trend.changes.empty())
    figure("trends.last", "Changes of level", "none", palette().good, false);
  else
    figure("trends.last", "Last change",
           std::string(trend.changes.back().slower() ? "slower, " : "faster, ") +
               ratio_text(trend.changes.back().ratio()),
           change_color(trend.changes.back()), false);
  for (const TrendBaseline& b : state.baselines)
    figure("trends.baseline." + std::to_string(b.run + 1),
           "Against " + trend_run_text(trend.runs[b.run], trend.several_sessions()), ratio_text(b.ratio),
           b.ratio > 1.02   ? palette().bad
           : b.ratio < 0.98 ? palette().good
                            : palette().text,
           false);
}

// The run that began the change that was opened, or -1.
int draw_changes(const Trend& trend, TrendViewState& state, float height) {
  TableRows rows;
  rows.sortable = false;
  rows.count = static_cast<int>(trend.changes.size());
  rows.id = [](int r) { return std::to_string(r + 1); };
  rows.value = [&](int r) {
    const TrendChange& c = trend.changes[static_cast<std::size_t>(r)];
    return std::string(c.slower() ? "SLOWER " : "FASTER ") + ratio_text(c.ratio());
  };
  rows.cell = [&](int r, int c) {
    const TrendChange& change = trend.changes[static_cast<std::size_t>(r)];
    const TrendRun& run = trend.runs[change.point.at];
    if (c == 0) text(std::to_string(r + 1), change_color(change));
    if (c == 1) name_cell(trend_run_text(run, trend.several_sessions()));
    if (c == 2) text(date_text(run.run.started_utc), palette().text_dim);
    if (c == 3)
      number_cell(duration_text(change.point.before) + " \u2192 " + duration_text(change.point.after));
    if (c == 4)
      text((change.slower() ? "\u25b2 " : "\u25bc ") + ratio_text(change.ratio()), change_color(change));
    if (c == 5) number_cell(fmt::format("{:.4f}", change.point.p));
    if (c == 6) {
      const std::string cause = trend_cause_text(change);
      text(fit_text(theme().ui, theme().ui->FontSize, cause.empty() ? "nothing that is recorded" : cause,
                    ImGui::GetContentRegionAvail().x),
           cause.empty() ? palette().text_faint : palette().text);
      tip(cause);
    }
  };
  state.changes.selected = state.change;
  const TableEvents events =
      draw_table("trends.changes",
                 {{"#", 20},
                  {"Since", 110},
                  {"Began (UTC)", 124, false, false, "", 3},
                  {"Step", 150, true, false, "median of the level before and of the one since", 1},
                  {"Change", 110},
                  {"p", 58, true, false, "how often so large a change comes up by chance", 4},
                  {"What changed"}},
                 rows, state.changes, height);
  if (events.clicked >= 0) state.change = events.clicked;
  if (events.opened < 0) return -1;
  return static_cast<int>(trend.changes[static_cast<std::size_t>(events.opened)].point.at);
}

// What changed with a change, line by line, and the kernels that account for it.
void draw_causes(const TrendChange& change, TrendViewState& state, Actions& actions) {
  const auto lines = [](const char* kind, const std::vector<std::string>& all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      muted(kind);
      ImGui::SameLine(px(70));
      text(fit_text(theme().small, theme().small->FontSize, all[i], ImGui::GetContentRegionAvail().x),
           palette().text, theme().small);
      register_item(std::string("trends.") + kind + "." + std::to_string(i + 1), kind, all[i]);
      tip(all[i]);
    }
  };
  lines("setting", change.settings);
  lines("machine", change.machine);
  const std::vector<TrendKernel> kernels = causing_kernels(change);
  if (kernels.empty())
    return muted("No kernels are told: runs beside the change have no times of kernels (--profile sampled).");
  double most = 1;
  for (const TrendKernel& k : kernels) most = std::max(most, std::abs(k.change_ns()));
  TableRows rows;
  rows.sortable = false;
  rows.count = static_cast<int>(kernels.size());
  rows.id = [&](int r) { return kernels[static_cast<std::size_t>(r)].node; };
  rows.value = [&](int r) {
    return format_change(kernels[static_cast<std::size_t>(r)].change_ns(), Unit::kNs);
  };
  rows.cell = [&](int r, int c) {
    const TrendKernel& k = kernels[static_cast<std::size_t>(r)];
    if (c == 0) name_cell(k.node);
    if (c == 1 && !k.phase.empty()) badge(k.phase, phase_color(k.phase));
    if (c == 2) number_cell(k.before_ns > 0 ? duration_text(k.before_ns) : "-");
    if (c == 3) number_cell(k.after_ns > 0 ? duration_text(k.after_ns) : "-");
    if (c == 4)
      cell_bar(std::abs(k.change_ns()) / most, k.change_ns() < 0 ? palette().good : palette().bad,
               format_change(k.change_ns(), Unit::kNs));
  };
  const TableEvents events =
      draw_table("trends.kernels",
                 {{"Kernel that accounts for it"},
                  {"Phase", 90, false, false, "", 2},
                  {"Before", 90, true, false, "mean of up to three runs", 1},
                  {"After", 90, true, false, "mean of up to three runs"},
                  {"Change", 130, true}},
                 rows, state.kernels, std::max(px(90), ImGui::GetContentRegionAvail().y));
  if (events.hovered >= 0) actions.hover_node = kernels[static_cast<std::size_t>(events.hovered)].node;
  if (events.clicked >= 0) {
    actions.go_to_node = kernels[static_cast<std::size_t>(events.clicked)].node;
    actions.show_node_panel = true;
  }
}

}  // namespace

int draw_trend_view(const Trend& trend, const std::string& path, std::int64_t shown, TrendViewState& state,
                    Actions& actions) {
  if (state.of != &trend) {
    state.of = &trend;
    state.view = {};
    state.kernels.selected = -1;
    state.change = static_cast<int>(trend.changes.size()) - 1;
    state.levels = trend_levels(trend);
    state.baselines = trend_baselines(trend);
  }
  summary(trend, state);
  spacer(2);
  const ImVec2 space = ImGui::GetContentRegionAvail();
  const bool changes = !trend.changes.empty();
  const float height = changes ? std::max(px(150), space.y * 0.48f) : space.y - px(4);
  const int clicked = draw_plot(trend, path, shown, {space.x, height}, state);
  if (!changes) return clicked;
  const float row = ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y;
  const float wanted = row * (static_cast<float>(std::min<std::size_t>(trend.changes.size(), 4)) + 1.3f);
  const int opened =
      draw_changes(trend, state, std::min(wanted, std::max(px(60), ImGui::GetContentRegionAvail().y * 0.5f)));
  spacer(4);
  if (state.change >= 0) draw_causes(trend.changes[static_cast<std::size_t>(state.change)], state, actions);
  return std::max(clicked, opened);
}

}  // namespace gradloom
