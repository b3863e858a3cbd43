// The window: one small class over two back ends. "window" is GLFW; "headless" is EGL without any display
// server, making the same frames and drawing those into memory of which a screenshot is asked for. Both draw into an
// off-screen buffer first, so a screenshot is the exact frame.
//
// Redraw is event-driven: frames are drawn after input, on wake(), while animate() asks for more, and twice a
// second at most otherwise, so that an open window does not disturb the steps being timed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "viz/model/theme_kind.h"

namespace gradloom {

class ScriptRunner;

struct HostOptions {
  std::string title = "Gradloom";
  bool headless = false;
  int width = 1600, height = 900;
  float scale = 0;  // UI scale; 0 = GRADLOOM_SCALE, else the monitor's
  ThemeKind theme = ThemeKind::dark;
};

class Host {
 public:
  static Result<std::unique_ptr<Host>> create(const HostOptions& options);
  ~Host();

  // Draws until close() or, headless, until the script ends (without a script: three frames).
  // The error is the script's.
  Status run(const std::function<void()>& draw, ScriptRunner* script = nullptr);

  void close();
  void ask_to_close();  // as the window's own button does: it closes where set_may_close's function says so
  void set_may_close(std::function<bool()> may_close);  // without it, it may
  void wake();                                          // from any thread: something changed, draw a frame
  void animate();                                       // from draw code: another frame soon
  void set_quiet(bool quiet);                 // at most five frames a second (while steps are timed)
  void set_busy(std::function<bool()> busy);  // background work that `wait idle` waits for

  void set_theme(ThemeKind kind);  // from the next frame on
  void set_scale(float scale);     // 0.5 to 4, relative to the monitor's
  float scale() const;
  void toggle_fullscreen();
  void set_title(const std::string& title);
  bool headless() const;
  std::vector<std::string> take_dropped();  // files dropped on the window since the last call
  // The next frame, or an item in it (empty: all of it), as .png or .svg; `done` hears of it two frames later.
  void ask_picture(const std::string& file, const std::string& item, std::function<void(const Status&)> done);

  struct Impl;

 private:
  explicit Host(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradloom
