// Members of JSON objects that are taken as they come (files that may have been edited, words of other programs): what is not
// there, or not of its type, has its default.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "app/output.h"

namespace gradloom {

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

inline bool flag_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_boolean() && it->get<bool>();
}

// The texts of a list, at most so many.
inline std::vector<std::string> texts_of(const Json& object, const char* key, std::size_t most = SIZE_MAX) {
  std::vector<std::string> texts;
  const auto list = object.find(key);
  if (list == object.end() || !list->is_array()) return texts;
  for (const Json& item : *list)
    if (item.is_string() && texts.size() < most) texts.push_back(item.get<std::string>());
  return texts;
}

// The objects of a list.
inline std::vector<Json> objects_of(const Json& root, const char* key) {
  std::vector<Json> objects;
  const auto list = root.find(key);
  if (list == root.end() || !list->is_array()) return objects;
  for (const Json& item : *list)
    if (item.is_object()) objects.push_back(item);
  return objects;
}

}  // namespace gradloom
