#include "app/desktop/open.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "app/desktop/controller.h"
#include "app/desktop/window.h"
#include "app/user_folders.h"
#include "engine/base/file.h"
#include "viz/draw/platform.h"
#include "viz/draw/script.h"

namespace gradloom {
namespace {

constexpr std::int64_t kScriptBytes = 1 << 20;
constexpr const char* kProgram = "/proc/self/exe";  // runs are this executable again

Result<std::unique_ptr<Host>> create_host(const OpenOptions& options, const Settings& settings) {
  const bool display = std::getenv("DISPLAY") != nullptr || std::getenv("WAYLAND_DISPLAY") != nullptr;
  constexpr const char* kAdvice =
      "; `gradloom open --headless --screenshot FILE.png` draws without a display";
  if (!options.headless && !display) return Error{Errc::device, std::string("there is no display") + kAdvice};
  HostOptions host;
  host.headless = options.headless;
  host.width = options.width;
  host.height = options.height;
  host.scale = options.scale;
  host.theme = options.theme.value_or(settings.theme);
  auto created = Host::create(host);
  if (!created && !options.headless) return Error{Errc::device, created.error().message + kAdvice};
  return created;
}

// The script's commands, and at their end the picture.
Result<std::vector<ScriptCommand>> commands_of(const OpenOptions& options) {
  std::vector<ScriptCommand> commands;
  if (!options.script.empty()) {
    const std::string text = TRY(read_file_limited(options.script, kScriptBytes));
    auto parsed = parse_script(text);
    if (!parsed) return with_context(parsed.error(), options.script);
    commands = std::move(parsed).value();
  }
  std::vector<ScriptCommand> more = TRY(parse_script(options.commands));
  commands.insert(commands.end(), more.begin(), more.end());
  ScriptCommand idle;
  idle.verb = ScriptVerb::kWaitIdle;
  idle.x = 300;
  commands.push_back(idle);
  if (!options.screenshot.empty()) {
    ScriptCommand screenshot;
    screenshot.verb = ScriptVerb::kScreenshot;
    screenshot.args = {options.screenshot, options.screenshot_item};
    commands.push_back(screenshot);
  }
  return commands;
}

void open_first(Controller& controller, const OpenOptions& options) {
  std::string session = options.session;
  if (!session.empty()) {
    std::error_code ignored;
    const auto absolute = std::filesystem::absolute(session, ignored);
    if (!ignored) session = absolute.lexically_normal().string();
    controller.set_session(session);
  }
  controller.want_run(options.run, options.against);
  if (options.recipe)
    controller.open_recipe(*options.recipe);
  else if (!options.path.empty())
    controller.open(options.path == options.session ? session : options.path);
}

}  // namespace

Status parse_window_size(const std::string& text, OpenOptions& options) {
  char extra = 0;
  if (std::sscanf(text.c_str(), "%dx%d%c", &options.width, &options.height, &extra) == 2 &&
      options.width >= 320 && options.width <= 8192 && options.height >= 240 && options.height <= 8192)
    return {};
  return Error{Errc::usage, "--size expects WIDTHxHEIGHT between 320x240 and 8192x8192, e.g. 1600x900"};
}

Status open_window(const OpenOptions& options, std::stop_token stop) {
  // Tests and pictures start the same each time, unless they say where is kept what the next one starts with.
  const bool keeps = !options.headless || !options.keep.empty();
  const std::string data = !keeps ? std::string() : options.keep.empty() ? data_folder() : options.keep;
  const std::string settings_file = !keeps                 ? std::string()
                                    : options.keep.empty() ? settings_path()
                                                           : options.keep + "/settings.json";
  Settings settings = load_settings(settings_file);
  const auto host = TRY(create_host(options, settings));
  if (options.theme) settings.theme = *options.theme;
  if (settings.scale != 1 && options.scale <= 0) host->set_scale(settings.scale);

  const auto folder = [&data](const char* name) { return data.empty() ? data : data + "/" + name; };
  Controller controller(
      kProgram, settings, [&host] { host->wake(); }, folder("marks"), folder("background"));
  Window window(controller, *host, settings_file, folder("views"));
  host->set_busy([&window] { return window.busy(); });
  host->set_may_close([&window] { return window.may_close(); });
  const std::stop_callback on_stop(stop, [&host] {
    host->close();
    host->wake();
  });
  controller.set_remote_program(options.remote_program);
  if (options.run > 0) window.show_recorded();
  open_first(controller, options);
  const auto draw = [&window] { window.draw(); };
  if (!options.headless) {
    const Status closed = host->run(draw);
    return closed && stop.stop_requested() ? Status(Error{Errc::interrupted, ""}) : closed;
  }
  ScriptRunner script(TRY(commands_of(options)));
  Status status = host->run(draw, &script);
  if (!status && !options.script.empty()) return with_context(status.error(), options.script);
  if (status && stop.stop_requested()) return Error{Errc::interrupted, "interrupted"};
  // Nobody reads a toast here: what could not be opened is the command's error.
  const auto& failed = controller.state().open_failed;
  return status && failed ? Status(*failed) : status;
}

}  // namespace gradloom
