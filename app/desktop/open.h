// The window as a function: what `gradloom open` does once its flags are read.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "engine/base/result.h"
#include "sessions/recipe.h"
#include "viz/model/theme_kind.h"

namespace gradloom {

struct OpenOptions {
  std::string path;                // session or recipe to open; empty: none
  std::optional<Recipe> recipe;    // or a model with its settings
  std::string session;             // to record into
  std::string script, screenshot;  // headless: commands to follow; the last frame as PNG
  std::string keep;                // folder of settings, notes and views; empty: the user's, headless none
  bool headless = false;
  int width = 1600, height = 900;
  float scale = 0;                 // 0: the display's
  std::optional<ThemeKind> theme;  // else as remembered
};

// Returns when the window is closed or the script has ended; the error is the script's,
// or why there is no window.
Status open_window(const OpenOptions& options, std::stop_token stop);

}  // namespace gradloom
