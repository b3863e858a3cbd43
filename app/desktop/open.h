// The window as a function: what `gradloom open` does once its flags are read.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "engine/base/result.h"
#include "sessions/recipe.h"
#include "viz/model/theme_kind.h"

namespace gradloom {

struct OpenOptions {
  std::string path;  // session, here or there, or recipe to open; empty: none
  std::string remote_program = "gradloom";
  std::optional<Recipe> recipe;  // or a model with its settings
  std::string session;           // to record into
  // Headless: a file of commands to follow; such commands, behind those of the file; the last frame, or this item in it, as .png
  // or .svg
  std::string script, commands, screenshot, screenshot_item;
  std::int64_t run = 0,
               against = 0;  // of the session: the one that is shown, and the A of the pair; 0: as usual
  std::string keep;          // folder of settings, notes and views; empty: the user's, headless none
  bool headless = false;
  int width = 1600, height = 900;
  float scale = 0;                 // 0: the display's
  std::optional<ThemeKind> theme;  // else as remembered
};

// "1600x900". Errc::usage.
Status parse_window_size(const std::string& text, OpenOptions& options);

// Returns when the window is closed or the script has ended; the error is the script's,
// or why there is no window.
Status open_window(const OpenOptions& options, std::stop_token stop);

}  // namespace gradloom
