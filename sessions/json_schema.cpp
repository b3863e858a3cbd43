// Strict JSON parsing and validation against our schemas.
#include "sessions/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "engine/base/text.h"

namespace gradloom {
namespace {

using json = nlohmann::json;
constexpr int kMaxDepth = 32;

struct Refused {
  std::string why;
};

// Key of a path, with JSON Pointer's escapes (RFC 6901).
std::string step_text(const std::string& key) {
  std::string text = "/";
  for (const char c : key.substr(0, 200)) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return escaped(text);
}

// JSON Schema counts 1.0 as an integer.
bool is_integer(const json& value) {
  if (value.is_number_integer()) return true;
  if (!value.is_number_float()) return false;
  const double number = value.get<double>();
  return number == std::floor(number) && std::abs(number) <= 9007199254740992.0;
}

bool has_type(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return is_integer(value);
  if (type == "number") return value.is_number();
  return type == "null" && value.is_null();
}

// Wide enough for all 64-bit integers, signed and unsigned.
long double number_of(const json& value) {
  if (value.is_number_unsigned()) return static_cast<long double>(value.get<std::uint64_t>());
  if (value.is_number_integer()) return static_cast<long double>(value.get<std::int64_t>());
  return static_cast<long double>(value.get<double>());
}

// Code points, as JSON Schema counts lengths; the parser has checked the UTF-8.
std::size_t length_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

Error at(const std::string& path, const std::string& why) {
  return {Errc::bad_input, (path.empty() ? "/" : path) + ": " + why};
}

// The only form of pattern that our schemas use: ^[0-9a-f]{32}$, one class and a length.
bool matches(const std::string& text, const std::string& pattern) {
  const std::size_t close = pattern.find("]{");
  CHECK(pattern.rfind("^[", 0) == 0 && close != std::string::npos && pattern.size() > close + 4 &&
            pattern.compare(pattern.size() - 2, 2, "}$") == 0,
        "a schema of ours uses a pattern that is not supported");
  const std::string members = pattern.substr(2, close - 2);
  const auto is_member = [&](char c) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      const bool range = i + 2 < members.size() && members[i + 1] == '-';
      if (range ? members[i] <= c && c <= members[i + 2] : members[i] == c) return true;
      if (range) i += 2;
    }
    return false;
  };
  return text.size() == std::strtoul(pattern.c_str() + close + 2, nullptr, 10) &&
         std::all_of(text.begin(), text.end(), is_member);
}

Status validate_scalar(const json& value, const json& schema, const std::string& path) {
  if (value.is_number()) {
    const long double number = number_of(value);
    if (schema.contains("minimum") && number < number_of(schema["minimum"])) {
      return at(path, fmt::format("must be at least {}", schema["minimum"].dump()));
    }
    if (schema.contains("maximum") && number > number_of(schema["maximum"])) {
      return at(path, fmt::format("must be at most {}", schema["maximum"].dump()));
    }
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    // Half of what reads texts would see the part before it only: a path would lead to another file.
    if (text.find('\0') != std::string::npos) return at(path, "holds a NUL character");
    const std::size_t length = length_of(text);
    if (length < schema.value("minLength", std::size_t{0})) return at(path, "must not be empty");
    if (schema.contains("maxLength") && length > schema["maxLength"].get<std::size_t>()) {
      return at(path, fmt::format("longer than {} characters", schema["maxLength"].dump()));
    }
    if (schema.contains("pattern") && !matches(text, schema["pattern"].get<std::string>())) {
      return at(path, "must match " + schema["pattern"].get<std::string>());
    }
  }
  return {};
}

std::vector<std::string> keys_of(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

Status validate_object(const json& value, const json& schema, const std::string& path) {
  if (schema.contains("maxProperties") && value.size() > schema["maxProperties"].get<std::size_t>()) {
    return at(path, fmt::format("more than {} keys", schema["maxProperties"].dump()));
  }
  for (const json& key : schema.value("required", json::array())) {
    if (!value.contains(key.get<std::string>()))
      return at(path, "key \"" + key.get<std::string>() + "\" is missing");
  }
  const json properties = schema.value("properties", json::object());
  for (const auto& [key, item] : value.items()) {
    const auto known = properties.find(key);
    if (known != properties.end()) {
      TRY(validate_json(item, *known, path + step_text(key)));
    } else if (schema.contains("additionalProperties")) {
      const json& other = schema["additionalProperties"];
      if (other.is_boolean() && !other.get<bool>())
        return at(path + step_text(key), unknown_key(key, keys_of(properties)));
      if (other.is_object()) TRY(validate_json(item, other, path + step_text(key)));
    }
  }
  return {};
}

}  // namespace

std::string unknown_key(const std::string& key, std::span<const std::string> known) {
  const std::string all = unknown_name("key", key, known);  // which asks only where names are alike
  return "unknown key" + (all.ends_with("?") ? "; did you mean " + nearest_name(key, known) + "?" : "");
}

Status validate_json(const json& value, const json& schema, const std::string& path) {
  if (schema.contains("type")) {
    const json& type = schema["type"];
    const std::vector<std::string> types = type.is_array()
                                               ? type.get<std::vector<std::string>>()
                                               : std::vector<std::string>{type.get<std::string>()};
    if (std::none_of(types.begin(), types.end(), [&](const std::string& t) { return has_type(value, t); })) {
      std::string names;
      for (const std::string& t : types) names += (names.empty() ? "" : " or ") + t;
      return at(path, fmt::format("must be of type {}, not {}", names, value.type_name()));
    }
  }
  if (schema.contains("const") && value != schema["const"])
    return at(path, "must be " + schema["const"].dump());
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
    return at(path, "must be one of " + schema["enum"].dump());
  }
  if (value.is_object()) return validate_object(value, schema, path);
  if (value.is_array()) {
    if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<std::size_t>()) {
      return at(path, fmt::format("more than {} items", schema["maxItems"].dump()));
    }
    if (schema.contains("items")) {
      for (std::size_t i = 0; i < value.size(); ++i)
        TRY(validate_json(value[i], schema["items"], path + "/" + std::to_string(i)));
    }
    return {};
  }
  return validate_scalar(value, schema, path);
}

Result<json> parse_json_strict(const std::string& text, std::size_t max_bytes) {
  if (text.size() > max_bytes)
    return Error{Errc::limit, fmt::format("longer than the limit of {} bytes", max_bytes)};
  std::vector<std::set<std::string>> keys;  // of the open objects and arrays
  const json::parser_callback_t watch = [&](int, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        keys.emplace_back();
        if (keys.size() > kMaxDepth) throw Refused{fmt::format("nested deeper than {}", kMaxDepth)};
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end: keys.pop_back(); break;
      case json::parse_event_t::key:
        if (!keys.back().insert(parsed.get<std::string>()).second) {
          throw Refused{"key \"" + escaped(parsed.get<std::string>().substr(0, 200)) + "\" is there twice"};
        }
        break;
      default: break;
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const Refused& refused) {
    return Error{Errc::bad_input, refused.why};
  } catch (const json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: ...":
    // the part in brackets is the library's own.
    std::string why = error.what();
    const std::size_t end = why.find("] ");
    if (end != std::string::npos) why = why.substr(end + 2);
    return Error{Errc::bad_input, "not valid JSON: " + escaped(why.substr(0, 300))};
  }
}

}  // namespace gradloom
