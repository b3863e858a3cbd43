// Key chords ("ctrl+shift+p") and the key map: one table from which key handling, menus, the key sheet and scripts
// derive, and what the user changed in it. Mouse gestures, and keys that type or move in text, are not changed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

std::span<const KeyBinding> key_map();  // the usual keys

// ---- What the user changed ----
// As settings keep it: "file.open=ctrl+shift+o; graph.back=backspace alt+left; run.stop=", the last without a key.

// Puts these in the place of what was changed before. Parts that cannot be read, or whose key means something else
// already, change nothing: a line for each. They stay in key_changes(), as they are.
std::vector<std::string> use_key_changes(std::string_view text);
std::string key_changes();
std::vector<std::string> chords_of(std::string_view action);  // as the map or its changes have them
bool keys_changed(std::string_view action);
// Gives an action these chords instead of all it has; those of the map again by reset_chords.
void set_chords(std::string_view action, std::vector<std::string> chords);
void reset_chords(std::string_view action);
// Which other action hears the chord where this one would; empty: none.
std::string key_conflict(std::string_view action, std::string_view chord);
// The chord that went down in this frame, as text; empty: none that could be one of an action.
std::string chord_going_down();
// "Ctrl+F, F3", or the gesture of the map while nothing is changed.
std::string keys_text(const KeyBinding& binding);

// True in the frame in which the action's chord goes down. Chords without Ctrl or an F key are ignored while
// text is edited.
bool key_pressed(std::string_view action);
// The same for a chord that is not in the map.
bool chord_pressed(const Chord& chord);
std::string key_label(std::string_view action);  // "Ctrl+F", empty when unbound

}  // namespace gradloom
