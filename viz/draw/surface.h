// What a back end of the window host must do. Private to viz/draw.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "viz/draw/input_queue.h"

namespace gradloom {

struct HostOptions;

class Surface {
 public:
  virtual ~Surface() = default;
  virtual void new_frame() = 0;  // fills ImGui's io: size and time; input comes from `input`
  virtual bool wait_events(double timeout_s) = 0;  // true when something happened
  virtual void present(unsigned framebuffer, int width, int height) = 0;
  virtual void framebuffer_size(int& width, int& height) = 0;  // pixels
  virtual float monitor_scale() = 0;
  virtual bool take_close() = 0;                   // whether the user asked for it since the last call
  virtual void wake() = 0;                         // from any thread
  virtual void resize(int width, int height) = 0;  // points of the window system
  virtual void toggle_fullscreen() = 0;
  virtual void set_title(const std::string& title) = 0;
  virtual void shutdown_input() = 0;  // before ImGui's context goes
  std::vector<std::string> dropped;
  InputQueue input;
};

// Both leave a current OpenGL 3.3 core context and need ImGui's context to exist.
Result<std::unique_ptr<Surface>> make_window_surface(const HostOptions& options);
Result<std::unique_ptr<Surface>> make_headless_surface(const HostOptions& options);

}  // namespace gradloom
