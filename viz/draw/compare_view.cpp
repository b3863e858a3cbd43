// The comparison of two configurations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/base/text.h"
#include "viz/draw/graph_canvas.h"
#include "viz/draw/views.h"
#include "viz/draw/widgets.h"
#include "viz/model/compare_table.h"
#include "viz/model/selection_sums.h"

namespace gradloom {
namespace {

struct VerdictLook {
  const char* symbol;
  const char* words;
  ImU32 color;
};

VerdictLook look_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster: return {"\u25b2", "B is faster", palette().good};
    case Verdict::slower: return {"\u25bc", "B is slower", palette().bad};
    case Verdict::same: return {"=", "No difference", palette().text_dim};
    case Verdict::unsure: return {"?", "Not decided", palette().warn};
  }
  return {"", "", palette().text};
}

// Pipelines are long: the usual ones have a word, others a count with the text as tooltip.
std::string passes_label(const std::string& passes) {
  if (passes.empty() || passes == "none") return "no passes";
  if (passes == default_pipeline().text()) return "default passes";
  const auto parsed = parse_pipeline(passes);
  return parsed.ok() ? fmt::format("{} of {} passes", parsed->passes.size(), all_passes().size())
                     : escaped(passes);
}

void sides(const Comparison& c, const RunSummary* a, const RunSummary* b) {
  const std::pair<const char*, const RunSummary*> rows[] = {{"A", a}, {"B", b}};
  for (const auto& [letter, run] : rows) {
    const bool first = letter[0] == 'A';
    badge(letter, first ? category_color(2) : category_color(0));
    ImGui::SameLine();
    const std::string name = escaped(first ? c.a : c.b);
    text(fit_text(theme().bold, theme().bold->FontSize, run ? fmt::format("Run {}", run->id) : name,
                  ImGui::GetContentRegionAvail().x * 0.55f),
         palette().text, theme().bold);
    tip(name);
    ImGui::SameLine();
    text(format_value(first ? c.a_step_ns : c.b_step_ns, Unit::kNs) + " per step", palette().text_dim);
    if (run) {
      ImGui::SameLine();
      if (!run->has_recipe()) {
        muted(run->kind_text());
        continue;
      }
      muted(fmt::format("peak {}, {} kernels, {}",
                        format_value(static_cast<double>(run->plan_peak_bytes), Unit::kBytes),
                        run->kernels_per_step, passes_label(run->passes)));
      tip(run->passes);
    }
  }
}

void verdict(const Comparison& c) {
  const VerdictLook look = look_of(c.verdict);
  text(fmt::format("{} {:.2f}\u00d7", look.symbol, c.ratio.value), look.color, theme().title);
  const std::string how =
      c.interleaved ? "The median of the ratios A / B of interleaved groups, each of blocks run side by "
                      "side. Not the ratio of the two medians below, which drift moves apart."
                    : "The time of A over that of B, each of its own run.";
  tip(how);
  register_item("compare.how", "how", how);
  ImGui::SameLine(0, px(14));
  ImGui::SetCursorPosY(ImGui::GetCursorPosY() + px(5));
  text(fmt::format("{}   [{:.3f}, {:.3f}] at 95 %", look.words, c.ratio.low, c.ratio.high), palette().text);
  register_item("compare.verdict", look.words, verdict_name(c.verdict));
  // Twice as fast and twice as slow are equally far from no difference.
  const double further = std::max({c.ratio.high, 1 / std::max(c.ratio.low, 1e-6), 1.05});
  const double reach = std::isfinite(further) ? std::pow(further, 1.25) : 10;
  interval_bar("compare.ratio", c.ratio, 1.0, {1 / reach, reach, true, Unit::kPlain}, px(34), look.color);
  std::string detail = c.interleaved ? fmt::format(
                                           "{} ABBA groups of {}-step blocks, {} steps per side, {:.1f} s; A "
                                           "against A shows \u00b1{}",
                                           c.groups, c.block_steps, c.steps, c.seconds, percent_text(c.noise))
                                     : "stored runs, not interleaved: drift between them is not removed";
  muted(detail);
  if (!c.note.empty()) tip(c.note);
  spacer(2);
  const bool equal = c.first_different_step == 0;
  const std::string loss =
      !c.has_losses()                     ? "not compared: no step has one in both"
      : std::isnan(c.max_loss_difference) ? "\u2717 NaN on one side only"
      : equal                             ? "\u2713 bit-equal in every step"
              : fmt::format("largest difference {:.3g} ({:.2g} relative), first in step {}",
                            c.max_loss_difference, c.max_relative_loss_difference, c.first_different_step);
  key_value("Loss", loss);
  register_item("compare.loss", "loss", loss);
}

// Of several rows of the table, by their places in its order.
void tell_sum(const std::vector<ComparedRow>& rows, const std::vector<int32_t>& order,
              const std::vector<int>& chosen, Actions& actions) {
  std::vector<const ComparedRow*> selected;
  for (const int row : chosen) selected.push_back(&rows[order[row]]);
  if (!selected.empty()) actions.selection_sum = compared_sum_text(selected);
}

}  // namespace

void draw_compare_view(const Comparison& c, const RunSummary* a, const RunSummary* b, CompareViewState& state,
                       Actions& actions) {
  verdict(c);
  spacer(4);
  sides(c, a, b);
  spacer(6);
  std::vector<std::string> tables{c.by_scope ? "Modules" : "Kernels", "Phases", "Scopes"};
  if (!c.streams.empty()) tables.emplace_back("Streams");  // of GPUs
  tables.emplace_back("How sure");
  const int last = static_cast<int>(tables.size()) - 1;
  state.table = std::min(state.table, last);
  if (segmented("compare.table", &state.table, tables)) {
    state.rows.selected = -1;
    state.rows.chosen.clear();
  }
  if (state.table == last) return draw_comparison_noise(c, state.noise);
  const std::vector<ComparedRow>& rows = state.table == 0   ? c.kernels
                                         : state.table == 1 ? c.phases
                                         : state.table == 2 ? c.scopes
                                                            : c.streams;
  double largest = 1;
  for (const ComparedRow& row : rows) largest = std::max(largest, std::abs(row.a_ns - row.b_ns));
  std::vector<int32_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  if (state.rows.sort_column >= 0)
    order = order_of_rows(rows, static_cast<CompareColumn>(state.rows.sort_column), state.rows.descending);
  TableRows table;
  table.has_own_order = true;  // largest change first
  table.count = static_cast<int>(rows.size());
  table.id = [&](int r) { return rows[order[r]].name; };
  table.value = [&](int r) { return fmt::format("{:.0f}", rows[order[r]].b_ns - rows[order[r]].a_ns); };
  table.key = [&](int r) { return rows[order[r]].name + "\n" + rows[order[r]].phase; };
  table.several = true;
  table.cell = [&](int r, int column) {
    const ComparedRow& row = rows[order[r]];
    const double change = row.b_ns - row.a_ns;
    const bool certain = row.p < 0.05;
    if (column == 0) name_cell(row.name);
    if (column == 1) text(row.phase, palette().text_dim);
    if (column == 2) number_cell(row.a_kernels > 0 ? format_value(row.a_ns, Unit::kNs) : "\u2013");
    if (column == 3) number_cell(row.b_kernels > 0 ? format_value(row.b_ns, Unit::kNs) : "\u2013");
    if (column == 4) {
      const std::string sign = std::abs(change) < 0.5 ? "" : change < 0 ? "\u25b2 " : "\u25bc ";
      cell_bar(std::abs(change) / largest,
               !certain     ? palette().text_faint
               : change < 0 ? palette().good
                            : palette().bad,
               sign + format_change(change, Unit::kNs));
    }
    if (column == 5) number_cell(fmt::format("{} \u2192 {}", row.a_kernels, row.b_kernels));
    if (column == 6)
      number_cell(row.p >= 1 ? "\u2013" : row.p < 0.001 ? "< 0.001" : fmt::format("{:.3f}", row.p));
  };
  const TableEvents events =
      draw_table("compare.rows",
                 {{"Name"},
                  {"Phase", 90, false, false, "", 3},
                  {"A", 90, true, false, "Time of one step in A", 1},
                  {"B", 90, true, false, "Time of one step in B", 1},
                  {"Change", 150, true, false, "B minus A"},
                  {"Kernels", 90, true, false, "Launched in a step of A \u2192 of B", 4},
                  {"p", 70, true, false, "Holm-adjusted; pale rows are not significant", 2}},
                 table, state.rows);
  tell_sum(rows, order, chosen_rows(state.rows, table), actions);
  if (events.sort_changed) state.rows.selected = -1;  // the selection is a place in the order
  const int chosen = events.opened >= 0 ? events.opened : events.clicked;
  if (chosen < 0 || state.table > 2) return;  // streams stand for no nodes
  actions.select_row = rows[order[chosen]];
  actions.show_graph = events.opened >= 0;
}

}  // namespace gradloom
