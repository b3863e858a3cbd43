// A virtualized table: only the visible rows are asked for, so 100 000 rows cost as much as 30. Sorting and
// filtering are the model's; the table reports what the user asked for.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "viz/draw/theme.h"

namespace gradloom {

struct TableColumn {
  std::string name;
  float width = 0;      // points; 0 = takes the remaining width
  bool number = false;  // right-aligned; the first click sorts descending
  bool hidden = false;  // at first; the header's menu shows it
  std::string help;
  // Where there is no room for all columns, those of the highest number go first; 0 stays. The column that
  // takes the remaining width keeps kMinNameWidth.
  int goes_first = 0;
};
inline constexpr float kMinNameWidth = 140;  // points

struct TableState {
  int sort_column = -1;
  bool descending = true;
  int selected = -1;  // row, in the shown order
  // Several rows by their keys, where the table takes that; empty: `selected` alone. Shift goes from `anchor` to `end`.
  std::set<std::string> chosen;
  int anchor = -1, end = -1;
  int scroll_to = -1;       // row to bring into view, then reset
  bool sort_given = false;  // the order was set from outside: the header takes it, then reset
};

struct TableEvents {
  bool sort_changed = false;
  int clicked = -1, opened = -1, hovered = -1;  // opened: double click or Enter
  int menu = -1;                                // whose menu the key asks for
  ImVec2 menu_at;                               // below that row
};

struct TableRows {
  int count = 0;
  bool sortable = true;
  bool arrows_of_pane = true;  // also while the pane around it has the keys, not only the table
  bool several = false;        // Ctrl, Shift, Shift with arrows and Ctrl+A choose several of them
  bool has_own_order = false;  // a third click on a header goes back to the order in which the rows come
  std::function<void(int row, int column)> cell;  // draws into the cell
  std::function<std::string(int row)> id;         // names the row in the registry: "TABLE.ID", and by place
                                                  // "TABLE.row.N"
  std::function<std::string(int row)> value;      // its registry value; may be empty
  std::function<std::string(int row)> key;  // what a chosen row is known by where ids are not of one alone
};

// `height`: pixels; 0: what is left of the pane, which scrolls where that is less than the header and this many rows.
inline constexpr int kFewestRowsInSight = 4;
TableEvents draw_table(std::string_view id, const std::vector<TableColumn>& columns, const TableRows& rows,
                       TableState& state, float height = 0);

// The rows that are chosen, where they are several; empty: one is, or none.
std::vector<int> chosen_rows(const TableState& state, const TableRows& rows);

// The arrow keys are those of what was used last: a table whose row was clicked or that the keys went to, or a canvas.
void arrows_to_table();
void arrows_to_canvas();
bool table_has_arrows();  // a table had them in this frame or the last: they are nobody else's

// Which of the columns that are wanted find room: their widths with the space between them, in points.
std::vector<bool> columns_that_fit(const std::vector<TableColumn>& columns, const std::vector<bool>& wanted,
                                   float width, float space);

// For cell():
// Right-aligned text, smaller where the column is too narrow for it.
void number_cell(std::string_view s);
void text_cell(std::string_view s, ImU32 color = palette().text);     // fit_text; the whole as tooltip
void name_cell(std::string_view name, ImU32 color = palette().text);  // fit_name; the whole as tooltip

}  // namespace gradloom
