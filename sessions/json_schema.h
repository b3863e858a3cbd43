// Validation against the part of JSON Schema 2020-12 that our schemas use, and strict parsing of JSON from
// anywhere. Private to sessions/.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "engine/base/result.h"

namespace gradloom {

// Errors name line and column. Duplicate keys, nesting deeper than 32 and texts longer than
// `max_bytes` are errors too.
Result<nlohmann::json> parse_json_strict(const std::string& text, std::size_t max_bytes);

// "unknown key", with the one that was meant where one is alike.
std::string unknown_key(const std::string& key, std::span<const std::string> known);

// Keywords: type (one or several), const, enum, properties, required, additionalProperties, maxProperties,
// items, maxItems, minimum, maximum, minLength, maxLength, pattern (^[class]{n}$ only). Errors name the JSON
// path: "/passes/2/name: must be a string".
Status validate_json(const nlohmann::json& value, const nlohmann::json& schema, const std::string& path = "");

}  // namespace gradloom
