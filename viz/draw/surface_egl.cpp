// The headless back end: EGL on Mesa's surfaceless platform (no X11, no Wayland),
// frames stay in the off-screen buffer.
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GL/gl.h>
#include <GLFW/glfw3.h>
#include <imgui.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "viz/draw/platform.h"
#include "viz/draw/surface.h"

namespace gradloom {
namespace {

// The same key numbers as the window back end, so that key handling cannot tell the two apart.
void map_keys(ImGuiIO& io) {
  const std::pair<int, int> keys[] = {{ImGuiKey_Tab, GLFW_KEY_TAB},
                                      {ImGuiKey_LeftArrow, GLFW_KEY_LEFT},
                                      {ImGuiKey_RightArrow, GLFW_KEY_RIGHT},
                                      {ImGuiKey_UpArrow, GLFW_KEY_UP},
                                      {ImGuiKey_DownArrow, GLFW_KEY_DOWN},
                                      {ImGuiKey_PageUp, GLFW_KEY_PAGE_UP},
                                      {ImGuiKey_PageDown, GLFW_KEY_PAGE_DOWN},
                                      {ImGuiKey_Home, GLFW_KEY_HOME},
                                      {ImGuiKey_End, GLFW_KEY_END},
                                      {ImGuiKey_Insert, GLFW_KEY_INSERT},
                                      {ImGuiKey_Delete, GLFW_KEY_DELETE},
                                      {ImGuiKey_Backspace, GLFW_KEY_BACKSPACE},
                                      {ImGuiKey_Space, GLFW_KEY_SPACE},
                                      {ImGuiKey_Enter, GLFW_KEY_ENTER},
                                      {ImGuiKey_Escape, GLFW_KEY_ESCAPE},
                                      {ImGuiKey_KeyPadEnter, GLFW_KEY_KP_ENTER},
                                      {ImGuiKey_A, GLFW_KEY_A},
                                      {ImGuiKey_C, GLFW_KEY_C},
                                      {ImGuiKey_V, GLFW_KEY_V},
                                      {ImGuiKey_X, GLFW_KEY_X},
                                      {ImGuiKey_Y, GLFW_KEY_Y},
                                      {ImGuiKey_Z, GLFW_KEY_Z}};
  for (const auto& [key, code] : keys) io.KeyMap[key] = code;
}

class HeadlessSurface : public Surface {
 public:
  HeadlessSurface(EGLDisplay display, EGLSurface surface, EGLContext context, int width, int height)
      : display_(display), surface_(surface), context_(context), width_(width), height_(height) {
    ImGuiIO& io = ImGui::GetIO();
    io.BackendPlatformName = "gradloom_headless";
    io.ConfigInputTextCursorBlink = false;  // the same script draws the same pixels
    map_keys(io);
  }
  ~HeadlessSurface() override {
    eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
    eglDestroyContext(display_, context_);
    if (surface_ != EGL_NO_SURFACE) eglDestroySurface(display_, surface_);
    eglTerminate(display_);
  }
  void shutdown_input() override {}
  void new_frame() override {
    ImGuiIO& io = ImGui::GetIO();
    io.DisplaySize = {static_cast<float>(width_), static_cast<float>(height_)};
    io.DisplayFramebufferScale = {1, 1};
    io.DeltaTime = 1.f / 60;
  }
  bool wait_events(double) override {
    if (!woken_.exchange(false)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  }
  // Nothing is shown; waiting keeps a software rasterizer from queueing hundreds of frames
  // until somebody reads one.
  void present(unsigned, int, int) override { glFinish(); }
  void framebuffer_size(int& width, int& height) override {
    width = width_;
    height = height_;
  }
  float monitor_scale() override { return 1; }
  bool take_close() override { return false; }
  void wake() override { woken_ = true; }
  void resize(int width, int height) override {
    width_ = width;
    height_ = height;
  }
  void toggle_fullscreen() override {}
  void set_title(const std::string&) override {}

 private:
  EGLDisplay display_;
  EGLSurface surface_;
  EGLContext context_;
  int width_, height_;
  std::atomic<bool> woken_{false};
};

EGLDisplay open_display() {
  // Client extension; without it eglGetPlatformDisplay fails and the default display is tried.
  EGLDisplay display = eglGetPlatformDisplay(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
  if (display != EGL_NO_DISPLAY && eglInitialize(display, nullptr, nullptr)) return display;
  display = eglGetDisplay(EGL_DEFAULT_DISPLAY);
  if (display != EGL_NO_DISPLAY && eglInitialize(display, nullptr, nullptr)) return display;
  return EGL_NO_DISPLAY;
}

}  // namespace

Result<std::unique_ptr<Surface>> make_headless_surface(const HostOptions& options) {
  const EGLDisplay display = open_display();
  if (display == EGL_NO_DISPLAY)
    return Error{Errc::device, "cannot draw headless: no EGL display (is libegl-mesa0 installed?)"};
  auto fail = [&](const char* what) {
    eglTerminate(display);
    return Error{Errc::device, std::string("cannot draw headless: ") + what};
  };
  const EGLint config_wish[] = {EGL_SURFACE_TYPE,
                                EGL_PBUFFER_BIT,
                                EGL_RENDERABLE_TYPE,
                                EGL_OPENGL_BIT,
                                EGL_RED_SIZE,
                                8,
                                EGL_GREEN_SIZE,
                                8,
                                EGL_BLUE_SIZE,
                                8,
                                EGL_NONE};
  EGLConfig config = nullptr;
  EGLint count = 0;
  if (!eglBindAPI(EGL_OPENGL_API) || !eglChooseConfig(display, config_wish, &config, 1, &count) ||
      count == 0) {
    return fail("no EGL configuration for OpenGL");
  }
  const EGLint context_wish[] = {EGL_CONTEXT_MAJOR_VERSION,
                                 3,
                                 EGL_CONTEXT_MINOR_VERSION,
                                 3,
                                 EGL_CONTEXT_OPENGL_PROFILE_MASK,
                                 EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT,
                                 EGL_NONE};
  const EGLContext context = eglCreateContext(display, config, EGL_NO_CONTEXT, context_wish);
  if (context == EGL_NO_CONTEXT) return fail("no OpenGL 3.3 core context");
  const EGLint surface_wish[] = {EGL_WIDTH, 16, EGL_HEIGHT, 16, EGL_NONE};
  const EGLSurface surface = eglCreatePbufferSurface(display, config, surface_wish);
  if (!eglMakeCurrent(display, surface, surface, context)) {
    eglDestroyContext(display, context);
    return fail("the OpenGL context cannot be used");
  }
  return std::unique_ptr<Surface>(
      new HeadlessSurface(display, surface, context, options.width, options.height));
}

}  // namespace gradloom
