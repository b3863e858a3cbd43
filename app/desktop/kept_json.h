// Reading of what the window kept, tolerantly: what is not there, or not of its type, has its default.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "viz/model/graph_marks.h"

namespace gradloom::kept {

using Json = nlohmann::ordered_json;

inline constexpr std::size_t kMostNames = 20000;  // of one place

inline std::string text_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

inline double number_of(const Json& object, const char* key, double fallback = 0) {
  const auto it = object.find(key);
  const double value = it != object.end() && it->is_number() ? it->get<double>() : fallback;
  return std::isfinite(value) && std::abs(value) < 1e15 ? value : fallback;
}

inline std::int64_t integer_of(const Json& object, const char* key, std::int64_t fallback = 0) {
  return static_cast<std::int64_t>(number_of(object, key, static_cast<double>(fallback)));
}

inline std::vector<std::string> names_of(const Json& object, const char* key) {
  std::vector<std::string> names;
  const auto list = object.find(key);
  if (list == object.end() || !list->is_array()) return names;
  for (const Json& item : *list)
    if (item.is_string() && names.size() < kMostNames) names.push_back(item.get<std::string>());
  return names;
}

// A place of the graph among the other members of `object`.
inline void put_place(Json& object, const GraphPlace& place) {
  object["node"] = place.node;
  object["dx"] = place.dx;
  object["dy"] = place.dy;
  object["zoom"] = place.zoom;
  object["expanded"] = place.expanded;
  object["selection"] = place.selection;
}

inline GraphPlace place_of(const Json& object) {
  GraphPlace place;
  place.node = text_of(object, "node");
  place.dx = static_cast<float>(number_of(object, "dx"));
  place.dy = static_cast<float>(number_of(object, "dy"));
  place.zoom = static_cast<float>(number_of(object, "zoom", 1));
  place.expanded = names_of(object, "expanded");
  place.selection = names_of(object, "selection");
  return place;
}

}  // namespace gradloom::kept
