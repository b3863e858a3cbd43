// Scripted driving of the window, for tests, screenshots and the demo:
// one command per line, '#' starts a comment.
//
//   click ID [HOW...] | doubleclick ID [HOW...] | rightclick ID | hover ID
//                              the centre of an item (items.h); waits until it exists. The item `mouse` is
//                              where the pointer is: what lies under it now is clicked
//   drag ID DX DY [HOW...]     from the item's centre, in points
//   wheel ID N [HOW...]        N notches over the item; positive is up
//   type TEXT                  into what has the focus
//   key CHORD...               "ctrl+shift+p", "f5", "escape"; all pressed and released within one frame
//   wait FRAMES | wait until ID [VALUE] | wait idle [SECONDS]
//   expect ID [VALUE] | absent ID     VALUE may hold * and ?; both are given five seconds
//   screenshot FILE [ID]       the window, or an item of it such as pane.Roofline, as .png or .svg
//   size W H | theme dark|light|contrast | scale X | drop FILE
//   uncut                      no text is cut off at its left or right, or lies over another (drawn_text.h)
//   reachable                  all that can be clicked now is a stop of Tab or done by an action's key (key_focus.h)
//   move X Y                   the pointer to a place of the window
//   random SEED ACTIONS [TRAIL [FILE..]]   anything, ACTIONS times (random_user.h); each action is written to the
//                              file TRAIL before it is done, FILEs are dropped on the window at times. No frame may have
//                              a fault (frame_faults.h)
//
// HOW is a button (left, right, middle) or a key held meanwhile (ctrl, shift, alt, space).
// An ID or VALUE with spaces is put in double quotes. An error names the line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "viz/draw/input_queue.h"
#include "viz/model/theme_kind.h"

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
  kDrop,
  kMove,
  kUncut,
  kReachable,
  kRandom
};

struct ScriptCommand {
  ScriptVerb verb = ScriptVerb::kWaitFrames;
  std::vector<std::string> args;  // as written, unquoted
  double x = 0, y = 0;            // numbers of drag, wheel, wait, size, scale, move and random
  int line = 0;
};

Result<std::vector<ScriptCommand>> parse_script(std::string_view text);
std::string_view script_verb_name(ScriptVerb verb);  // as scripts spell it

class RandomRun;

// What the script asks of the window it drives.
class ScriptTarget {
 public:
  virtual ~ScriptTarget() = default;
  virtual bool idle() const = 0;
  // Of the next frame, or of an item in it (empty: all of it), as .png or .svg
  virtual void ask_picture(const std::string& file, const std::string& item) = 0;
  virtual std::optional<Status> take_picture() = 0;  // nothing: it is still to be made
  virtual void resize(int width, int height) = 0;
  virtual void set_theme(ThemeKind kind) = 0;
  virtual void set_scale(float scale) = 0;
  virtual void drop(const std::string& file) = 0;
  virtual InputQueue& input() = 0;
};

// Queues input before each frame, as the window's events do. One command after the other; a click takes
// several frames: what is under the pointer settles first.
class ScriptRunner {
 public:
  // `expect_seconds`: how long an expectation may take to come true.
  explicit ScriptRunner(std::vector<ScriptCommand> commands, double expect_seconds = 5);
  ~ScriptRunner();
  ScriptRunner(ScriptRunner&&) noexcept;
  ScriptRunner& operator=(ScriptRunner&&) noexcept;
  // One command, without waiting for an item that is not there or for what is under the pointer to settle.
  static ScriptRunner hasty(ScriptCommand command);

  // Call before ImGui::NewFrame. An error ends the script.
  Status before_frame(ScriptTarget& target);
  bool finished() const { return at_ >= commands_.size(); }

 private:
  Status step(const ScriptCommand& command, ScriptTarget& target);
  Status pointer(const ScriptCommand& command, InputQueue& input);
  void gesture(const ScriptCommand& command, InputQueue& input);
  Status wait(const ScriptCommand& command, ScriptTarget& target);
  Status expect(const ScriptCommand& command);
  void keys(const ScriptCommand& command, InputQueue& input);
  Status random(const ScriptCommand& command, ScriptTarget& target);
  void next();
  Error fail(const ScriptCommand& command, const std::string& why) const;

  std::vector<ScriptCommand> commands_;
  double expect_seconds_;
  bool hasty_ = false;
  std::unique_ptr<RandomRun> random_;  // while one goes on
  size_t at_ = 0;
  int frame_ = 0;         // frames spent in the current command
  int64_t since_ns_ = 0;  // start of the current command
  int pressed_ = 0;       // frames since the item was found
  float mouse_x_ = 0, mouse_y_ = 0;
};

}  // namespace gradloom
