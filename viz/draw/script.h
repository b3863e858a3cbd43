// Scripted driving of the window, for tests, screenshots and the demo: one command per line, '#' starts a
// comment.
//
//   click ID | doubleclick ID | rightclick ID | hover ID    the centre of an item (items.h); waits until it
//   exists drag ID DX DY [left|right|middle]                        from the item's centre, in points wheel
//   ID N                                               N notches over the item; positive is up type TEXT |
//   key CHORD                                    type into what has the focus; "ctrl+shift+p", "f5", "escape"
//   wait FRAMES | wait until ID [VALUE] | wait idle [SECONDS]
//   expect ID [VALUE] | absent ID                            VALUE may hold * and ?; both are given five
//   seconds screenshot FILE | size W H | theme dark|light | scale X | drop FILE
//
// An ID or VALUE with spaces is put in double quotes. An error names the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

enum class ScriptVerb : uint8_t {
  kClick,
  kDoubleClick,
  kRightClick,
  kHover,
  kDrag,
  kWheel,
  kType,
  kKey,
  kWaitFrames,
  kWaitUntil,
  kWaitIdle,
  kExpect,
  kAbsent,
  kScreenshot,
  kSize,
  kTheme,
  kScale,
  kDrop
};

struct ScriptCommand {
  ScriptVerb verb = ScriptVerb::kWaitFrames;
  std::vector<std::string> args;  // as written, unquoted
  double x = 0, y = 0;            // numbers of drag, wheel, wait, size and scale
  int line = 0;
};

Result<std::vector<ScriptCommand>> parse_script(std::string_view text);

// What the script asks of the window it drives.
class ScriptTarget {
 public:
  virtual ~ScriptTarget() = default;
  virtual bool idle() const = 0;
  virtual Status screenshot(const std::string& file) = 0;  // of the last complete frame
  virtual void resize(int width, int height) = 0;
  virtual void set_theme(bool dark) = 0;
  virtual void set_scale(float scale) = 0;
  virtual void drop(const std::string& file) = 0;
};

// Writes input into ImGui's io before each frame. One command after the other; a click takes several frames
// because ImGui 1.86 sees a button press only as a change between two frames.
class ScriptRunner {
 public:
  // `expect_seconds`: how long an expectation may take to come true.
  explicit ScriptRunner(std::vector<ScriptCommand> commands, double expect_seconds = 5)
      : commands_(std::move(commands)), expect_seconds_(expect_seconds) {}

  // Call before ImGui::NewFrame. An error ends the script.
  Status before_frame(ScriptTarget& target);
  bool finished() const { return at_ >= commands_.size(); }

 private:
  Status step(const ScriptCommand& command, ScriptTarget& target);
  Status pointer(const ScriptCommand& command);
  Status wait(const ScriptCommand& command, ScriptTarget& target);
  Status expect(const ScriptCommand& command);
  void key(const ScriptCommand& command);
  void next();
  Error fail(const ScriptCommand& command, const std::string& why) const;

  std::vector<ScriptCommand> commands_;
  double expect_seconds_;
  size_t at_ = 0;
  int frame_ = 0;         // frames spent in the current command
  int64_t since_ns_ = 0;  // start of the current command
  int pressed_ = 0;       // frames since the item was found
  float mouse_x_ = -1, mouse_y_ = -1;
};

}  // namespace gradloom
