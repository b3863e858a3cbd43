#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "viz/draw/graph_canvas.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/keys.h"
#include "viz/draw/views.h"
#include "viz/draw/widgets.h"
#include "viz/model/axis.h"
#include "viz/model/selection_sums.h"

namespace gradloom {
namespace {

// threads: the run tells how busy they were.
std::vector<TableColumn> columns(bool grouped, bool threads) {
  std::vector<TableColumn> all{
      {grouped ? "Group" : "Kernel", 0, false, false, grouped ? "" : "The node that the kernel computes"},
      {"Operator", 116, false, grouped, "", 4},
      {"Phase", 88, false, grouped, "", 3},
      {"Scope", 116, false, grouped, "", 6},
      {"Kernel type", 150, false, true, "", 7},
      {"Count", 56, true, !grouped, "Kernels per step", 5},
      {"Time / step", 84, true},
      {"Share", 96, true, false, "Of all kernels' time", 1},
      {"Median", 84, true, true, "Of one launch", 2},
      {"GB/s", 64, true, true, "", 8},
      {"GFLOP/s", 70, true, false, "", 5},
      {"Traffic", 84, true, !grouped, "Bytes read and written per step", 8},
      {"Work", 96, true, true, "", 8},
      {"Threads", 76, true, false, "How much of the CPU's threads' time in it they had parts of it", 6}};
  if (!threads) all.pop_back();
  return all;
}

std::string number_or_dash(double value) {
  return std::isnan(value) ? "\u2013" : fmt::format("{:.1f}", value);
}

void draw_cell(const KernelTableModel& model, const KernelLine& line, int column, double largest) {
  auto value = [](double v, Unit unit) {
    return std::isnan(v) ? std::string("\u2013") : format_value(v, unit);
  };
  const bool counted = line.flops > 0 || line.bytes > 0;  // not by other profilers
  switch (static_cast<KernelColumn>(column)) {
    case KernelColumn::kName: {
      const int scope = static_cast<int>(KernelColumn::kScope);
      const bool told = (ImGui::TableGetColumnFlags(scope) & ImGuiTableColumnFlags_IsEnabled) != 0;
      name_cell(told ? inside_scope(line.name, line.scope) : line.name);
      break;
    }
    case KernelColumn::kOp: text_cell(line.op, palette().text_dim); break;
    case KernelColumn::kPhase:
      if (!line.phase.empty()) badge(line.phase, phase_color(line.phase));
      break;
    case KernelColumn::kScope: name_cell(line.scope, palette().text_dim); break;
    case KernelColumn::kKernel: text_cell(line.kernel, palette().text_dim); break;
    case KernelColumn::kCount: number_cell(std::to_string(line.count)); break;
    case KernelColumn::kTime: number_cell(value(line.time_ns, Unit::kNs)); break;
    case KernelColumn::kShare:
      cell_bar(line.share / largest, palette().accent, model.timed() ? percent_text(line.share) : "\u2013");
      break;
    case KernelColumn::kMedian: number_cell(value(line.median_ns, Unit::kNs)); break;
    case KernelColumn::kBandwidth: number_cell(number_or_dash(counted ? line.bandwidth() : NAN)); break;
    case KernelColumn::kRate: number_cell(number_or_dash(counted ? line.rate() : NAN)); break;
    case KernelColumn::kBytes: number_cell(value(counted ? line.bytes : NAN, Unit::kBytes)); break;
    case KernelColumn::kFlops: number_cell(value(counted ? line.flops : NAN, Unit::kFlop)); break;
    case KernelColumn::kThreads:
      number_cell(line.told_ns > 0 ? percent_text(line.threads_busy()) : "\u2013");
      break;
  }
}

void toolbar(KernelTableModel& model, KernelTableState& state, Actions& actions) {
  std::string query = state.query_text;
  const float width = std::clamp(
      ImGui::GetContentRegionAvail().x - px(640) - saved_filters_width(state.filters), px(110), px(340));
  if (input_text("kernels.search", fit_hint("Filter", model.example(), width), &query, width))
    kernel_table_set_query(model, state, query);
  if (const auto chosen = draw_saved_filters("kernels.filters", state.query_text, state.filters))
    kernel_table_set_query(model, state, *chosen);
  flow(px(150), ImGui::GetStyle().ItemSpacing.x);
  int group = static_cast<int>(model.group());
  const std::vector<std::string> groups{"Kernels", "Operator", "Scope", "Phase", "Pass", "Type"};
  const bool narrow = ImGui::GetContentRegionAvail().x < px(430);  // sum and Copy have the rest
  if (narrow ? combo("kernels.group", &group, groups, 112) : segmented("kernels.group", &group, groups)) {
    model.set_group(static_cast<KernelGroup>(group));
    state.table.selected = -1;
    state.table.chosen.clear();
  }
  ImGui::SameLine(0, px(14));
  ImGui::AlignTextToFramePadding();
  const bool bad = !state.query_error.empty();
  std::string sum = fmt::format("{} kernels", model.shown_kernels());
  if (model.timed()) sum += ", " + format_value(model.shown_ns(), Unit::kNs);
  const float room = ImGui::GetContentRegionAvail().x - px(66);
  std::string said = bad ? "\u26a0 " + state.query_error : sum;
  if (!bad && model.timed()) {
    sum += " per step";
    if (ImGui::CalcTextSize(sum.c_str()).x <= room) said = sum;
  }
  text(fit_text(theme().ui, theme().ui->FontSize, said, room), bad ? palette().warn : palette().text_dim);
  register_item("kernels.sum", "sum", bad ? state.query_error : sum);
  ImGui::SameLine();
  if (button("kernels.copy", "Copy", ButtonKind::kGhost,
             "Copy the shown rows (" + key_label("app.copy") + ")")) {
    ImGui::SetClipboardText(model.to_text().c_str());
    actions.copied = fmt::format("{} rows", model.lines().size());
  }
}

// A row as --speed of what-if names it; empty: it has no word for it.
std::string speed_selector(const KernelTableModel& model, const KernelLine& line) {
  static constexpr const char* kKeys[] = {"node:", "op:", "scope:", "phase:", "", "kernel:"};
  const std::string key = line.row >= 0 ? "node:" : kKeys[static_cast<int>(model.group())];
  return key.empty() || line.name.empty() ? std::string() : key + line.name;
}

void context_menu(const KernelTableModel& model, const TableEvents& events, KernelTableState& state,
                  Actions& actions) {
  const int of = events.menu >= 0 ? events.menu : ImGui::IsMouseReleased(1) ? events.hovered : -1;
  if (of >= 0) {
    const KernelLine& line = model.lines()[static_cast<size_t>(of)];
    state.menu_name = line.name;
    state.menu_selector = speed_selector(model, line);
    ImGui::OpenPopup("kernels-menu");
    if (events.menu >= 0) menu_by_keys(events.menu_at);
  }
  if (!ImGui::BeginPopup("kernels-menu")) return;
  const bool node = state.menu_selector == "node:" + state.menu_name;
  if (node && selectable_row("kernels.menu.graph", "Show in the graph", false)) {
    actions.go_to_node = state.menu_name;
    actions.show_graph = true;
  }
  if (!state.menu_selector.empty() && selectable_row("kernels.menu.faster", kTwiceAsFast, false))
    actions.twice_as_fast = {state.menu_selector};
  if (node && selectable_row("kernels.menu.note", "Note\u2026", false)) actions.note_node = state.menu_name;
  if (selectable_row("kernels.menu.copy", "Copy name", false)) {
    ImGui::SetClipboardText(state.menu_name.c_str());
    actions.copied = state.menu_name;
  }
  ImGui::EndPopup();
}

}  // namespace

void kernel_table_set_query(KernelTableModel& model, KernelTableState& state, const std::string& query_text) {
  state.query_text = query_text;
  state.query_error.clear();
  state.table.selected = -1;
  auto query = Query::parse(query_text);
  if (query.ok()) {
    model.set_query(*query);
  } else {
    state.query_error = query.error().message;
  }
}

void draw_kernel_table(KernelTableModel& model, KernelTableState& state, Actions& actions) {
  if (!state.started) {
    state.started = true;
    state.table.sort_column = static_cast<int>(KernelColumn::kTime);
    model.set_sort(KernelColumn::kTime, true);
  }
  if (model.rows().empty())
    return empty_state("No kernels yet", "Open a model; its plan lists the kernels of one training step.");
  toolbar(model, state, actions);
  if (!model.timed()) muted("Times appear after a run (" + key_label("run.start") + ").");
  if (!state.wanted.empty()) {
    state.selected = state.wanted;
    state.table.chosen.clear();
    state.table.scroll_to = model.find_line(state.wanted);
    state.wanted.clear();
  }
  state.table.selected = model.find_line(state.selected);
  const bool grouped = model.group() != KernelGroup::kSingle;
  TableRows rows;
  rows.count = static_cast<int>(model.lines().size());
  double largest = 1e-9;
  for (const KernelLine& line : model.lines()) largest = std::max(largest, line.share);
  rows.cell = [&](int row, int column) { draw_cell(model, model.lines()[row], column, largest); };
  rows.id = [&](int row) { return model.lines()[row].name; };
  rows.value = [&](int row) { return format_value(model.lines()[row].time_ns, Unit::kNs); };
  rows.several = true;
  const TableEvents events = draw_table(grouped ? "kernel-groups" : "kernels",
                                        columns(grouped, model.tells_threads()), rows, state.table);
  if (events.sort_changed && state.table.sort_column >= 0) {
    model.set_sort(static_cast<KernelColumn>(state.table.sort_column), state.table.descending);
  }
  if (events.hovered >= 0 && model.lines()[events.hovered].row >= 0)
    actions.hover_node = model.lines()[events.hovered].name;
  std::vector<const KernelLine*> chosen;
  for (const int row : chosen_rows(state.table, rows))
    chosen.push_back(&model.lines()[static_cast<size_t>(row)]);
  if (!chosen.empty()) actions.selection_sum = kernels_sum_text(chosen);
  context_menu(model, events, state, actions);
  if (events.clicked < 0) return;
  const KernelLine line = model.lines()[events.clicked];
  if (line.row >= 0) {
    state.selected = line.name;
    actions.go_to_node = line.name;
    actions.show_node_panel = true;
  } else if (events.opened >= 0) {  // a group opens as a filter
    static constexpr const char* kKeys[] = {"", "op:", "scope:", "phase:", "pass:", "kernel:"};
    const char* key = kKeys[static_cast<int>(model.group())];
    model.set_group(KernelGroup::kSingle);
    kernel_table_set_query(model, state, fmt::format("{}\"{}\"", key, line.name));
  }
}

}  // namespace gradloom
