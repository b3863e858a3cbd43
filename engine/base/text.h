// Text helpers: shortest round-trip numbers, human units, escaping of foreign names, globs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

std::string number_text(double value);   // shortest text that reads back to the same double
std::string short_text(double value);    // 6 significant digits: "0.693147"
std::string bytes_text(double bytes);    // "3.2 MiB"
std::string duration_text(double ns);    // "1.23 ms"
std::string percent_text(double share);  // 0.123: "12.3 %"
// "2.68 GFLOP", "24 FLOP"; without a unit: "4", "1.20 k".
std::string count_text(double count, const char* unit);
std::string plural_text(std::int64_t count, std::string_view noun);  // "1 tensor", "2 tensors"
std::string escaped(std::string_view foreign);  // control characters, invalid UTF-8, bidi overrides -> \xNN
std::string hex_from_bytes(std::span<const std::uint8_t> bytes);                 // "00ff"
std::optional<std::vector<std::uint8_t>> bytes_from_hex(std::string_view text);  // lower case, whole bytes
// The name that is fewest edits away; empty without names.
std::string nearest_name(const std::string& given, std::span<const std::string> names);
// "unknown loss 'cee' (known: ce, mse); did you mean ce?"; the question only where the names are alike.
std::string unknown_name(std::string_view what, const std::string& given, std::span<const std::string> known);
std::string nearest_to_glob(std::string glob, std::span<const std::string> names);  // without its \, *, ?
bool glob_match(std::string_view pattern, std::string_view text);                   // *, ? and \: glob.h
bool fits_any(std::span<const std::string> globs, std::string_view text);

std::int64_t monotonic_ns();
std::string utc_timestamp();  // "2026-11-20T04:31:05Z"

}  // namespace gradloom
