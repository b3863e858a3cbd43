// gradloom open: the window, on a display or drawn without one.
#include <CLI/CLI.hpp>

#include <filesystem>
#include <system_error>

#include "app/commands/commands.h"
#include "app/recipe_flags.h"
#include "app/remote/address.h"
#include "engine/base/text.h"
#include "sessions/store.h"
#ifdef GRADLOOM_DESKTOP
#include "app/desktop/open.h"
#include "app/desktop/suggest.h"
#endif

namespace gradloom {
namespace {

struct OpenArguments {
  RecipeFlags recipe;
  std::string run, against;
  std::string path, session, script, screenshot, size, theme, keep, remote_program;
  double scale = 0;
  bool headless = false;
};

#ifdef GRADLOOM_DESKTOP
Status open_with(const OpenArguments& o, CommandContext& context) {
  OpenOptions options;
  options.session = o.session;
  options.script = o.script;
  options.screenshot = o.screenshot;
  options.keep = o.keep;
  options.headless = o.headless;
  options.scale = static_cast<float>(o.scale);
  if (!o.theme.empty()) options.theme = find_theme(o.theme);
  if (!o.size.empty()) TRY(parse_window_size(o.size, options));
  if (!o.headless && (!o.script.empty() || !o.screenshot.empty()))
    return Error{Errc::usage, "--script and --screenshot need --headless"};
  if (!o.screenshot.empty() && !o.screenshot.ends_with(".png") && !o.screenshot.ends_with(".svg"))
    return Error{Errc::usage, "--screenshot writes .png or .svg, not '" + escaped(o.screenshot) + "'"};
  TRY(o.recipe.load_ops());
  if (!o.remote_program.empty()) options.remote_program = o.remote_program;
  // A session alone shows what it holds, the model of its newest run too.
  std::error_code ignored;
  const bool session_alone = o.path.empty() && !o.recipe.given("recipe") &&
                             file_kind(o.session) == FileKind::session &&
                             std::filesystem::exists(o.session, ignored);
  const std::string path = file_to_open(session_alone ? o.session : o.path);
  const FileKind kind = file_kind(path);
  if ((!o.run.empty() || !o.against.empty()) && kind != FileKind::session)
    return Error{Errc::usage, "--run and --against are of a session that is opened"};
  const bool of_job =
      path.empty() ? o.recipe.given("recipe") : kind == FileKind::model || kind == FileKind::unknown;
  if (!of_job && o.recipe.any_given("ops"))  // operators a session's model needs, too
    return Error{
        Errc::usage,
        "flags of a job go with a MODEL or with --recipe, a file or a run of a session: SESSION#RUN"};
  if (is_remote(path)) {
    TRY(parse_remote(path));
    options.path = path;
  } else if (of_job) {
    RecipeFlags flags = o.recipe;
    flags.set_model(path);
    Recipe recipe = TRY(flags.resolve());
    // Without a recipe the window starts where a first look is most useful; what a flag says stays.
    if (!flags.given("recipe") && !flags.given("steps")) recipe.steps = kFirstSteps;
    options.recipe = std::move(recipe);
  } else {
    options.path = path;
    if (!o.run.empty() || !o.against.empty()) {
      const auto store = TRY(Store::open(path, StoreMode::read));
      options.run = TRY(store->find_run(o.run.empty() ? "last" : o.run));
      if (!o.against.empty()) options.against = TRY(store->find_run(o.against));
    }
  }
  const Finishing finishing(context);  // runs are child processes, which the window ends with itself
  return open_window(options, context.stop);
}
#endif

}  // namespace

CommandRun declare_open(CLI::App& app) {
  auto options = std::make_shared<OpenArguments>();
  app.add_option(
      "FILE", options->path,
      "ONNX model, session (.db), recipe (.json), a folder that gradloom.torch.capture wrote, or a session of another machine: "
      "ssh://[user@]host[:port]/path");
  options->recipe.declare(app, false);
  app.add_option("--session", options->session, "session file in which runs are recorded");
  app.add_option("--run", options->run, "of a session: the run that is shown, by number or name");
  app.add_option("--against", options->against, "of a session: the run that it is compared with");
  app.add_flag("--headless", options->headless, "draw without a display, through EGL");
  app.add_option("--script", options->script, "with --headless: file with commands that drive the window");
  app.add_option("--screenshot", options->screenshot,
                 "with --headless: file for the last frame, .png or .svg");
  app.add_option(
      "--keep", options->keep,
      "folder of settings, notes and views, from which the next window starts; else the user's, and "
      "with --headless none");
  app.add_option("--size", options->size, "window size, e.g. 1600x900");
  app.add_option("--theme", options->theme, "dark, light or contrast")
      ->check(CLI::IsMember({"dark", "light", "contrast"}));
  app.add_option("--scale", options->scale, "size of text and controls; 0 takes the display's")
      ->check(CLI::Range(0.0, 4.0));
  app.add_option("--remote-program", options->remote_program,
                 "with ssh://: gradloom at the far end, where it is not in the path");
  return [options]([[maybe_unused]] CommandContext& context) -> Status {
#ifdef GRADLOOM_DESKTOP
    return open_with(*options, context);
#else
    return Error{Errc::usage,
                 "this build has no window (configured without GRADLOOM_DESKTOP); the other commands do "
                 "everything it does"};
#endif
  };
}

}  // namespace gradloom
