#include "viz/draw/random_user.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "viz/draw/frame_faults.h"
#include "viz/draw/items.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

// Where files are written, and where the window ends. A dialog that only reads may be accepted.
bool forbidden(const std::string& id, const Item& item) {
  const Item* const accept = items().find("file.accept");
  const bool writes = accept != nullptr && accept->label != "Open";
  if (writes && (id == "file.accept" || id.rfind("file.row.", 0) == 0)) return true;
  return id == "file.up" || id.rfind("file.place", 0) == 0 || item.label == "Quit" ||
         item.label == "Save recipe";
}

// Where the mouse is lies what is forbidden, as "Quit" in an open menu.
bool forbidden_at(ImVec2 at) {
  for (const auto& [id, item] : items().all())
    if (at.x >= item.min.x && at.y >= item.min.y && at.x <= item.max.x && at.y <= item.max.y &&
        forbidden(std::string(id), item))
      return true;
  return false;
}

// What starts a process is done more rarely: it takes the time of many other actions.
bool heavy(const std::string& id) {
  for (const char* part :
       {"run.start", "run.compare", "run.advise", "advice.", "what-if.ask", "measure", "runs.stored"})
    if (id.find(part) != std::string::npos) return true;
  return false;
}

constexpr const char* kTexts[] = {"a",
                                  "layers",
                                  "op:MatMul phase:bwd",
                                  "(",
                                  ") or (",
                                  "re:[",
                                  "0",
                                  "-1",
                                  "1e9",
                                  "0.5",
                                  "%s%n%d",
                                  "\"",
                                  "'; drop",
                                  "\u03b1\u03b2\u2026",
                                  "\u4e2d\u6587",
                                  "   ",
                                  "nan",
                                  "batch=4",
                                  "adamw{lr=0.1}",
                                  "*",
                                  "99999999999999999999",
                                  "{}",
                                  "time>1us",
                                  "fuse-",
                                  "\U0001f600",
                                  "|",
                                  "default,-cse",
                                  "x=",
                                  ",",
                                  "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"};
constexpr const char* kPlainKeys[] = {
    "enter",     "escape",     "tab",        "shift+tab", "left",      "right",    "up",
    "down",      "space",      "home",       "end",       "pageup",    "pagedown", "delete",
    "backspace", "w",          "a",          "s",         "d",         "ctrl+a",   "ctrl+v",
    "ctrl+x",    "ctrl+enter", "shift+left", "shift+up",  "alt+space", "ctrl+tab"};
constexpr const char* kHeld[] = {"ctrl", "shift", "alt", "space", "right", "middle"};
constexpr int kSizes[][2] = {{1600, 900}, {1280, 720},  {640, 480},  {320, 240},
                             {200, 150},  {1920, 1080}, {400, 1200}, {2400, 300}};
constexpr float kScales[] = {1, 1, 1, 1.5f, 2, 3, 0.5f};

std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_of(" \t#") == std::string::npos;
  return plain ? word : '"' + word + '"';
}

std::string line_of(const ScriptCommand& command) {
  switch (command.verb) {
    case ScriptVerb::kType: return "type " + command.args[0];
    case ScriptVerb::kSize: return fmt::format("size {:.0f} {:.0f}", command.x, command.y);
    case ScriptVerb::kMove: return fmt::format("move {:.0f} {:.0f}", command.x, command.y);
    case ScriptVerb::kScale: return fmt::format("scale {:.1f}", command.x);
    case ScriptVerb::kWaitIdle: return fmt::format("wait idle {:.0f}", command.x);
    default: break;
  }
  std::string line(script_verb_name(command.verb));
  for (std::size_t i = 0; i < command.args.size(); ++i) {
    line += ' ' + quoted(command.args[i]);
    if (i > 0) continue;
    if (command.verb == ScriptVerb::kWheel) line += fmt::format(" {:.0f}", command.x);
    if (command.verb == ScriptVerb::kDrag) line += fmt::format(" {:.0f} {:.0f}", command.x, command.y);
  }
  return line;
}

ScriptCommand command_of(ScriptVerb verb, std::vector<std::string> args = {}, double x = 0, double y = 0) {
  ScriptCommand command;
  command.verb = verb;
  command.args = std::move(args);
  command.x = x;
  command.y = y;
  return command;
}

}  // namespace

std::string RandomUser::any_item() {
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  std::vector<std::string_view> ids;
  for (const auto& [id, item] : items().all()) {
    const ImVec2 at = item.centre();
    if (at.x < 0 || at.y < 0 || at.x >= display.x || at.y >= display.y || forbidden(id, item)) continue;
    if (id.find('"') == std::string::npos) ids.push_back(id);
  }
  if (ids.empty()) return {};
  std::sort(ids.begin(), ids.end());
  for (int tries = 0; tries < 8; ++tries) {
    const std::string id(ids[below(ids.size())]);
    if (!heavy(id) || one_in(6)) return id;
  }
  return {};
}

void RandomUser::hold(ScriptCommand& command) {
  if (one_in(3)) command.args.emplace_back(any_of(kHeld));
}

ScriptCommand RandomUser::pointer(ScriptVerb verb) {
  std::string id = any_item();
  if (id.empty()) return key();
  ScriptCommand command = command_of(verb, {std::move(id)});
  const auto distance = [&] { return static_cast<double>(below(1200)) - 600; };
  if (verb == ScriptVerb::kDrag) {
    command.x = distance();
    command.y = distance();
  }
  if (verb == ScriptVerb::kWheel) command.x = static_cast<double>(below(41)) - 20;
  if (verb == ScriptVerb::kDrag || (verb == ScriptVerb::kClick && one_in(3))) hold(command);
  return command;
}

ScriptCommand RandomUser::key() {
  const bool writes = items().find("file.accept") != nullptr;
  for (;;) {
    std::string chord;
    if (one_in(2)) {
      chord = any_of(kPlainKeys);
    } else {
      const KeyBinding binding = any_of(key_map());
      const std::string action = binding.action;
      if (action == "file.quit" || action == "file.save" || binding.chord[0] == '\0') continue;
      if (action.rfind("run.", 0) == 0 && !one_in(6)) continue;
      chord = binding.chord;
    }
    if (writes && chord.find("enter") != std::string::npos) continue;
    return command_of(ScriptVerb::kKey, {chord});
  }
}

ScriptCommand RandomUser::of_window() {
  switch (below(5)) {
    case 0: {
      const auto& [width, height] = kSizes[below(std::size(kSizes))];
      return command_of(ScriptVerb::kSize, {}, width, height);
    }
    case 1: return command_of(ScriptVerb::kTheme, {any_of(kThemes).name});
    case 2: return command_of(ScriptVerb::kScale, {}, any_of(kScales));
    case 3:
      if (!drops_.empty()) return command_of(ScriptVerb::kDrop, {drops_[below(drops_.size())]});
      [[fallthrough]];
    default: return command_of(ScriptVerb::kWaitIdle, {}, 5);
  }
}

ScriptCommand RandomUser::next() {
  const Item* const stop = items().find("run.stop");
  if (stop != nullptr && one_in(8)) return command_of(ScriptVerb::kClick, {"run.stop"});
  if (std::exchange(click_next_, false) && !forbidden_at(ImGui::GetIO().MousePos))
    return command_of(one_in(4) ? ScriptVerb::kDoubleClick : ScriptVerb::kClick, {"mouse"});
  const std::uint64_t roll = below(100);
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  if (roll < 40) return pointer(ScriptVerb::kClick);
  if (roll < 46) return pointer(ScriptVerb::kDoubleClick);
  if (roll < 50) return pointer(ScriptVerb::kRightClick);
  if (roll < 54) return pointer(ScriptVerb::kHover);
  if (roll < 63) return pointer(ScriptVerb::kDrag);
  if (roll < 69) return pointer(ScriptVerb::kWheel);
  if (roll < 83) return key();
  if (roll < 91) return command_of(ScriptVerb::kType, {any_of(kTexts)});
  if (roll < 95) return of_window();
  // A window that writes by a click at any place: its dialog is closed first.
  if (items().find("file.accept") != nullptr) return command_of(ScriptVerb::kKey, {"escape"});
  click_next_ = true;
  return command_of(ScriptVerb::kMove, {},
                    static_cast<double>(below(static_cast<std::uint64_t>(display.x) + 1)),
                    static_cast<double>(below(static_cast<std::uint64_t>(display.y) + 1)));
}

RandomRun::RandomRun(const ScriptCommand& command, std::vector<std::string> drops)
    : seed_(static_cast<std::uint64_t>(command.x)),
      actions_(static_cast<int>(command.y)),
      trail_(command.args.size() > 2 ? command.args[2] : std::string()),
      user_(seed_, std::move(drops)),
      runner_({}) {
  if (!trail_.empty()) std::remove(trail_.c_str());
}

Status RandomRun::step(ScriptTarget& target) {
  const std::vector<std::string> faults = frame_faults();
  if (!faults.empty())
    return Error{Errc::check_failed,
                 fmt::format("action {} of seed {}, '{}': {}", made_, seed_, last_, faults.front())};
  if (runner_.finished()) {
    if (made_ == actions_) return {};
    ScriptCommand command = user_.next();
    ++made_;
    last_ = line_of(command);
    if (std::FILE* file = trail_.empty() ? nullptr : std::fopen(trail_.c_str(), "a")) {
      std::fprintf(file, "%s\n", last_.c_str());
      std::fclose(file);  // it is there if this action ends the process
    }
    runner_ = ScriptRunner::hasty(std::move(command));
  }
  const Status done = runner_.before_frame(target);
  if (!done) runner_ = ScriptRunner({});  // what it waited for did not come: the next one
  return {};
}

}  // namespace gradloom
