#include "viz/draw/platform.h"

#include <GL/gl.h>
#include <GL/glext.h>

#include <backends/imgui_impl_opengl3.h>
#include <imgui.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "viz/draw/items.h"
#include "viz/draw/png.h"
#include "viz/draw/script.h"
#include "viz/draw/surface.h"
#include "viz/draw/theme.h"
#include "viz/draw/vector_picture.h"

namespace gradloom {
namespace {

constexpr double kIdleFrameSeconds = 0.5;
constexpr double kQuietFrameSeconds = 0.2;
constexpr int kFramesAfterEvent = 3;  // ImGui needs a frame to see an event, one to lay out, one to settle

}  // namespace

// The colour buffer frames are drawn into.
class FrameBuffer {
 public:
  ~FrameBuffer() { release(); }
  void fit(int width, int height) {
    if (width == width_ && height == height_ && framebuffer_ != 0) return;
    release();
    width_ = width;
    height_ = height;
    glGenTextures(1, &texture_);
    glBindTexture(GL_TEXTURE_2D, texture_);
    glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA8, width, height, 0, GL_RGBA, GL_UNSIGNED_BYTE, nullptr);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
    glGenFramebuffers(1, &framebuffer_);
    glBindFramebuffer(GL_FRAMEBUFFER, framebuffer_);
    glFramebufferTexture2D(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, texture_, 0);
  }
  void release() {
    if (framebuffer_ != 0) glDeleteFramebuffers(1, &framebuffer_);
    if (texture_ != 0) glDeleteTextures(1, &texture_);
    framebuffer_ = texture_ = 0;
  }
  Image read() const {
    Image image{width_, height_, std::vector<uint8_t>(static_cast<size_t>(width_) * height_ * 3)};
    std::vector<uint8_t> bottom_up(image.rgb.size());
    glBindFramebuffer(GL_FRAMEBUFFER, framebuffer_);
    glPixelStorei(GL_PACK_ALIGNMENT, 1);
    glReadPixels(0, 0, width_, height_, GL_RGB, GL_UNSIGNED_BYTE, bottom_up.data());
    const size_t stride = static_cast<size_t>(width_) * 3;
    for (int y = 0; y < height_; ++y) {
      std::memcpy(&image.rgb[y * stride], &bottom_up[(height_ - 1 - y) * stride], stride);
    }
    return image;
  }
  unsigned framebuffer() const { return framebuffer_; }
  int width() const { return width_; }
  int height() const { return height_; }

 private:
  unsigned framebuffer_ = 0, texture_ = 0;
  int width_ = 0, height_ = 0;
};

struct Host::Impl : ScriptTarget {
  std::unique_ptr<Surface> surface;
  FrameBuffer canvas;
  std::function<bool()> busy;
  ThemeKind kind = ThemeKind::dark;
  bool headless = false, gl_ready = false;
  float scale = 1, environment_scale = 0, monitor = 1;
  bool style_changed = true, fonts_changed = true;
  int frames_left = kFramesAfterEvent;
  std::atomic<bool> closing{false}, quiet{false};
  bool close_asked = false;
  std::function<bool()> may_close;
  bool undrawn = false;  // the last frame is not in `canvas` yet
  int drawn_width = 0, drawn_height = 0;
  ImVec4 clear{};

  ~Impl() override {
    if (gl_ready) ImGui_ImplOpenGL3_Shutdown();
    canvas.release();
    if (surface) surface->shutdown_input();
    ImGui::DestroyContext();
  }

  float full_scale() const {
    return std::clamp(scale * (environment_scale > 0 ? environment_scale : monitor), 0.5f, 4.f);
  }

  void refresh_style() {
    const float now = surface->monitor_scale();
    if (now != monitor) {
      monitor = now;
      fonts_changed = true;
    }
    if (fonts_changed) {
      rasterize();
      load_fonts(full_scale());
      ImGui_ImplOpenGL3_DestroyFontsTexture();
      ImGui_ImplOpenGL3_CreateFontsTexture();
      style_changed = true;
    }
    if (style_changed) apply_theme(kind, full_scale());
    fonts_changed = style_changed = false;
  }

  // What ImGui made of the last frame, as pixels. Nobody sees those of a headless window but in a screenshot: they
  // are made for one, while what they are made of still stands.
  void rasterize() {
    if (!std::exchange(undrawn, false) || drawn_width <= 0 || drawn_height <= 0) return;
    canvas.fit(drawn_width, drawn_height);
    glBindFramebuffer(GL_FRAMEBUFFER, canvas.framebuffer());
    glViewport(0, 0, drawn_width, drawn_height);
    glClearColor(clear.x, clear.y, clear.z, 1);
    glClear(GL_COLOR_BUFFER_BIT);
    ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
    surface->present(canvas.framebuffer(), drawn_width, drawn_height);
  }

  struct Picture {
    std::string file, item;
    std::function<void(const Status&)> done;
    bool drawn = false;  // the frame that it is of
  };
  std::optional<Picture> picture;
  std::optional<Status> script_picture;

  // Between two frames: the last one still stands.
  void make_picture() {
    if (!picture) return;
    frames_left = std::max(frames_left, 2);
    if (!std::exchange(picture->drawn, true)) return set_hard_edges(picture->file.ends_with(".svg"));
    const Picture made = *std::exchange(picture, {});
    made.done(written(made));
    set_hard_edges(false);
  }

  Status written(const Picture& made) {
    ImVec2 min{0, 0}, max = ImGui::GetIO().DisplaySize;
    if (!made.item.empty()) {
      const Item* const item = items().find(made.item);
      if (item == nullptr)
        return Error{Errc::check_failed, "there is no '" + made.item + "' to make a picture of"};
      min = {std::max(0.f, item->min.x), std::max(0.f, item->min.y)};
      max = {std::min(max.x, item->max.x), std::min(max.y, item->max.y)};
    }
    if (made.file.ends_with(".svg")) return atomic_write_file(made.file, svg_of_frame(min, max));
    rasterize();
    const float x = static_cast<float>(drawn_width) / ImGui::GetIO().DisplaySize.x,
                y = static_cast<float>(drawn_height) / ImGui::GetIO().DisplaySize.y;
    const auto pixel = [](float at) { return static_cast<int>(std::lround(at)); };
    return write_png(made.file, part_of(canvas.read(), pixel(min.x * x), pixel(min.y * y), pixel(max.x * x),
                                        pixel(max.y * y)));
  }

  Status frame(const std::function<void()>& draw, ScriptRunner* script) {
    refresh_style();
    ImGui_ImplOpenGL3_NewFrame();
    surface->new_frame();
    items().begin_frame();
    make_picture();
    if (script) {
      Status status = script->before_frame(*this);
      if (!status.ok()) return status;
      refresh_style();
      if (headless) surface->new_frame();  // the script may have changed the size
    }
    surface->input.next_frame(ImGui::GetIO());
    ImGui::NewFrame();
    draw();
    ImGui::Render();
    surface->framebuffer_size(drawn_width, drawn_height);
    clear = ImGui::ColorConvertU32ToFloat4(palette().window);
    undrawn = true;
    if (!headless) rasterize();
    return {};
  }

  void wait_for_events(bool scripted) {
    double timeout_s = quiet ? kQuietFrameSeconds : kIdleFrameSeconds;
    if (scripted || (frames_left > 0 && !quiet)) timeout_s = 0;
    frames_left = std::max(0, frames_left - 1);
    if (surface->wait_events(timeout_s) && timeout_s > 0) frames_left = kFramesAfterEvent;
  }

  // ScriptTarget
  bool idle() const override { return !busy || !busy(); }
  void ask_picture(const std::string& file, const std::string& item) override {
    script_picture.reset();
    picture = Picture{file, item, [this](const Status& made) { script_picture = made; }};
  }
  std::optional<Status> take_picture() override { return std::exchange(script_picture, {}); }
  void resize(int width, int height) override { surface->resize(width, height); }
  void set_theme(ThemeKind to) override {
    kind = to;
    style_changed = true;
  }
  void set_scale(float to) override {
    scale = std::clamp(to, 0.5f, 4.f);
    fonts_changed = true;
  }
  void drop(const std::string& file) override { surface->dropped.push_back(file); }
  InputQueue& input() override { return surface->input; }
};

Host::Host(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Host::~Host() = default;

Result<std::unique_ptr<Host>> Host::create(const HostOptions& options) {
  IMGUI_CHECKVERSION();
  ImGui::CreateContext();
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;
  io.LogFilename = nullptr;
  auto impl = std::make_unique<Impl>();
  auto surface = options.headless ? make_headless_surface(options) : make_window_surface(options);
  if (!surface.ok()) return surface.error();
  impl->surface = std::move(surface).value();
  io.KeyMap[ImGuiKey_Tab] = -1;  // it is key_focus.h's
  impl->headless = options.headless;
  impl->kind = options.theme;
  if (options.scale > 0) {
    impl->environment_scale = options.scale;
  } else if (const char* text = std::getenv("GRADLOOM_SCALE")) {
    impl->environment_scale = static_cast<float>(std::atof(text));
  }
  impl->monitor = impl->surface->monitor_scale();
  load_fonts(impl->full_scale());
  if (!ImGui_ImplOpenGL3_Init("#version 330")) return Error{Errc::device, "OpenGL 3.3 cannot be used"};
  impl->gl_ready = true;
  ImGui_ImplOpenGL3_CreateFontsTexture();
  impl->fonts_changed = false;
  return std::unique_ptr<Host>(new Host(std::move(impl)));
}

Status Host::run(const std::function<void()>& draw, ScriptRunner* script) {
  Impl& impl = *impl_;
  impl.closing = false;
  int frames = 0;
  while (!impl.closing) {
    const bool asked = impl.surface->take_close();
    if ((std::exchange(impl.close_asked, false) || asked) && (!impl.may_close || impl.may_close())) break;
    const bool scripted = script && !script->finished();
    impl.wait_for_events(scripted || impl.headless);
    Status status = impl.frame(draw, scripted ? script : nullptr);
    if (!status.ok()) return status;
    ++frames;
    if (impl.headless && !scripted && (script || frames >= kFramesAfterEvent)) break;
  }
  return {};
}

void Host::close() { impl_->closing = true; }
void Host::ask_to_close() { impl_->close_asked = true; }
void Host::set_may_close(std::function<bool()> may_close) { impl_->may_close = std::move(may_close); }
void Host::wake() { impl_->surface->wake(); }
void Host::animate() { impl_->frames_left = std::max(impl_->frames_left, 2); }
void Host::set_quiet(bool quiet) { impl_->quiet = quiet; }
void Host::set_busy(std::function<bool()> busy) { impl_->busy = std::move(busy); }
void Host::set_theme(ThemeKind kind) {
  impl_->set_theme(kind);
  impl_->frames_left = kFramesAfterEvent;
}
void Host::set_scale(float scale) {
  impl_->set_scale(scale);
  impl_->frames_left = kFramesAfterEvent;
}
float Host::scale() const { return impl_->scale; }
void Host::toggle_fullscreen() { impl_->surface->toggle_fullscreen(); }
void Host::set_title(const std::string& title) { impl_->surface->set_title(title); }
bool Host::headless() const { return impl_->headless; }
std::vector<std::string> Host::take_dropped() { return std::exchange(impl_->surface->dropped, {}); }
void Host::ask_picture(const std::string& file, const std::string& item,
                       std::function<void(const Status&)> done) {
  impl_->picture = Impl::Picture{file, item, std::move(done)};
  animate();
}

}  // namespace gradloom
