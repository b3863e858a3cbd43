// The window back end: GLFW with an OpenGL 3.3 core context.
#include <GL/gl.h>
#include <GL/glext.h>

#include <GLFW/glfw3.h>
#include <backends/imgui_impl_glfw.h>
#include <imgui.h>

#include <chrono>

#include "viz/draw/platform.h"
#include "viz/draw/surface.h"

namespace gradloom {
namespace {

class WindowSurface : public Surface {
 public:
  explicit WindowSurface(GLFWwindow* window) : window_(window) {
    glfwSetWindowUserPointer(window_, this);
    glfwSetDropCallback(window_, [](GLFWwindow* w, int count, const char** paths) {
      of(w)->dropped.insert(of(w)->dropped.end(), paths, paths + count);
    });
    queue_input();
    ImGui_ImplGlfw_InitForOpenGL(window_, false);  // for size, time and cursor shapes; events are queued here
  }
  ~WindowSurface() override {
    glfwDestroyWindow(window_);
    glfwTerminate();
  }
  void shutdown_input() override { ImGui_ImplGlfw_Shutdown(); }
  void new_frame() override { ImGui_ImplGlfw_NewFrame(); }
  bool wait_events(double timeout_s) override {
    if (timeout_s <= 0 || !input.empty()) {
      glfwPollEvents();
      return true;
    }
    const auto start = std::chrono::steady_clock::now();
    glfwWaitEventsTimeout(timeout_s);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < timeout_s * 0.95;
  }
  void present(unsigned framebuffer, int width, int height) override {
    glBindFramebuffer(GL_READ_FRAMEBUFFER, framebuffer);
    glBindFramebuffer(GL_DRAW_FRAMEBUFFER, 0);
    glBlitFramebuffer(0, 0, width, height, 0, 0, width, height, GL_COLOR_BUFFER_BIT, GL_NEAREST);
    glfwSwapBuffers(window_);
  }
  void framebuffer_size(int& width, int& height) override {
    glfwGetFramebufferSize(window_, &width, &height);
  }
  float monitor_scale() override {
    float content = 1, unused = 1;
    glfwGetWindowContentScale(window_, &content, &unused);
    int window_width = 0, pixel_width = 0, ignored = 0;
    glfwGetWindowSize(window_, &window_width, &ignored);
    glfwGetFramebufferSize(window_, &pixel_width, &ignored);
    // Where the window system scales pixels itself (window size in points) only the rest is ours.
    return window_width > 0 && pixel_width > 0
               ? content * static_cast<float>(window_width) / static_cast<float>(pixel_width)
               : content;
  }
  bool take_close() override {
    const bool asked = glfwWindowShouldClose(window_) != 0;
    if (asked) glfwSetWindowShouldClose(window_, GLFW_FALSE);
    return asked;
  }
  void wake() override { glfwPostEmptyEvent(); }
  void resize(int width, int height) override { glfwSetWindowSize(window_, width, height); }
  void toggle_fullscreen() override {
    if (glfwGetWindowMonitor(window_)) {
      glfwSetWindowMonitor(window_, nullptr, x_, y_, width_, height_, GLFW_DONT_CARE);
      return;
    }
    GLFWmonitor* monitor = glfwGetPrimaryMonitor();
    if (!monitor) return;
    glfwGetWindowPos(window_, &x_, &y_);
    glfwGetWindowSize(window_, &width_, &height_);
    const GLFWvidmode* mode = glfwGetVideoMode(monitor);
    glfwSetWindowMonitor(window_, monitor, 0, 0, mode->width, mode->height, mode->refreshRate);
  }
  void set_title(const std::string& title) override { glfwSetWindowTitle(window_, title.c_str()); }

 private:
  static WindowSurface* of(GLFWwindow* window) {
    return static_cast<WindowSurface*>(glfwGetWindowUserPointer(window));
  }
  void queue_input() {
    glfwSetKeyCallback(window_, [](GLFWwindow* w, int key, int, int action, int) {
      if (action != GLFW_REPEAT) of(w)->input.key(key, action == GLFW_PRESS);  // ImGui repeats by itself
    });
    glfwSetCharCallback(window_,
                        [](GLFWwindow* w, unsigned codepoint) { of(w)->input.character(codepoint); });
    glfwSetMouseButtonCallback(window_, [](GLFWwindow* w, int button, int action, int) {
      of(w)->input.button(button, action == GLFW_PRESS);
    });
    glfwSetScrollCallback(window_, [](GLFWwindow* w, double x, double y) {
      of(w)->input.wheel(static_cast<float>(x), static_cast<float>(y));
    });
    glfwSetCursorPosCallback(window_, [](GLFWwindow* w, double x, double y) {
      of(w)->input.move(static_cast<float>(x), static_cast<float>(y));
    });
    glfwSetCursorEnterCallback(window_, [](GLFWwindow* w, int entered) {
      bool held = false;  // a drag goes on outside
      for (int b = GLFW_MOUSE_BUTTON_LEFT; b <= GLFW_MOUSE_BUTTON_MIDDLE; ++b)
        held |= glfwGetMouseButton(w, b) == GLFW_PRESS;
      if (!entered && !held) of(w)->input.leave();
    });
    glfwSetWindowFocusCallback(window_, [](GLFWwindow* w, int focused) {
      if (!focused) of(w)->input.focus_lost();
    });
  }

  GLFWwindow* window_;
  int x_ = 0, y_ = 0, width_ = 0, height_ = 0;  // of the window before full screen
};

}  // namespace

Result<std::unique_ptr<Surface>> make_window_surface(const HostOptions& options) {
  static std::string why;  // GLFW reports through a callback without a user pointer
  glfwSetErrorCallback([](int, const char* text) { why = text; });
  if (!glfwInit())
    return Error{Errc::device, "cannot open a window: " + why + " (--headless draws without a display)"};
  glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
  glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
  glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
  glfwWindowHint(GLFW_OPENGL_FORWARD_COMPAT, GLFW_TRUE);
  glfwWindowHint(GLFW_SCALE_TO_MONITOR, GLFW_TRUE);
  GLFWwindow* window =
      glfwCreateWindow(options.width, options.height, options.title.c_str(), nullptr, nullptr);
  if (!window) {
    glfwTerminate();
    return Error{Errc::device, "cannot open a window with OpenGL 3.3: " + why};
  }
  glfwMakeContextCurrent(window);
  glfwSwapInterval(1);
  return std::unique_ptr<Surface>(new WindowSurface(window));
}

}  // namespace gradloom
