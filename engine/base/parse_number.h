// Numbers in texts of users and files: the whole text or nothing, whatever the locale.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace gradloom {

// No value: the text is not a number of type T from its first to its last character, or out of T's range.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "2GiB", "1.5 GiB", "800MB", "4096": binary units KiB to TiB, decimal kB to TB, or bytes. No value: none of
// these, or more than 2^62.
std::optional<std::int64_t> parse_bytes(std::string_view text);

}  // namespace gradloom
