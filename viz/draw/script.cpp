#include "viz/draw/script.h"

#include <fmt/format.h>
#include <GLFW/glfw3.h>
#include <imgui.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "viz/draw/drawn_text.h"
#include "viz/draw/items.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/keys.h"
#include "viz/draw/random_user.h"
#include "viz/draw/theme.h"

namespace gradloom {
namespace {

constexpr double kItemSeconds = 20;    // an item to click must appear within this time
constexpr double kUntilSeconds = 300;  // `wait until` and `wait idle`
constexpr int kIdleFrames = 3;         // so many idle frames in a row count as idle

struct Grammar {
  const char* name;
  ScriptVerb verb;
  int min_args, max_args;
  int first_number;  // index of the first numeric argument, -1 when none
};

constexpr std::array<Grammar, 20> kGrammar{{{"click", ScriptVerb::kClick, 1, 6, -1},
                                            {"doubleclick", ScriptVerb::kDoubleClick, 1, 6, -1},
                                            {"rightclick", ScriptVerb::kRightClick, 1, 1, -1},
                                            {"hover", ScriptVerb::kHover, 1, 1, -1},
                                            {"drag", ScriptVerb::kDrag, 3, 8, 1},
                                            {"wheel", ScriptVerb::kWheel, 2, 4, 1},
                                            {"type", ScriptVerb::kType, 1, 1, -1},
                                            {"key", ScriptVerb::kKey, 1, 8, -1},
                                            {"wait", ScriptVerb::kWaitFrames, 1, 3, -1},
                                            {"expect", ScriptVerb::kExpect, 1, 2, -1},
                                            {"absent", ScriptVerb::kAbsent, 1, 1, -1},
                                            {"screenshot", ScriptVerb::kScreenshot, 1, 2, -1},
                                            {"size", ScriptVerb::kSize, 2, 2, 0},
                                            {"theme", ScriptVerb::kTheme, 1, 1, -1},
                                            {"scale", ScriptVerb::kScale, 1, 1, 0},
                                            {"drop", ScriptVerb::kDrop, 1, 1, -1},
                                            {"move", ScriptVerb::kMove, 2, 2, 0},
                                            {"uncut", ScriptVerb::kUncut, 0, 0, -1},
                                            {"reachable", ScriptVerb::kReachable, 0, 0, -1},
                                            {"random", ScriptVerb::kRandom, 2, 12, 0}}};

std::optional<double> number(const std::string& text) {
  const std::optional<double> value = parse_number<double>(text);
  return value && *value > -1e6 && *value < 1e6 ? value : std::nullopt;
}

Error at_line(int line, const std::string& why) {
  return {Errc::usage, fmt::format("script line {}: {}", line, why)};
}

// Words separated by blanks; "..." keeps blanks. Empty result: an unfinished quote.
std::optional<std::vector<std::string>> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (size_t i = 0; i < line.size();) {
    if (line[i] == ' ' || line[i] == '\t') {
      ++i;
    } else if (line[i] == '#') {
      break;
    } else if (line[i] == '"') {
      const size_t end = line.find('"', i + 1);
      if (end == std::string_view::npos) return std::nullopt;
      words.emplace_back(line.substr(i + 1, end - i - 1));
      i = end + 1;
    } else {
      const size_t end = std::min(line.find_first_of(" \t", i), line.size());
      words.emplace_back(line.substr(i, end - i));
      i = end;
    }
  }
  return words;
}

Status parse_wait(ScriptCommand& command) {
  const std::string& first = command.args[0];
  if (first == "until") {
    if (command.args.size() < 2) return at_line(command.line, "wait until needs an item");
    command.verb = ScriptVerb::kWaitUntil;
    command.args.erase(command.args.begin());
  } else if (first == "idle") {
    command.verb = ScriptVerb::kWaitIdle;
    command.x = kUntilSeconds;
    if (command.args.size() > 2) return at_line(command.line, "wait idle takes one number");
    if (command.args.size() == 2) {
      const auto seconds = number(command.args[1]);
      if (!seconds) return at_line(command.line, fmt::format("'{}' is not a number", command.args[1]));
      command.x = *seconds;
    }
  } else {
    const auto frames = number(first);
    if (!frames || *frames < 0 || command.args.size() > 1) {
      return at_line(command.line, "wait needs a number of frames, 'until ID' or 'idle'");
    }
    command.x = *frames;
  }
  return {};
}

// The words after an item and its numbers that say how a click or drag is made.
struct Held {
  const char* name;
  int key;  // 0: a button
  int button;
};
constexpr Held kHeld[] = {{"left", 0, 0},
                          {"right", 0, 1},
                          {"middle", 0, 2},
                          {"ctrl", GLFW_KEY_LEFT_CONTROL, 0},
                          {"shift", GLFW_KEY_LEFT_SHIFT, 0},
                          {"alt", GLFW_KEY_LEFT_ALT, 0},
                          {"space", GLFW_KEY_SPACE, 0}};

const Held* find_held(const std::string& name) {
  const auto* found =
      std::find_if(std::begin(kHeld), std::end(kHeld), [&](const Held& h) { return name == h.name; });
  return found == std::end(kHeld) ? nullptr : found;
}

Status check_arguments(ScriptCommand& command, const Grammar& grammar) {
  const auto count = static_cast<int>(command.args.size());
  if (count < grammar.min_args || count > grammar.max_args) {
    return at_line(command.line,
                   fmt::format("{} takes {} argument(s), not {}", grammar.name, grammar.min_args, count));
  }
  if (grammar.first_number >= 0) {
    for (int i = grammar.first_number; i < grammar.min_args; ++i) {
      const auto value = number(command.args[i]);
      if (!value) return at_line(command.line, fmt::format("'{}' is not a number", command.args[i]));
      (i == grammar.first_number ? command.x : command.y) = *value;
    }
  }
  if (command.args.empty()) return {};
  const std::string& last = command.args.back();
  if (command.verb == ScriptVerb::kWaitFrames) return parse_wait(command);
  if (command.verb == ScriptVerb::kKey) {
    for (const std::string& chord : command.args)
      if (!parse_chord(chord)) return at_line(command.line, fmt::format("'{}' is not a key", chord));
  }
  if (command.verb == ScriptVerb::kTheme && !find_theme(last)) {
    return at_line(command.line, "theme is dark, light or contrast");
  }
  if (command.verb == ScriptVerb::kScale && (command.x < 0.5 || command.x > 4)) {
    return at_line(command.line, "scale is 0.5 to 4");
  }
  if (command.verb == ScriptVerb::kSize &&
      (command.x < 200 || command.x > 8192 || command.y < 150 || command.y > 8192)) {
    return at_line(command.line, "size is 200 x 150 to 8192 x 8192");
  }
  if (command.verb == ScriptVerb::kRandom && (command.x < 0 || command.y < 1)) {
    return at_line(command.line, "random takes a seed and a number of actions");
  }
  if (grammar.max_args > grammar.min_args && command.verb != ScriptVerb::kKey &&
      command.verb != ScriptVerb::kExpect && command.verb != ScriptVerb::kRandom &&
      command.verb != ScriptVerb::kScreenshot) {
    for (int i = grammar.min_args; i < count; ++i)
      if (find_held(command.args[i]) == nullptr)
        return at_line(command.line, fmt::format("'{}' is neither a button nor ctrl, shift, alt or space",
                                                 command.args[i]));
  }
  return {};
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Result<std::vector<ScriptCommand>> parse_script(std::string_view text) {
  std::vector<ScriptCommand> commands;
  int line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const size_t start = line.find_first_not_of(" \t");
    if (start == std::string_view::npos || line[start] == '#') continue;
    line.remove_prefix(start);

    ScriptCommand command;
    command.line = line_number;
    std::string name(line.substr(0, line.find_first_of(" \t")));
    const auto* grammar =
        std::find_if(kGrammar.begin(), kGrammar.end(), [&](const Grammar& g) { return name == g.name; });
    if (grammar == kGrammar.end()) return at_line(line_number, fmt::format("unknown command '{}'", name));
    command.verb = grammar->verb;
    if (command.verb == ScriptVerb::kType) {  // the rest of the line, as it is
      const size_t rest = line.find_first_of(" \t");
      if (rest != std::string_view::npos) command.args.emplace_back(line.substr(rest + 1));
    } else {
      auto words = words_of(line);
      if (!words) return at_line(line_number, "a quote is not closed");
      command.args.assign(words->begin() + 1, words->end());
    }
    Status status = check_arguments(command, *grammar);
    if (!status.ok()) return status.error();
    commands.push_back(std::move(command));
  }
  return commands;
}

std::string_view script_verb_name(ScriptVerb verb) {
  const auto* const found =
      std::find_if(kGrammar.begin(), kGrammar.end(), [&](const Grammar& g) { return g.verb == verb; });
  return found == kGrammar.end() ? std::string_view("wait") : found->name;
}

ScriptRunner::ScriptRunner(std::vector<ScriptCommand> commands, double expect_seconds)
    : commands_(std::move(commands)), expect_seconds_(expect_seconds) {}
ScriptRunner::~ScriptRunner() = default;
ScriptRunner::ScriptRunner(ScriptRunner&&) noexcept = default;
ScriptRunner& ScriptRunner::operator=(ScriptRunner&&) noexcept = default;

ScriptRunner ScriptRunner::hasty(ScriptCommand command) {
  ScriptRunner runner({std::move(command)});
  runner.hasty_ = true;
  return runner;
}

Error ScriptRunner::fail(const ScriptCommand& command, const std::string& why) const {
  return {Errc::check_failed, fmt::format("script line {}: {}", command.line, why)};
}

void ScriptRunner::next() {
  ++at_;
  frame_ = pressed_ = 0;
  items().want({});
}

Status ScriptRunner::before_frame(ScriptTarget& target) {
  if (!finished()) {
    if (frame_ == 0) since_ns_ = now_ns();
    Status status = step(commands_[at_], target);
    if (!status.ok()) return status;
    ++frame_;
  }
  if (pressed_ < 0) next();
  return {};
}

// Sets pressed_ to -1 when the command is done with this frame.
Status ScriptRunner::step(const ScriptCommand& command, ScriptTarget& target) {
  switch (command.verb) {
    case ScriptVerb::kClick:
    case ScriptVerb::kDoubleClick:
    case ScriptVerb::kRightClick:
    case ScriptVerb::kHover:
    case ScriptVerb::kDrag:
    case ScriptVerb::kWheel: return pointer(command, target.input());
    case ScriptVerb::kType:
      if (frame_ == 0) target.input().text(command.args[0]);
      if (frame_ >= 2 && target.input().empty()) pressed_ = -1;
      return {};
    case ScriptVerb::kKey: keys(command, target.input()); return {};
    case ScriptVerb::kWaitFrames:
    case ScriptVerb::kWaitUntil:
    case ScriptVerb::kWaitIdle: return wait(command, target);
    case ScriptVerb::kExpect:
    case ScriptVerb::kAbsent: return expect(command);
    case ScriptVerb::kScreenshot: {
      // After two frames popups and sizes have settled.
      if (frame_ == 2) target.ask_picture(command.args[0], command.args.size() > 1 ? command.args[1] : "");
      if (frame_ < 3) return {};
      const std::optional<Status> made = target.take_picture();
      if (!made) return {};
      pressed_ = -1;
      return made->ok() ? *made
                        : Status(with_context(made->error(), fmt::format("script line {}", command.line)));
    }
    case ScriptVerb::kSize: target.resize(static_cast<int>(command.x), static_cast<int>(command.y)); break;
    case ScriptVerb::kTheme: target.set_theme(*find_theme(command.args[0])); break;
    case ScriptVerb::kScale: target.set_scale(static_cast<float>(command.x)); break;
    case ScriptVerb::kDrop: target.drop(command.args[0]); break;
    case ScriptVerb::kMove:
      if (frame_ == 0)
        target.input().move(mouse_x_ = static_cast<float>(command.x),
                            mouse_y_ = static_cast<float>(command.y));
      if (frame_ >= 1) pressed_ = -1;
      return {};
    case ScriptVerb::kUncut: {
      if (frame_ < 2) return {};  // sizes have settled
      pressed_ = -1;
      std::string all;
      const auto add = [&](const char* what, const std::vector<std::string>& texts) {
        for (const std::string& text : texts) all += (all.empty() ? "" : "; ") + std::string(what) + text;
      };
      add("cut off: ", cut_texts());
      add("overlapping: ", overlapping_texts());
      return all.empty() ? Status() : Status(fail(command, all));
    }
    case ScriptVerb::kReachable: {
      if (frame_ < 2) return {};
      pressed_ = -1;
      std::string all;
      for (const std::string& fault : out_of_reach()) all += (all.empty() ? "" : "; ") + fault;
      return all.empty() ? Status() : Status(fail(command, all));
    }
    case ScriptVerb::kRandom: return random(command, target);
  }
  pressed_ = -1;
  return {};
}

Status ScriptRunner::pointer(const ScriptCommand& command, InputQueue& input) {
  const ImGuiIO& io = ImGui::GetIO();
  const std::string& id = command.args[0];
  const int settles = hasty_ ? 0 : 2;  // frames to scroll into view
  if (pressed_ == 0 && id == "mouse") {
    if (frame_ < settles) return {};
  } else if (pressed_ == 0) {
    items().want(id);
    const Item* item = items().find(id);
    const bool inside = item != nullptr && item->centre().x >= 0 && item->centre().y >= 0 &&
                        item->centre().x < io.DisplaySize.x && item->centre().y < io.DisplaySize.y;
    if (!inside || frame_ < settles) {
      if (!hasty_ && static_cast<double>(now_ns() - since_ns_) < kItemSeconds * 1e9) return {};
      return fail(command, item ? fmt::format("item '{}' is outside the window", id)
                                : fmt::format("there is no item '{}'", id));
    }
    mouse_x_ = item->centre().x;
    mouse_y_ = item->centre().y;
    input.move(mouse_x_, mouse_y_);
  }
  ++pressed_;
  gesture(command, input);
  return {};
}

// Moved in frame 1, keys held from frame 2, pressed in 3.
void ScriptRunner::gesture(const ScriptCommand& command, InputQueue& input) {
  int button = command.verb == ScriptVerb::kRightClick ? 1 : 0;
  const bool words = command.verb == ScriptVerb::kClick || command.verb == ScriptVerb::kDoubleClick ||
                     command.verb == ScriptVerb::kDrag || command.verb == ScriptVerb::kWheel;
  const auto hold = [&](bool down) {
    for (size_t i = 1; words && i < command.args.size(); ++i)
      if (const Held* held = find_held(command.args[i]); held != nullptr && held->key != 0)
        input.key(held->key, down);
  };
  for (size_t i = 1; words && i < command.args.size(); ++i)
    if (const Held* held = find_held(command.args[i]); held != nullptr && held->key == 0)
      button = held->button;
  if (pressed_ == 2) hold(true);
  if (command.verb == ScriptVerb::kHover) {
    if (pressed_ == 4) pressed_ = -1;
  } else if (command.verb == ScriptVerb::kWheel) {
    if (pressed_ == 3) input.wheel(0, static_cast<float>(command.x));
    if (pressed_ == 5) hold(false);
    if (pressed_ == 6) pressed_ = -1;
  } else if (command.verb == ScriptVerb::kDrag) {
    constexpr int kSteps = 8;
    if (pressed_ == 3) input.button(button, true);
    if (pressed_ > 3 && pressed_ <= kSteps + 3) {
      mouse_x_ += px(static_cast<float>(command.x)) / kSteps;
      mouse_y_ += px(static_cast<float>(command.y)) / kSteps;
      input.move(mouse_x_, mouse_y_);
    }
    if (pressed_ == kSteps + 5) input.button(button, false);
    if (pressed_ == kSteps + 6) hold(false);
    if (pressed_ == kSteps + 7) pressed_ = -1;
  } else {  // pressed in 3, released in 4; again in 5 and 6 for a double click
    const int last = command.verb == ScriptVerb::kDoubleClick ? 6 : 4;
    if (pressed_ >= 3 && pressed_ <= last) input.button(button, pressed_ % 2 == 1);
    if (pressed_ == last + 1) hold(false);
    if (pressed_ == last + 2) {
      pressed_ = -1;
      // A click soon after must not count as the second half of a double click.
      ImGui::GetIO().MouseClickedTime[button] = -1e9;
    }
  }
}

void ScriptRunner::keys(const ScriptCommand& command, InputQueue& input) {
  if (frame_ == 1) {
    for (const std::string& text : command.args) {
      const Chord chord = *parse_chord(text);
      const std::pair<bool, int> modifiers[] = {{chord.ctrl, GLFW_KEY_LEFT_CONTROL},
                                                {chord.shift, GLFW_KEY_LEFT_SHIFT},
                                                {chord.alt, GLFW_KEY_LEFT_ALT}};
      for (const auto& [held, key] : modifiers)
        if (held) input.key(key, true);
      input.key(chord.key, true);
      input.key(chord.key, false);
      for (const auto& [held, key] : modifiers)
        if (held) input.key(key, false);
    }
  }
  if (frame_ >= 3 && input.empty()) pressed_ = -1;
}

Status ScriptRunner::wait(const ScriptCommand& command, ScriptTarget& target) {
  const double seconds = static_cast<double>(now_ns() - since_ns_) * 1e-9;
  if (command.verb == ScriptVerb::kWaitFrames) {
    if (frame_ >= static_cast<int>(command.x)) pressed_ = -1;
    return {};
  }
  if (command.verb == ScriptVerb::kWaitIdle) {
    pressed_ = target.idle() ? pressed_ + 1 : 0;
    if (pressed_ > kIdleFrames) {
      pressed_ = -1;
    } else if (seconds > command.x) {
      return fail(command, fmt::format("still busy after {:.0f} s", seconds));
    }
    return {};
  }
  const Item* item = items().find(command.args[0]);
  if (item && (command.args.size() < 2 || glob_match(command.args[1], item->value))) {
    pressed_ = -1;
  } else if (seconds > kUntilSeconds) {
    return fail(command, fmt::format("'{}' did not appear within {:.0f} s", command.args[0], seconds));
  }
  return {};
}

Status ScriptRunner::random(const ScriptCommand& command, ScriptTarget& target) {
  if (!random_) {
    const auto& args = command.args;
    random_ = std::make_unique<RandomRun>(
        command,
        std::vector<std::string>(args.begin() + std::min<std::ptrdiff_t>(3, std::ssize(args)), args.end()));
  }
  const Status done = random_->step(target);
  if (!done) return fail(command, done.error().message);
  if (random_->finished()) {
    random_.reset();
    pressed_ = -1;
  }
  return {};
}

Status ScriptRunner::expect(const ScriptCommand& command) {
  const Item* item = items().find(command.args[0]);
  bool holds = item != nullptr;
  if (command.verb == ScriptVerb::kAbsent) {
    holds = item == nullptr;
  } else if (holds && command.args.size() == 2) {
    holds = glob_match(command.args[1], item->value);
  }
  if (holds) {
    pressed_ = -1;
    return {};
  }
  if (static_cast<double>(now_ns() - since_ns_) < expect_seconds_ * 1e9) return {};
  if (command.verb == ScriptVerb::kAbsent)
    return fail(command, fmt::format("item '{}' is there", command.args[0]));
  if (!item) return fail(command, fmt::format("there is no item '{}'", command.args[0]));
  return fail(command,
              fmt::format("'{}' is '{}', expected '{}'", command.args[0], item->value, command.args[1]));
}

}  // namespace gradloom
