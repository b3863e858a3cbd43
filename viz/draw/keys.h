// Key chords ("ctrl+shift+p") and the key map: one table from which key handling,
// the key sheet and scripts derive.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gradloom {

struct Chord {
  int key = 0;  // GLFW key code
  bool ctrl = false, shift = false, alt = false;
  bool operator==(const Chord&) const = default;
};

std::optional<Chord> parse_chord(std::string_view text);
std::string chord_label(std::string_view text);  // "ctrl+shift+p" -> "Ctrl+Shift+P"

struct KeyBinding {
  const char* action;   // "graph.fit"; an action may have several chords
  const char* chord;    // empty: a mouse gesture, shown on the sheet only
  const char* gesture;  // what the sheet shows instead of the chord, or null
  const char* where;    // "Graph", "Everywhere", ...; one chord may mean different things in two places
  const char* help;     // null: not on the sheet, another row of the action or its family says it
};

std::span<const KeyBinding> key_map();

// True in the frame in which the action's chord goes down. Chords without Ctrl or an F key are ignored while
// text is edited.
bool key_pressed(std::string_view action);
// The same for a chord that is not in the map.
bool chord_pressed(const Chord& chord);
std::string key_label(std::string_view action);  // "Ctrl+F", empty when unbound

}  // namespace gradloom
