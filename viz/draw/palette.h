// The command palette (Ctrl+Shift+P) and "go to node" (Ctrl+P): one searchable popup
// over any list of entries.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

struct PaletteEntry {
  std::string label;   // searched
  std::string detail;  // shown dimmed at the right: a key or a scope
};

struct PaletteState {
  bool open = false;
  std::string query;
  int highlighted = 0;
  bool just_opened = false;
  void show() { *this = {true, {}, 0, true}; }
};

// Returns the index of the chosen entry, or -1. Reports "ID.input" and "ID.row.N" (N
// counts the shown rows from 0).
int draw_palette(std::string_view id, std::string_view hint, const std::vector<PaletteEntry>& entries,
                 PaletteState& state);

// The key sheet ('?'): the key map by place. `open` becomes false when closed.
void draw_key_sheet(bool* open);

}  // namespace gradloom
