#include "engine/base/text.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "engine/base/dates.h"
#include "engine/base/glob.h"

namespace gradloom {
namespace {

std::string scaled(double value, double base, const char* const* units, int count) {
  int i = 0;
  double v = value;
  while (std::fabs(v) >= base && i + 1 < count) {
    v /= base;
    ++i;
  }
  char text[64];
  const double magnitude = std::fabs(v);
  const int digits = i == 0 && base == 1024 ? 0 : magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", digits, v, units[i]);
  return text;
}

// Length of the well-formed UTF-8 sequence at s (1..4), 0 when malformed.
int utf8_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const unsigned b0 = byte(0);
  if (b0 < 0x80) return 1;
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  if (b0 >= 0xc2 && b0 <= 0xdf) return tail(1) ? 2 : 0;
  if (b0 >= 0xe0 && b0 <= 0xef) {
    if (!tail(1) || !tail(2)) return 0;
    if ((b0 == 0xe0 && byte(1) < 0xa0) || (b0 == 0xed && byte(1) > 0x9f)) return 0;
    return 3;
  }
  if (b0 >= 0xf0 && b0 <= 0xf4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if ((b0 == 0xf0 && byte(1) < 0x90) || (b0 == 0xf4 && byte(1) > 0x8f)) return 0;
    return 4;
  }
  return 0;
}

// Bidirectional overrides and isolates (U+202A..E, U+2066..9) and C1 controls can make text
// look like something else.
bool is_deceptive(std::string_view sequence) {
  if (sequence.size() == 2 && static_cast<unsigned char>(sequence[0]) == 0xc2 &&
      static_cast<unsigned char>(sequence[1]) < 0xa0)
    return true;
  if (sequence.size() != 3 || static_cast<unsigned char>(sequence[0]) != 0xe2) return false;
  const unsigned b1 = static_cast<unsigned char>(sequence[1]), b2 = static_cast<unsigned char>(sequence[2]);
  return (b1 == 0x80 && ((b2 >= 0xaa && b2 <= 0xae) || b2 == 0x8e || b2 == 0x8f)) ||
         (b1 == 0x81 && b2 >= 0xa6 && b2 <= 0xa9);
}

}  // namespace

std::string number_text(double value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string bytes_text(double bytes) {
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  return scaled(bytes, 1024, units, 5);
}

std::string duration_text(double ns) {
  static const char* const units[] = {"ns", "us", "ms", "s"};
  return scaled(ns, 1000, units, 4);
}

std::string percent_text(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", share * 100);
  return text;
}

std::string count_text(double count, const char* unit) {
  static const char* const prefixes[] = {"", "k", "M", "G", "T", "P"};
  const bool whole = std::fabs(count) < 1000 && count == std::floor(count);
  std::string text =
      (whole ? std::to_string(static_cast<int>(count)) + " " : scaled(count, 1000, prefixes, 6)) + unit;
  if (text.back() == ' ') text.pop_back();
  return text;
}

std::string plural_text(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

namespace {

void append_hex(std::string& text, std::uint8_t byte) {
  static const char digits[] = "0123456789abcdef";
  text += {digits[byte >> 4], digits[byte & 15]};
}

}  // namespace

std::string escaped(std::string_view foreign) {
  std::string out;
  out.reserve(foreign.size());
  while (!foreign.empty()) {
    // As far as it is ASCII that can be printed, at once: mostly to the end.
    const auto other =
        std::find_if(foreign.begin(), foreign.end(), [](char c) { return c < ' ' || c > '~'; });
    out.append(foreign.begin(), other);
    foreign.remove_prefix(static_cast<std::size_t>(other - foreign.begin()));
    if (foreign.empty()) break;
    const int n = utf8_length(foreign);
    const auto c = static_cast<unsigned char>(foreign[0]);
    if (n == 0 || c < 0x20 || c == 0x7f || is_deceptive(foreign.substr(0, static_cast<std::size_t>(n)))) {
      const std::size_t bad = n == 0 ? 1 : static_cast<std::size_t>(n);
      for (std::size_t i = 0; i < bad; ++i) {
        out += "\\x";
        append_hex(out, static_cast<std::uint8_t>(foreign[i]));
      }
      foreign.remove_prefix(bad);
    } else {
      out.append(foreign.substr(0, static_cast<std::size_t>(n)));
      foreign.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  return out;
}

std::string hex_from_bytes(std::span<const std::uint8_t> bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) append_hex(text, byte);
  return text;
}

std::optional<std::vector<std::uint8_t>> bytes_from_hex(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  std::vector<std::uint8_t> bytes;
  if (text.size() % 2 != 0) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    if (digit(text[i]) < 0 || digit(text[i + 1]) < 0) return std::nullopt;
    bytes.push_back(static_cast<std::uint8_t>(digit(text[i]) * 16 + digit(text[i + 1])));
  }
  return bytes;
}

namespace {

constexpr std::size_t kLongestCompared = 512;  // names from files may be long: two of them cost their product

// Levenshtein's.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::size_t name_distance(std::string_view a, std::string_view b) {
  return edit_distance(a.substr(0, kLongestCompared), b.substr(0, kLongestCompared));
}

}  // namespace

std::string nearest_name(const std::string& given, std::span<const std::string> names) {
  const std::string* nearest = nullptr;
  std::size_t least = 0;
  for (const std::string& name : names) {
    const std::size_t distance = name_distance(given, name);
    if (nearest != nullptr && distance >= least) continue;
    nearest = &name;
    least = distance;
  }
  return nearest == nullptr ? std::string() : *nearest;
}

std::string unknown_name(std::string_view what, const std::string& given,
                         std::span<const std::string> known) {
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + escaped(name);
  std::string text = "unknown " + std::string(what) + " '" + escaped(given) + "' (known: " + list + ")";
  const std::string nearest = nearest_name(given, known);
  const bool alike =
      !nearest.empty() && 2 * name_distance(given, nearest) <= std::max(given.size(), nearest.size());
  return alike ? text + "; did you mean " + escaped(nearest) + "?" : text;
}

namespace {

bool is_of_globs(char c) { return c == '*' || c == '?' || c == '\\'; }

// Whether what stands at `at` takes the character behind it as it is.
bool escapes(std::string_view glob, std::size_t at) {
  return at + 1 < glob.size() && glob[at] == '\\' && is_of_globs(glob[at + 1]);
}

}  // namespace

std::string glob_of(std::string_view name) {
  std::string glob;
  for (const char c : name) {
    if (is_of_globs(c)) glob += '\\';
    glob += c;
  }
  return glob;
}

std::string nearest_to_glob(std::string glob, std::span<const std::string> names) {
  std::string literal;
  for (std::size_t at = 0; at < glob.size(); ++at) {
    if (escapes(glob, at))
      literal += glob[++at];
    else if (glob[at] != '*' && glob[at] != '?')
      literal += glob[at];
  }
  return nearest_name(literal, names);
}

bool glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    const std::size_t at = escapes(pattern, p) ? p + 1 : p;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[at] == text[t])) {
      p = at + 1;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool fits_any(std::span<const std::string> globs, std::string_view text) {
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& g) { return glob_match(g, text); });
}

std::int64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

std::string utc_timestamp() { return utc_text(std::time(nullptr)); }

}  // namespace gradloom
