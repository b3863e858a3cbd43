// export --view: what a view of the window shows, as a table or as a picture.
#pragma once

#include <string>

#include "app/command.h"

namespace gradloom {

struct ExportViewOptions {
  std::string view, against;                        // against: side A of a comparison, a run of the session
  std::string size = "1600x1000", theme = "light";  // of the window that the picture is of
};

// The flags of --view, and what they ask for. A view runs the command that tells what it shows, or draws it in a window: so
// libgradloom.so, which has neither all commands nor a window, exports without.
struct ExportViews {
  void (*declare)(CLI::App& app, ExportViewOptions& options);
  // `session` and `run`, or the recipe of a job; `file` ends in .csv, .json, .svg or .png. Errors: Errc::usage: the view needs what is
  // not given; those of the command that tells what it shows.
  Status (*write)(const ExportViewOptions& options, const std::string& session, const std::string& run,
                  const std::string& recipe, const std::string& file, CommandContext& context);
};
CommandRun declare_export_with(CLI::App& app, const ExportViews* views);  // null: there are none

}  // namespace gradloom
