// What the window remembers between runs: theme, scale, keys, layouts, kept searches, recent files. One small JSON file,
// $XDG_CONFIG_HOME/gradloom/settings.json (~/.config without the variable), written atomically and read
// tolerantly: what cannot be read keeps its default, so a damaged file never keeps the window from opening.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "viz/model/search.h"
#include "viz/model/theme_kind.h"

namespace gradloom {

constexpr std::size_t kMostRecents = 12;

constexpr std::size_t kMostLayouts = 30;

struct NamedLayout {
  std::string name, panes;  // PaneTree text
  bool operator==(const NamedLayout&) const = default;
};

struct Settings {
  ThemeKind theme = ThemeKind::dark;
  float scale = 1;
  bool motion = true;                // what changes in a view may fade
  std::string keys;                  // other keys than the usual ones, as viz/draw/keys.h reads them
  std::string layout;                // PaneTree text; empty: the default layout
  std::vector<NamedLayout> layouts;  // the user's, in the order in which they were kept
  // Searches of the graph and of the table of kernels, in the order in which they were kept
  std::vector<SavedFilter> filters;
  std::string last_folder;
  std::vector<std::string> recents;  // newest first, absolute paths
  bool tour_seen = false;            // it is not offered by itself again
  bool follow_run = true;            // a run that goes on is shown in curve, kernels and timeline
  bool operator==(const Settings&) const = default;
};

std::string settings_path();  // empty when neither XDG_CONFIG_HOME nor HOME is set
Settings parse_settings(const std::string& json);
std::string settings_json(const Settings& settings);
Settings load_settings(const std::string& path);
Status save_settings(const Settings& settings, const std::string& path);  // makes the folder
void add_recent(Settings& settings, const std::string& path);

}  // namespace gradloom
