#include "viz/draw/table.h"

#include <GLFW/glfw3.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/text.h"
#include "viz/draw/items.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/keys.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

// The head of numbers stands over them, to the right, but for the arrow that tells the order.
void place_head_of_numbers(int column, const std::string& name) {
  constexpr float kArrow = 0.65f;  // of a line, as ImGui::TableHeader draws it
  ImGuiTable* const table = ImGui::GetCurrentTable();
  const bool sortable = (table->Flags & ImGuiTableFlags_Sortable) != 0;
  const float arrow =
      sortable ? std::floor(ImGui::GetFontSize() * kArrow + ImGui::GetStyle().FramePadding.x) : 0;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float right = std::min(at.x + ImGui::GetContentRegionAvail().x,
                               ImGui::TableGetCellBgRect(table, column).Max.x - arrow);
  const float room = std::floor(right - at.x - ImGui::CalcTextSize(name.c_str()).x - 1);  // 1: rounding
  if (room > 0) ImGui::SetCursorScreenPos({at.x + room, at.y});
}

void header(std::string_view id, const std::vector<TableColumn>& columns, const TableState& state) {
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  ImGui::PushStyleColor(ImGuiCol_Text, palette().text_dim);
  for (int c = 0; c < static_cast<int>(columns.size()); ++c) {
    if (!ImGui::TableSetColumnIndex(c)) continue;
    ImGui::PushID(c);
    if (columns[c].number) place_head_of_numbers(c, columns[c].name);
    ImGui::TableHeader(columns[c].name.c_str());
    ImGui::PopID();
    register_item(std::string(id) + ".column." + columns[c].name, columns[c].name,
                  c != state.sort_column ? ""
                  : state.descending     ? "descending"
                                         : "ascending");
    focus_stop(std::string(id) + ".column." + columns[c].name);
    if (!columns[c].help.empty()) tip(columns[c].help);
  }
  ImGui::PopStyleColor();
}

bool read_sort(TableState& state) {
  if (std::exchange(state.sort_given, false) && state.sort_column >= 0 &&
      state.sort_column < ImGui::TableGetColumnCount()) {
    ImGui::TableSetColumnSortDirection(
        state.sort_column, state.descending ? ImGuiSortDirection_Descending : ImGuiSortDirection_Ascending,
        false);
    return false;
  }
  ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs();
  if (!specs || !specs->SpecsDirty) return false;
  specs->SpecsDirty = false;
  const int column = specs->SpecsCount > 0 ? specs->Specs[0].ColumnIndex : -1;
  const bool descending =
      specs->SpecsCount > 0 && specs->Specs[0].SortDirection == ImGuiSortDirection_Descending;
  if (column == state.sort_column && descending == state.descending) return false;
  state.sort_column = column;
  state.descending = descending;
  return true;
}

// The columns that the user wants to see: the usual ones, less or more what the header's menu changed.
std::vector<bool> wanted_columns(const std::vector<TableColumn>& columns) {
  const ImGuiTable* table = ImGui::GetCurrentTable();
  std::vector<bool> wanted;
  for (int c = 0; c < static_cast<int>(columns.size()); ++c)
    wanted.push_back(table->IsInitializing ? !columns[c].hidden : table->Columns[c].IsUserEnabled);
  return wanted;
}

}  // namespace

std::vector<bool> columns_that_fit(const std::vector<TableColumn>& columns, const std::vector<bool>& wanted,
                                   float width, float space) {
  std::vector<bool> shown = wanted;
  float needed = 0;
  const auto width_of = [&](size_t c) {
    return space + (columns[c].width > 0 ? columns[c].width : kMinNameWidth);
  };
  for (size_t c = 0; c < columns.size(); ++c)
    if (shown[c]) needed += width_of(c);
  while (needed > width) {
    size_t least = columns.size();
    for (size_t c = 0; c < columns.size(); ++c) {
      const int rank = shown[c] ? columns[c].goes_first : 0;
      if (rank > 0 && (least == columns.size() || rank >= columns[least].goes_first)) least = c;
    }
    if (least == columns.size()) break;  // what is left stays, however narrow the table is
    shown[least] = false;
    needed -= width_of(least);
  }
  return shown;
}

namespace {

// The row that a script looks for and that is not drawn; -1: none.
int wanted_row(const std::string& table, const TableRows& rows) {
  const std::string& wanted = items().wanted();
  if (!rows.id || wanted.rfind(table + ".", 0) != 0 || items().find(wanted) != nullptr) return -1;
  for (int row = 0; row < rows.count; ++row)
    if (wanted.compare(table.size() + 1, std::string::npos, rows.id(row)) == 0) return row;
  return -1;
}

// Declares the columns to ImGui; `room`: pixels that they share.
void set_up_columns(const std::vector<TableColumn>& columns, const TableState& state, float room) {
  const std::vector<bool> shown = columns_that_fit(columns, wanted_columns(columns), room / theme().scale,
                                                   2 * ImGui::GetStyle().CellPadding.x / theme().scale);
  for (int c = 0; c < static_cast<int>(columns.size()); ++c) {
    const TableColumn& column = columns[c];
    ImGuiTableColumnFlags column_flags =
        column.width > 0 ? ImGuiTableColumnFlags_WidthFixed : ImGuiTableColumnFlags_WidthStretch;
    if (!shown[static_cast<size_t>(c)]) column_flags |= ImGuiTableColumnFlags_Disabled;
    if (column.hidden) column_flags |= ImGuiTableColumnFlags_DefaultHide;
    if (column.number) column_flags |= ImGuiTableColumnFlags_PreferSortDescending;
    if (c == state.sort_column) {
      column_flags |= ImGuiTableColumnFlags_DefaultSort;
      if (!state.descending) column_flags &= ~ImGuiTableColumnFlags_PreferSortDescending;
    }
    ImGui::TableSetupColumn(column.name.c_str(), column_flags, column.width > 0 ? px(column.width) : 1.f);
  }
}

std::string row_key(const TableRows& rows, int row) {
  return rows.key ? rows.key(row) : rows.id ? rows.id(row) : std::to_string(row);
}

void choose_one(TableState& state, int row) {
  state.chosen.clear();
  state.anchor = state.end = row;
}

// From where Shift began to a row; the first time from the one that is selected.
void choose_to(TableState& state, const TableRows& rows, int row) {
  if (state.anchor < 0 || state.anchor >= rows.count)
    state.anchor = std::max(0, std::min(state.selected, rows.count - 1));
  state.end = row;
  state.chosen.clear();
  for (int r = std::min(state.anchor, row); r <= std::max(state.anchor, row); ++r)
    state.chosen.insert(row_key(rows, r));
}

void choose_too(TableState& state, const TableRows& rows, int row) {
  const int first =
      state.selected >= 0 ? state.selected : state.anchor;  // rows of groups are none of a selection
  if (state.chosen.empty() && first >= 0 && first < rows.count) state.chosen.insert(row_key(rows, first));
  if (const std::string key = row_key(rows, row); state.chosen.erase(key) == 0) state.chosen.insert(key);
  state.anchor = state.end = row;
}

// Frames in which a table had the arrow keys, and in which they were given to tables and to canvases last.
int g_arrows_frame = -2, g_to_table = 0, g_to_canvas = -1;

// Up, Down and a page of them move the selection while the table, or the pane that it is in, has the keys; with Shift they choose
// all rows on the way.
void take_arrows(TableState& state, const TableRows& table, float row_height, TableEvents& events) {
  const int rows = table.count;
  const ImGuiWindow *const window = ImGui::GetCurrentWindow(), *const focused = GImGui->NavWindow;
  const ImGuiIO& io = ImGui::GetIO();
  if (rows == 0 || focused == nullptr || g_to_table < g_to_canvas ||
      (focused != window && !(table.arrows_of_pane && focused == window->ParentWindow)) || io.WantTextInput ||
      io.KeyAlt || ImGui::IsPopupOpen(nullptr, ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel))
    return;
  g_arrows_frame = ImGui::GetFrameCount();
  if (table.several && io.KeyCtrl && !io.KeyShift && ImGui::IsKeyPressed(GLFW_KEY_A, false)) {
    state.anchor = 0;
    choose_to(state, table, rows - 1);
  }
  if (io.KeyCtrl) return;
  if (state.selected >= 0 && state.selected < rows && key_pressed("app.menu")) {
    events.menu = state.selected;
    events.menu_at = {window->Pos.x + px(40),
                      window->Pos.y - window->Scroll.y + static_cast<float>(state.selected + 2) * row_height};
  }
  const float view = ImGui::GetWindowHeight() - 2 * row_height;  // without the header
  const int page = std::max(1, static_cast<int>(view / row_height));
  int move = 0;
  for (const auto& [key, rows_on] : {std::pair{ImGuiKey_DownArrow, 1},
                                     {ImGuiKey_UpArrow, -1},
                                     {ImGuiKey_PageDown, page},
                                     {ImGuiKey_PageUp, -page}})
    if (ImGui::IsKeyPressed(ImGui::GetKeyIndex(key))) move += rows_on;
  if (move == 0) return;
  const bool more = table.several && io.KeyShift;
  const int before = std::min(more && !state.chosen.empty() ? state.end : state.selected, rows - 1);
  const int to = before < 0 ? 0 : std::clamp(before + move, 0, rows - 1);
  if (more) {
    choose_to(state, table, to);
  } else {
    choose_one(state, to);
    events.clicked = state.selected = to;
  }
  const float top = static_cast<float>(to) * row_height, scroll = ImGui::GetScrollY();
  if (top < scroll)
    ImGui::SetScrollY(top);
  else if (top > scroll + view)
    ImGui::SetScrollY(top - view);
}

void press_row(TableState& state, const TableRows& rows, int row, TableEvents& events) {
  const ImGuiIO& io = ImGui::GetIO();
  g_to_table = ImGui::GetFrameCount();
  if (rows.several && io.KeyShift) return choose_to(state, rows, row);
  if (rows.several && io.KeyCtrl) return choose_too(state, rows, row);
  choose_one(state, row);
  state.selected = events.clicked = row;
  if (ImGui::IsMouseDoubleClicked(0)) events.opened = row;
}

}  // namespace

std::vector<int> chosen_rows(const TableState& state, const TableRows& rows) {
  std::vector<int> chosen;
  if (state.chosen.size() < 2) return chosen;
  for (int row = 0; row < rows.count; ++row)
    if (state.chosen.count(row_key(rows, row)) != 0) chosen.push_back(row);
  return chosen;
}

void arrows_to_table() { g_to_table = ImGui::GetFrameCount(); }
void arrows_to_canvas() { g_to_canvas = ImGui::GetFrameCount(); }
bool table_has_arrows() { return g_arrows_frame >= ImGui::GetFrameCount() - 1; }

TableEvents draw_table(std::string_view id, const std::vector<TableColumn>& columns, const TableRows& rows,
                       TableState& state, float height) {
  TableEvents events;
  const std::string name(id);
  const float room = ImGui::GetContentRegionAvail().x - ImGui::GetStyle().ScrollbarSize;
  const float row_height = ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y;
  if (height == 0) {
    const int least = 1 + std::clamp(rows.count, 1, kFewestRowsInSight);
    height = std::max(ImGui::GetContentRegionAvail().y, static_cast<float>(least) * row_height + px(2));
  }
  const ImGuiTableFlags flags =
      ImGuiTableFlags_ScrollY | (rows.sortable ? ImGuiTableFlags_Sortable : 0) |
      (rows.has_own_order ? ImGuiTableFlags_SortTristate : 0) | ImGuiTableFlags_Resizable |
      ImGuiTableFlags_Reorderable | ImGuiTableFlags_Hideable | ImGuiTableFlags_RowBg |
      ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_NoSavedSettings |
      ImGuiTableFlags_NoBordersInBody;  // a click beside one resized a column and chose no row
  if (!ImGui::BeginTable(name.c_str(), static_cast<int>(columns.size()), flags, {0, height})) return events;
  set_up_columns(columns, state, room);
  ImGui::TableSetupScrollFreeze(0, 1);
  events.sort_changed = read_sort(state);
  if (events.sort_changed) state.anchor = -1;
  header(id, columns, state);
  if (const int row = wanted_row(name, rows); row >= 0) state.scroll_to = row;
  if (state.scroll_to >= 0) {
    const float view = ImGui::GetWindowHeight();
    ImGui::SetScrollY(std::max(0.f, static_cast<float>(state.scroll_to) * row_height - view * 0.4f));
    state.scroll_to = -1;
  }
  take_arrows(state, rows, row_height, events);
  ImGuiListClipper clipper;
  clipper.Begin(rows.count, row_height);
  while (clipper.Step()) {
    for (int row = clipper.DisplayStart; row < clipper.DisplayEnd; ++row) {
      ImGui::TableNextRow();
      ImGui::PushID(row);
      for (int c = 0; c < static_cast<int>(columns.size()); ++c) {
        const bool visible = ImGui::TableSetColumnIndex(c);
        if (c == 0) {
          const ImVec2 at = ImGui::GetCursorPos();
          const bool chosen =
              state.chosen.empty() ? row == state.selected : state.chosen.count(row_key(rows, row)) != 0;
          if (ImGui::Selectable("##row", chosen,
                                ImGuiSelectableFlags_SpanAllColumns | ImGuiSelectableFlags_AllowItemOverlap |
                                    ImGuiSelectableFlags_AllowDoubleClick)) {
            press_row(state, rows, row, events);
          }
          if (ImGui::IsItemHovered()) events.hovered = row;
          const std::string row_id = rows.id ? rows.id(row) : std::to_string(row);
          register_item(name + "." + row_id, row_id, rows.value ? rows.value(row) : std::string());
          register_item(name + ".row." + std::to_string(row), row_id, row_id);
          reached_by("table.move");
          ImGui::SameLine();
          ImGui::SetCursorPos(at);
        }
        if (visible) rows.cell(row, c);
      }
      ImGui::PopID();
    }
  }
  if (state.selected >= 0 && ImGui::IsWindowFocused() &&
      ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Enter), false)) {
    events.opened = state.selected;
  }
  ImGui::EndTable();
  return events;
}

void number_cell(std::string_view s) { right_text(s, ImGui::GetContentRegionAvail().x); }

void text_cell(std::string_view s, ImU32 color) {
  const std::string shown = fit_text(theme().ui, theme().ui->FontSize, s, ImGui::GetContentRegionAvail().x);
  text(shown, color);
  if (shown != s) tip(s);
}

void name_cell(std::string_view name, ImU32 color) {
  const std::string whole = escaped(name);
  const std::string shown =
      fit_name(theme().ui, theme().ui->FontSize, whole, ImGui::GetContentRegionAvail().x);
  text(shown, color);
  if (shown != whole) tip(whole);
}

}  // namespace gradloom
