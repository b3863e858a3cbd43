#include "app/desktop/settings.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/file.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostBytes = 1 << 20;

std::string folder_from(const char* variable, const char* fallback) {
  if (const char* set = std::getenv(variable); set != nullptr && set[0] == '/')
    return std::string(set) + "/gradloom";
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] != '\0')
    return std::string(home) + fallback;
  return {};
}

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

}  // namespace

std::string settings_path() {
  const std::string folder = folder_from("XDG_CONFIG_HOME", "/.config/gradloom");
  return folder.empty() ? folder : folder + "/settings.json";
}

std::string data_folder() { return folder_from("XDG_DATA_HOME", "/.local/share/gradloom"); }

Settings parse_settings(const std::string& json) {
  Settings settings;
  const Json root = Json::parse(json, nullptr, false);
  if (!root.is_object()) return settings;
  take(root, "dark", settings.dark);
  take(root, "scale", settings.scale);
  if (!(settings.scale >= 0.5f && settings.scale <= 4)) settings.scale = 1;
  take(root, "layout", settings.layout);
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
  const Json root = {{"dark", settings.dark},
                     {"scale", settings.scale},
                     {"follow_run", settings.follow_run},
                     {"tour_seen", settings.tour_seen},
                     {"last_folder", settings.last_folder},
                     {"layout", settings.layout},
                     {"recents", settings.recents}};
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Settings load_settings(const std::string& path) {
  if (path.empty()) return {};
  const auto text = read_file_limited(path, kMostBytes);
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
