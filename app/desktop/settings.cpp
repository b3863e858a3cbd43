#include "app/desktop/settings.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/user_folders.h"
#include "engine/base/file.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostSettingsBytes = 1 << 20;

template <class T>
void take(const Json& object, const char* key, T& value) {
  const auto it = object.find(key);
  if (it == object.end()) return;
  if constexpr (std::is_same_v<T, bool>) {
    if (it->is_boolean()) value = it->get<bool>();
  } else if constexpr (std::is_same_v<T, float>) {
    if (it->is_number()) value = it->get<float>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (it->is_string()) value = it->get<std::string>();
  }
}

void take_layouts(const Json& root, std::vector<NamedLayout>& layouts) {
  const auto list = root.find("layouts");
  if (list == root.end() || !list->is_array()) return;
  for (const Json& item : *list) {
    NamedLayout layout;
    if (!item.is_object() || layouts.size() >= kMostLayouts) continue;
    take(item, "name", layout.name);
    take(item, "panes", layout.panes);
    const bool known = std::any_of(layouts.begin(), layouts.end(),
                                   [&](const NamedLayout& other) { return other.name == layout.name; });
    if (!layout.name.empty() && !layout.panes.empty() && !known) layouts.push_back(std::move(layout));
  }
}

void take_filters(const Json& root, std::vector<SavedFilter>& filters) {
  const auto list = root.find("filters");
  if (list == root.end() || !list->is_array()) return;
  for (const Json& item : *list) {
    SavedFilter filter;
    if (!item.is_object()) continue;
    take(item, "name", filter.name);
    take(item, "query", filter.query);
    keep_filter(filters, filter.name, filter.query);
  }
}

}  // namespace

std::string settings_path() {
  const std::string folder = config_folder();
  return folder.empty() ? folder : folder + "/settings.json";
}

Settings parse_settings(const std::string& json) {
  Settings settings;
  const Json root = Json::parse(json, nullptr, false);
  if (!root.is_object()) return settings;
  bool dark = true;
  take(root, "dark", dark);  // what files had before there were more than two themes
  std::string theme = dark ? "dark" : "light";
  take(root, "theme", theme);
  settings.theme = find_theme(theme).value_or(ThemeKind::dark);
  take(root, "scale", settings.scale);
  if (!(settings.scale >= 0.5f && settings.scale <= 4)) settings.scale = 1;
  take(root, "motion", settings.motion);
  take(root, "keys", settings.keys);
  take(root, "layout", settings.layout);
  take_layouts(root, settings.layouts);
  take_filters(root, settings.filters);
  take(root, "last_folder", settings.last_folder);
  take(root, "tour_seen", settings.tour_seen);
  take(root, "follow_run", settings.follow_run);
  if (const auto list = root.find("recents"); list != root.end() && list->is_array()) {
    for (const Json& item : *list) {
      if (!item.is_string() || settings.recents.size() >= kMostRecents) continue;
      const std::string path = item.get<std::string>();
      if (!path.empty() &&
          std::find(settings.recents.begin(), settings.recents.end(), path) == settings.recents.end())
        settings.recents.push_back(path);
    }
  }
  return settings;
}

std::string settings_json(const Settings& settings) {
  Json layouts = Json::array();
  for (const NamedLayout& layout : settings.layouts)
    layouts.push_back({{"name", layout.name}, {"panes", layout.panes}});
  Json filters = Json::array();
  for (const SavedFilter& filter : settings.filters)
    filters.push_back({{"name", filter.name}, {"query", filter.query}});
  const Json root = {{"theme", theme_name(settings.theme)},
                     {"scale", settings.scale},
                     {"follow_run", settings.follow_run},
                     {"tour_seen", settings.tour_seen},
                     {"last_folder", settings.last_folder},
                     {"motion", settings.motion},
                     {"keys", settings.keys},
                     {"layout", settings.layout},
                     {"layouts", layouts},
                     {"filters", filters},
                     {"recents", settings.recents}};
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Settings load_settings(const std::string& path) {
  if (path.empty()) return {};
  const auto text = read_file_limited(path, kMostSettingsBytes);
  return text ? parse_settings(*text) : Settings();
}

Status save_settings(const Settings& settings, const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return Error{Errc::io, "settings: " + path + ": " + error.message()};
  return atomic_write_file(path, settings_json(settings));
}

void add_recent(Settings& settings, const std::string& path) {
  std::erase(settings.recents, path);
  settings.recents.insert(settings.recents.begin(), path);
  if (settings.recents.size() > kMostRecents) settings.recents.resize(kMostRecents);
}

}  // namespace gradloom
