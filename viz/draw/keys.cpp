#include "viz/draw/keys.h"

#include <GLFW/glfw3.h>
#include <imgui.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>
#include <utility>

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
    {"space", GLFW_KEY_SPACE},    {"plus", GLFW_KEY_EQUAL},
    {"minus", GLFW_KEY_MINUS},    {".", GLFW_KEY_PERIOD},
    {",", GLFW_KEY_COMMA},        {"/", GLFW_KEY_SLASH},
    {"=", GLFW_KEY_EQUAL},        {"-", GLFW_KEY_MINUS},
    {"[", GLFW_KEY_LEFT_BRACKET}, {"]", GLFW_KEY_RIGHT_BRACKET}};

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

const std::unordered_multimap<std::string_view, Chord>& chords() {
  static const auto table = [] {
    std::unordered_multimap<std::string_view, Chord> map;
    for (const KeyBinding& binding : key_map()) {
      if (const auto chord = parse_chord(binding.chord)) map.emplace(binding.action, *chord);
    }
    return map;
  }();
  return table;
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
  return label;
}

namespace {

constexpr KeyBinding kKeyMap[] = {
    {"file.open", "ctrl+o", nullptr, "Everywhere", "Open a model, session or recipe"},
    {"file.save", "ctrl+s", nullptr, "Everywhere", "Save the recipe as it stands to its file"},
    {"file.save_as", "ctrl+shift+s", nullptr, "Everywhere", "Save it to another file"},
    {"file.export", "ctrl+e", nullptr, "Everywhere", "Export the shown run, with what a replay must show"},
    {"file.close", "ctrl+w", nullptr, "Everywhere", "Close the model"},
    {"file.quit", "ctrl+q", nullptr, "Everywhere", "Quit"},
    {"app.palette", "ctrl+shift+p", nullptr, "Everywhere", "Command palette"},
    {"app.goto", "ctrl+p", nullptr, "Everywhere", "Go to node"},
    {"app.find", "ctrl+f", nullptr, "Everywhere", "Find (Enter next, Shift+Enter previous)"},
    {"app.undo", "ctrl+z", nullptr, "Everywhere", "Undo a change of the recipe or a note"},
    {"app.redo", "ctrl+shift+z", nullptr, "Everywhere", "Redo"},
    {"app.copy", "ctrl+c", nullptr, "Everywhere", "Copy the selected rows or names"},
    {"note.add", "shift+m", nullptr, "Everywhere", "Note on the marked time or the selected node"},
    {"app.theme", "ctrl+shift+l", nullptr, "Everywhere", "Dark / light"},
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
    {"graph.pan", "", "Right or middle drag, Space + drag, arrows", "Graph", "Pan"},
    {"graph.zoom", "", "Wheel (Shift fast, Ctrl fine)", "Graph", "Zoom at the cursor"},
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
    {"timeline.zoom", "", "W, S, wheel (Shift fast, Ctrl fine)", "Timeline", "Zoom at the cursor"},
    {"timeline.zoom_drag", "", "Middle drag", "Timeline", "Zoom to a range"},
    {"timeline.bar", "", "Middle click, double click", "Timeline", "Zoom to a bar"},
    {"timeline.ruler", "", "Left drag", "Timeline", "Ruler"},
    {"timeline.range", "", "Ctrl + drag", "Timeline", "Time range: filters kernels, graph and memory"},
    {"timeline.mark", "m", nullptr, "Timeline", "Range of the ruler, or of the selected kernel"},
    {"timeline.focus", "f", nullptr, "Timeline", "Show the selected kernel"},
    {"timeline.zoom_to", "z", nullptr, "Timeline", "Zoom to the range, ruler or selected kernel"},
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
    {"icicle.zoom", "enter", "Enter, double click", "Icicle", "Zoom in"},
    {"icicle.up", "backspace", "Backspace, Escape", "Icicle", "Out again"},
    {"icicle.up", "escape", nullptr, "Icicle", nullptr},
    {"icicle.all", "home", nullptr, "Icicle", "The whole step"},
};

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
  const auto [first, last] = chords().equal_range(action);
  return std::any_of(first, last, [](const auto& entry) { return chord_pressed(entry.second); });
}

std::string key_label(std::string_view action) {
  for (const KeyBinding& binding : key_map()) {
    if (action == binding.action) return chord_label(binding.chord);
  }
  return {};
}

}  // namespace gradloom
