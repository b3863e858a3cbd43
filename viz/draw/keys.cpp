#include "viz/draw/keys.h"

#include <GLFW/glfw3.h>
#include <imgui.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <unordered_map>
#include <utility>

#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr std::pair<std::string_view, int> kNamed[] = {
    {"escape", GLFW_KEY_ESCAPE},  {"enter", GLFW_KEY_ENTER},
    {"tab", GLFW_KEY_TAB},        {"backspace", GLFW_KEY_BACKSPACE},
    {"delete", GLFW_KEY_DELETE},  {"insert", GLFW_KEY_INSERT},
    {"home", GLFW_KEY_HOME},      {"end", GLFW_KEY_END},
    {"pageup", GLFW_KEY_PAGE_UP}, {"pagedown", GLFW_KEY_PAGE_DOWN},
    {"left", GLFW_KEY_LEFT},      {"right", GLFW_KEY_RIGHT},
    {"up", GLFW_KEY_UP},          {"down", GLFW_KEY_DOWN},
    {"menu", GLFW_KEY_MENU},      {"space", GLFW_KEY_SPACE},
    {"plus", GLFW_KEY_EQUAL},     {"minus", GLFW_KEY_MINUS},
    {".", GLFW_KEY_PERIOD},       {",", GLFW_KEY_COMMA},
    {"/", GLFW_KEY_SLASH},        {"=", GLFW_KEY_EQUAL},
    {"-", GLFW_KEY_MINUS},        {"[", GLFW_KEY_LEFT_BRACKET},
    {"]", GLFW_KEY_RIGHT_BRACKET}};

// The name by which scripts and settings know a key; empty: none can be bound to it.
std::string key_name(int code) {
  if (code < 128 && std::isalnum(code)) return std::string(1, static_cast<char>(std::tolower(code)));
  if (code >= GLFW_KEY_F1 && code <= GLFW_KEY_F12) return "f" + std::to_string(code - GLFW_KEY_F1 + 1);
  for (const auto& [text, named] : kNamed)
    if (named == code) return std::string(text);
  return {};
}

int key_code(std::string_view name) {
  if (name.size() == 1 && std::isalnum(static_cast<unsigned char>(name[0]))) {
    return std::toupper(static_cast<unsigned char>(name[0]));  // GLFW's letters and digits are ASCII
  }
  if (name.size() >= 2 && name[0] == 'f' && name.size() <= 3) {
    int number = 0;
    for (char c : name.substr(1)) {
      if (!std::isdigit(static_cast<unsigned char>(c))) return 0;
      number = number * 10 + (c - '0');
    }
    return number >= 1 && number <= 12 ? GLFW_KEY_F1 + number - 1 : 0;
  }
  for (const auto& [text, code] : kNamed) {
    if (text == name) return code;
  }
  return 0;
}

}  // namespace

std::optional<Chord> parse_chord(std::string_view text) {
  Chord chord;
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string_view rest = lower;
  if (rest == "?") return Chord{GLFW_KEY_SLASH, false, true, false};
  for (size_t plus; (plus = rest.find('+')) != std::string_view::npos && plus > 0;) {
    const std::string_view modifier = rest.substr(0, plus);
    if (modifier == "ctrl")
      chord.ctrl = true;
    else if (modifier == "shift")
      chord.shift = true;
    else if (modifier == "alt")
      chord.alt = true;
    else
      return std::nullopt;
    rest.remove_prefix(plus + 1);
  }
  chord.key = key_code(rest);
  if (chord.key == 0) return std::nullopt;
  return chord;
}

std::string chord_label(std::string_view text) {
  std::string label(text);
  bool start = true;
  for (char& c : label) {
    if (start) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    start = c == '+';
  }
  for (const std::string_view end : {"Pageup", "Pagedown"})  // two words, as keyboards have them
    if (label.ends_with(end)) {
      char& second = label[label.size() - end.size() + 4];
      second = static_cast<char>(std::toupper(static_cast<unsigned char>(second)));
    }
  return label;
}

namespace {

constexpr KeyBinding kKeyMap[] = {
    {"file.open", "ctrl+o", nullptr, "Everywhere", "Open a model, session or recipe"},
    {"file.save", "ctrl+s", nullptr, "Everywhere", "Save the recipe as it stands to its file"},
    {"file.save_as", "ctrl+shift+s", nullptr, "Everywhere", "Save it to another file"},
    {"file.export", "ctrl+e", nullptr, "Everywhere", "Recipe of the shown run, with what a replay must show"},
    {"file.export_view", "ctrl+shift+e", nullptr, "Everywhere", "Write what a view shows, or its picture"},
    {"file.close", "ctrl+w", nullptr, "Everywhere", "Close the model"},
    {"file.quit", "ctrl+q", nullptr, "Everywhere", "Quit"},
    {"app.palette", "ctrl+shift+p", nullptr, "Everywhere", "Command palette"},
    {"app.goto", "ctrl+p", nullptr, "Everywhere", "Go to node"},
    {"app.find", "ctrl+f", nullptr, "Everywhere", "Find (Enter next, Shift+Enter previous)"},
    {"app.undo", "ctrl+z", nullptr, "Everywhere", "Undo a change of the recipe or a note"},
    {"app.redo", "ctrl+shift+z", nullptr, "Everywhere", "Redo"},
    {"app.copy", "ctrl+c", nullptr, "Everywhere", "Copy the selected rows or names"},
    {"run.faster", "ctrl+shift+f", nullptr, "Everywhere", "What if the selection were twice as fast?"},
    {"note.add", "shift+m", nullptr, "Everywhere", "Note on the marked time or the selected node"},
    {"app.settings", "ctrl+,", nullptr, "Everywhere", "Settings: theme, size, motion"},
    {"app.theme", "ctrl+shift+l", nullptr, "Everywhere", "Next theme: dark, light, high contrast"},
    {"pane.next", "ctrl+tab", "Ctrl+Tab, Ctrl+Shift+Tab", "Everywhere",
     "The keys to the next pane, the one before"},
    {"pane.previous", "ctrl+shift+tab", nullptr, "Everywhere", "The keys to the pane before"},
    {"pane.next_tab", "ctrl+pagedown", "Ctrl+PageDown, PageUp", "Everywhere",
     "Next tab of the pane, the one before"},
    {"pane.previous_tab", "ctrl+pageup", nullptr, "Everywhere", "The tab before"},
    {"pane.maximize", "ctrl+m", "Ctrl+M, double click on a tab", "Everywhere",
     "The pane that has the keys alone, and all panes again"},
    {"pane.fold", "ctrl+b", nullptr, "Everywhere", "Fold away the pane that has the keys"},
    {"pane.unfold", "ctrl+shift+b", nullptr, "Everywhere", "Bring back all panes that were folded away"},
    {"app.menu", "shift+f10", "Shift+F10, Menu", "Everywhere", "Context menu of what has the keys"},
    {"app.menu", "menu", nullptr, "Everywhere", nullptr},
    {"focus.step", "", "Tab, Shift+Tab", "Everywhere", "To the next button, field or choice, the one before"},
    {"focus.press", "", "Enter, Space", "Everywhere", "Press it"},
    {"table.move", "", "Arrows, PageUp, PageDown, Enter", "Everywhere",
     "Through the rows of a list, and open one"},
    {"table.several", "", "Ctrl or Shift + click, Shift + arrows", "Everywhere",
     "Select several rows: their sum is told below"},
    {"layout.1", "alt+1", "Alt+1 \u2026 9", "Everywhere", "Layout 1 \u2026 9 of the panes"},
    {"layout.2", "alt+2", nullptr, "Everywhere", nullptr},
    {"layout.3", "alt+3", nullptr, "Everywhere", nullptr},
    {"layout.4", "alt+4", nullptr, "Everywhere", nullptr},
    {"layout.5", "alt+5", nullptr, "Everywhere", nullptr},
    {"layout.6", "alt+6", nullptr, "Everywhere", nullptr},
    {"layout.7", "alt+7", nullptr, "Everywhere", nullptr},
    {"layout.8", "alt+8", nullptr, "Everywhere", nullptr},
    {"layout.9", "alt+9", nullptr, "Everywhere", nullptr},
    {"app.larger", "ctrl+plus", nullptr, "Everywhere", "Larger text"},
    {"app.smaller", "ctrl+minus", nullptr, "Everywhere", "Smaller text"},
    {"app.normal", "ctrl+0", nullptr, "Everywhere", "Normal text size"},
    {"app.fullscreen", "f11", nullptr, "Everywhere", "Full screen"},
    {"app.keys", "?", "?, F1", "Everywhere", "This key sheet"},
    {"app.keys", "f1", nullptr, "Everywhere", nullptr},
    {"view.icicle", "ctrl+i", nullptr, "Everywhere", "One step by module, phase, node, pass or operator"},
    {"run.start", "f5", nullptr, "Runs", "Run training steps"},
    {"run.stop", "shift+f5", nullptr, "Runs", "Stop the run"},
    {"run.compare", "f6", nullptr, "Runs", "Interleaved A/B comparison"},
    {"runs.rename", "f2", nullptr, "Runs", "Rename the shown run"},
    {"runs.as_a", "alt+a", nullptr, "Runs", "Compare the shown run as A"},
    {"runs.as_b", "alt+b", nullptr, "Runs", "Compare it as B"},
    {"runs.curve", "alt+c", nullptr, "Runs", "Keep its curve among those that are drawn"},
    {"runs.pin", "alt+p", nullptr, "Runs", "Pin it"},
    {"graph.pan", "", "Right or middle drag, Space + drag, arrows", "Graph", "Pan"},
    {"graph.zoom", "", "Wheel (Shift fast, Ctrl fine)", "Graph", "Zoom at the cursor"},
    {"graph.zoom_in", "plus", "+", "Graph", "Zoom in at the middle"},
    {"graph.zoom_in", "shift+plus", nullptr, "Graph", nullptr},
    {"graph.zoom_out", "minus", nullptr, "Graph", "Zoom out"},
    {"graph.select", "", "Click, Ctrl + click", "Graph", "Select, add or take away"},
    {"graph.band", "", "Drag, Shift + drag", "Graph", "Rubber band: select, add"},
    {"graph.zoom_box", "", "Ctrl + drag", "Graph", "Zoom to a rectangle"},
    {"graph.expand", "", "Double click (Alt: whole subtree)", "Graph", "Expand or collapse a scope"},
    {"graph.fit", "home", "Home, tap Space", "Graph", "Fit all"},
    {"graph.focus", "f", nullptr, "Graph", "Fit the selection"},
    {"graph.back", "backspace", "Backspace, Alt+Left", "Graph", "Back to the previous view"},
    {"graph.back", "alt+left", nullptr, "Graph", nullptr},
    {"graph.forward", "alt+right", nullptr, "Graph", "Forward again"},
    {"graph.next", ".", ". (period)", "Graph", "Next node in schedule order"},
    {"graph.previous", ",", ", (comma)", "Graph", "Previous node in schedule order"},
    {"graph.partner", "g", nullptr, "Graph", "Go to the partner (forward / backward)"},
    {"graph.neighbours", "n", nullptr, "Graph", "Select the neighbours of the selection too"},
    {"graph.layer.next", "l", nullptr, "Graph", "Next layer of those that are folded"},
    {"graph.layer.previous", "shift+l", nullptr, "Graph", "Previous layer of those that are folded"},
    {"graph.clear", "escape", nullptr, "Graph", "Clear the selection"},
    {"graph.diff", "ctrl+d", nullptr, "Graph", "Mark what the last change added and removed"},
    {"view.by_pass", "ctrl+h", nullptr, "Graph",
     "Pass by pass: what each pass did (Escape: back to the step)"},
    {"graph.stage.previous", "[", nullptr, "Graph", "Pass by pass: one rewrite back"},
    {"graph.stage.next", "]", nullptr, "Graph", "Pass by pass: one rewrite on"},
    {"graph.stage.previous_pass", "shift+[", nullptr, "Graph", "Pass by pass: one pass back"},
    {"graph.stage.next_pass", "shift+]", nullptr, "Graph", "Pass by pass: one pass on"},
    {"bookmark.go.1", "ctrl+1", "Ctrl+1 \u2026 9", "Graph", "Back to bookmark 1 \u2026 9"},
    {"bookmark.go.2", "ctrl+2", nullptr, "Graph", nullptr},
    {"bookmark.go.3", "ctrl+3", nullptr, "Graph", nullptr},
    {"bookmark.go.4", "ctrl+4", nullptr, "Graph", nullptr},
    {"bookmark.go.5", "ctrl+5", nullptr, "Graph", nullptr},
    {"bookmark.go.6", "ctrl+6", nullptr, "Graph", nullptr},
    {"bookmark.go.7", "ctrl+7", nullptr, "Graph", nullptr},
    {"bookmark.go.8", "ctrl+8", nullptr, "Graph", nullptr},
    {"bookmark.go.9", "ctrl+9", nullptr, "Graph", nullptr},
    {"bookmark.set.1", "ctrl+shift+1", "Ctrl+Shift+1 \u2026 9", "Graph", "Bookmark this view as 1 \u2026 9"},
    {"bookmark.set.2", "ctrl+shift+2", nullptr, "Graph", nullptr},
    {"bookmark.set.3", "ctrl+shift+3", nullptr, "Graph", nullptr},
    {"bookmark.set.4", "ctrl+shift+4", nullptr, "Graph", nullptr},
    {"bookmark.set.5", "ctrl+shift+5", nullptr, "Graph", nullptr},
    {"bookmark.set.6", "ctrl+shift+6", nullptr, "Graph", nullptr},
    {"bookmark.set.7", "ctrl+shift+7", nullptr, "Graph", nullptr},
    {"bookmark.set.8", "ctrl+shift+8", nullptr, "Graph", nullptr},
    {"bookmark.set.9", "ctrl+shift+9", nullptr, "Graph", nullptr},
    {"timeline.pan", "", "A, D, right drag", "Timeline", "Pan"},
    {"timeline.zoom", "", "W, S, wheel (Ctrl fine)", "Timeline", "Zoom at the cursor"},
    {"timeline.scroll", "", "Shift + wheel", "Timeline", "Scroll the lanes"},
    {"timeline.lanes_down", "pagedown", nullptr, "Timeline", "Scroll the lanes down by a page"},
    {"timeline.lanes_up", "pageup", nullptr, "Timeline", "Scroll the lanes up by a page"},
    {"timeline.walk", "", "Arrows", "Timeline", "To the next bar, and to the lane above or below"},
    {"timeline.measure", "", "Shift + left, right", "Timeline", "Ruler from bar to bar (M marks it)"},
    {"timeline.fold", "t", nullptr, "Timeline", "Fold the lane of that bar to a strip, or open it"},
    {"timeline.zoom_in", "plus", "+", "Timeline", "Zoom in at the middle"},
    {"timeline.zoom_in", "shift+plus", nullptr, "Timeline", nullptr},
    {"timeline.zoom_out", "minus", nullptr, "Timeline", "Zoom out"},
    {"timeline.zoom_drag", "", "Middle drag", "Timeline", "Zoom to a range"},
    {"timeline.bar", "", "Middle click, double click", "Timeline", "Zoom to a bar"},
    {"timeline.name", "", "Click on a lane's name", "Timeline", "Fold the lane to a strip, or open it"},
    {"timeline.ruler", "", "Left drag", "Timeline", "Ruler"},
    {"timeline.range", "", "Ctrl + drag", "Timeline", "Time range: filters kernels, graph and memory"},
    {"timeline.mark", "m", nullptr, "Timeline", "Range of the ruler, or of the selected kernel"},
    {"timeline.focus", "f", nullptr, "Timeline", "Show the selected kernel"},
    {"timeline.zoom_to", "z", nullptr, "Timeline", "Zoom to the ruler, the range, or the bar of the keys"},
    {"timeline.all", "home", nullptr, "Timeline", "All that is shown, from its start to its end"},
    {"timeline.next_step", ".", ". (period)", "Timeline", "Next timed step"},
    {"timeline.previous_step", ",", ", (comma)", "Timeline", "Timed step before"},
    {"timeline.more_steps", "shift+.", "Shift+. (period)", "Timeline",
     "One timed step more beside the shown ones"},
    {"timeline.fewer_steps", "shift+,", "Shift+, (comma)", "Timeline", "One less"},
    {"timeline.strip", "", "Click, Shift + click", "Timeline",
     "On the strip of all steps: the nearest timed step; all up to it"},
    {"timeline.clear", "escape", nullptr, "Timeline", "Clear ruler and range"},
    {"icicle.select", "", "Click, Ctrl + click", "Icicle", "Select, add or take away: their sum is told"},
    {"icicle.move", "", "Arrows (Shift adds)", "Icicle", "To the longest part, the whole, and along a level"},
    {"icicle.zoom", "enter", "Enter, +, double click", "Icicle", "Zoom in"},
    {"icicle.up", "backspace", "Backspace, Escape, -", "Icicle", "Out again"},
    {"icicle.up", "escape", nullptr, "Icicle", nullptr},
    {"icicle.zoom", "plus", nullptr, "Icicle", nullptr},
    {"icicle.zoom", "shift+plus", nullptr, "Icicle", nullptr},
    {"icicle.up", "minus", nullptr, "Icicle", nullptr},
    {"icicle.all", "home", nullptr, "Icicle", "The whole step"},
    {"roofline.area", "", "Drag, Shift + drag", "Roofline",
     "Select the kernels in a rectangle, add: filters the other views"},
    {"roofline.move", "", "Arrows", "Roofline", "To the next kernel in that direction"},
    {"roofline.zoom", "", "Wheel, right drag", "Roofline", "Zoom and pan along FLOP per byte"},
    {"roofline.zoom_in", "plus", "+", "Roofline", "Zoom in at the selected kernel"},
    {"roofline.zoom_in", "shift+plus", nullptr, "Roofline", nullptr},
    {"roofline.zoom_out", "minus", nullptr, "Roofline", "Zoom out"},
    {"roofline.clear", "escape", nullptr, "Roofline", "Show all kernels again"},
    {"roofline.all", "home", nullptr, "Roofline", "The whole plot"},
};

// Actions to chords as they are now. One per process, as ImGui's context is.
struct KeyTable {
  std::map<std::string, std::vector<std::string>> changes;  // by action
  std::vector<std::string> unread;                          // parts of the text that change nothing
  std::unordered_multimap<std::string_view, Chord> chords;  // what key_pressed looks up
  KeyTable() { fill(); }
  void fill() {
    chords.clear();
    for (const KeyBinding& binding : kKeyMap)
      if (const auto chord = parse_chord(binding.chord); chord && changes.count(binding.action) == 0)
        chords.emplace(binding.action, *chord);
    for (const auto& [action, list] : changes)
      for (const std::string& text : list)
        if (const auto chord = parse_chord(text)) chords.emplace(find_action(action), *chord);
  }
  // Of the map, which outlives a change.
  static std::string_view find_action(const std::string& action) {
    for (const KeyBinding& binding : kKeyMap)
      if (action == binding.action) return binding.action;
    return {};
  }
};

KeyTable& keys() {
  static KeyTable table;
  return table;
}

}  // namespace

std::span<const KeyBinding> key_map() { return kKeyMap; }

bool chord_pressed(const Chord& chord) {
  const ImGuiIO& io = ImGui::GetIO();
  if (io.KeyCtrl != chord.ctrl || io.KeyShift != chord.shift || io.KeyAlt != chord.alt) return false;
  const bool function_key = chord.key >= GLFW_KEY_F1 && chord.key <= GLFW_KEY_F12;
  if (io.WantTextInput && !chord.ctrl && !function_key) return false;
  return ImGui::IsKeyPressed(chord.key, false);
}

bool key_pressed(std::string_view action) {
  const auto [first, last] = keys().chords.equal_range(action);
  return std::any_of(first, last, [](const auto& entry) { return chord_pressed(entry.second); });
}

std::string key_label(std::string_view action) {
  const std::vector<std::string> chords = chords_of(action);
  return chords.empty() ? std::string() : chord_label(chords.front());
}

// ---- What the user changed ----

namespace {

const KeyBinding* find_binding(std::string_view action) {
  const auto* const found = std::find_if(std::begin(kKeyMap), std::end(kKeyMap), [&](const KeyBinding& b) {
    return action == b.action && b.chord[0] != '\0';
  });
  return found == std::end(kKeyMap) ? nullptr : found;
}

// An action of one canvas is heard while the keys go there; all others everywhere.
std::string_view canvas_of(const KeyBinding& binding) {
  const std::string_view action = binding.action;
  if (action == "graph.diff") return {};
  for (const std::string_view canvas : {"graph.", "timeline.", "icicle.", "roofline."})
    if (action.rfind(canvas, 0) == 0) return canvas;
  return {};
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\n')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\n')) s.remove_suffix(1);
  return s;
}

// Calls `take` for each part between two separators.
template <class Take>
void split(std::string_view s, char separator, const Take& take) {
  while (!s.empty()) {
    const size_t end = std::min(s.find(separator), s.size());
    if (const std::string_view part = trimmed(s.substr(0, end)); !part.empty()) take(part);
    s.remove_prefix(std::min(end + 1, s.size()));
  }
}

// Why a part of the text changes nothing; empty: it did.
std::string use_change(std::string_view part) {
  const size_t equal = part.find('=');
  const std::string action(trimmed(part.substr(0, equal)));
  if (equal == std::string_view::npos || !find_binding(action))
    return "there is no action '" + escaped(action) + "'";
  std::vector<std::string> chords;
  std::string why;
  split(part.substr(equal + 1), ' ', [&](std::string_view chord) {
    if (!parse_chord(chord))
      why = "'" + escaped(chord) + "' is no key";
    else
      chords.emplace_back(chord);
  });
  if (why.empty()) set_chords(action, std::move(chords));
  return why;
}

std::string change_text(const std::string& action, const std::vector<std::string>& chords) {
  std::string text = action + "=";
  for (const std::string& chord : chords) text += (text.back() == '=' ? "" : " ") + chord;
  return text;
}

}  // namespace

std::vector<std::string> use_key_changes(std::string_view text) {
  std::vector<std::string> problems;
  keys() = KeyTable();
  split(text, ';', [&](std::string_view part) {
    const std::string why = use_change(part);
    if (why.empty()) return;
    problems.push_back("key '" + escaped(part.substr(0, 80)) + "': " + why);
    keys().unread.emplace_back(part);
  });
  for (bool again = true; std::exchange(again, false);) {  // each round takes a change back
    for (const auto& [action, chords] : keys().changes) {
      const auto taken = std::find_if(chords.begin(), chords.end(), [&](const std::string& chord) {
        return !key_conflict(action, chord).empty();
      });
      if (taken == chords.end()) continue;
      problems.push_back("key '" + *taken + "' of " + action + " is that of " + key_conflict(action, *taken));
      keys().unread.push_back(change_text(action, chords));
      reset_chords(std::string(action));
      again = true;
      break;
    }
  }
  return problems;
}

std::string key_changes() {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  for (const auto& [action, chords] : keys().changes) add(change_text(action, chords));
  for (const std::string& part : keys().unread) add(part);
  return text;
}

std::vector<std::string> chords_of(std::string_view action) {
  const auto changed = keys().changes.find(std::string(action));
  if (changed != keys().changes.end()) return changed->second;
  std::vector<std::string> chords;
  for (const KeyBinding& binding : kKeyMap)
    if (action == binding.action && binding.chord[0] != '\0') chords.emplace_back(binding.chord);
  return chords;
}

bool keys_changed(std::string_view action) { return keys().changes.count(std::string(action)) != 0; }

void set_chords(std::string_view action, std::vector<std::string> chords) {
  KeyTable& table = keys();
  table.changes.erase(std::string(action));
  if (chords != chords_of(action)) table.changes[std::string(action)] = std::move(chords);
  table.fill();
}

void reset_chords(std::string_view action) {
  keys().changes.erase(std::string(action));
  keys().fill();
}

std::string key_conflict(std::string_view action, std::string_view chord) {
  const KeyBinding* const own = find_binding(action);
  const auto wanted = parse_chord(chord);
  if (own == nullptr || !wanted) return {};
  for (const KeyBinding& other : kKeyMap) {
    if (action == other.action || other.chord[0] == '\0') continue;
    const std::string_view here = canvas_of(*own), there = canvas_of(other);
    if (!here.empty() && !there.empty() && here != there) continue;
    for (const std::string& taken : chords_of(other.action))
      if (parse_chord(taken) == wanted) return other.action;
  }
  return {};
}

std::string chord_going_down() {
  const ImGuiIO& io = ImGui::GetIO();
  for (int code = 0; code < GLFW_KEY_LEFT_SHIFT && code < IM_ARRAYSIZE(io.KeysDown); ++code) {
    if (!ImGui::IsKeyPressed(code, false)) continue;
    const std::string name = key_name(code);
    if (name.empty()) continue;
    return std::string(io.KeyCtrl ? "ctrl+" : "") + (io.KeyShift ? "shift+" : "") +
           (io.KeyAlt ? "alt+" : "") + name;
  }
  return {};
}

std::string keys_text(const KeyBinding& binding) {
  if (binding.gesture != nullptr && !keys_changed(binding.action)) return binding.gesture;
  std::string text;
  for (const std::string& chord : chords_of(binding.action))
    text += (text.empty() ? "" : ", ") + chord_label(chord);
  return text.empty() ? "none" : text;
}

}  // namespace gradloom
