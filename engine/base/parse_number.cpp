#include "engine/base/parse_number.h"

#include <utility>

namespace gradloom {

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"kB", 1e3},
      {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"B", 1}};
  double unit = 1;
  for (const auto& [name, bytes] : kUnits) {
    if (!text.ends_with(name)) continue;
    text.remove_suffix(name.size());
    unit = bytes;
    break;
  }
  while (text.ends_with(' ')) text.remove_suffix(1);
  const std::optional<double> number = parse_number<double>(text);
  if (!number || !(*number >= 0) || *number * unit > 0x1p62) return std::nullopt;
  return static_cast<std::int64_t>(*number * unit);
}

}  // namespace gradloom
