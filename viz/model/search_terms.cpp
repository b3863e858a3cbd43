#include "viz/model/search_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "engine/base/text.h"

namespace gradloom {
namespace {

std::string lower(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

struct UnitFactor {
  const char* name;
  double factor;
};
constexpr UnitFactor kTimeUnits[] = {{"ns", 1}, {"us", 1e3}, {"\u00b5s", 1e3}, {"ms", 1e6}, {"s", 1e9}};
constexpr UnitFactor kByteUnits[] = {
    {"b", 1},           {"", 1},           {"kib", 1024},    {"kb", 1024},          {"k", 1024},
    {"mib", 1048576.0}, {"mb", 1048576.0}, {"m", 1048576.0}, {"gib", 1073741824.0}, {"gb", 1073741824.0},
    {"g", 1073741824.0}};
constexpr UnitFactor kFlopUnits[] = {{"", 1},     {"flop", 1},    {"k", 1e3}, {"kflop", 1e3},
                                     {"m", 1e6},  {"mflop", 1e6}, {"g", 1e9}, {"gflop", 1e9},
                                     {"t", 1e12}, {"tflop", 1e12}};
constexpr UnitFactor kPlainUnits[] = {{"", 1}, {"k", 1e3}, {"m", 1e6}};

std::span<const UnitFactor> units_of(SearchKind kind) {
  switch (kind) {
    case SearchKind::ns: return kTimeUnits;
    case SearchKind::bytes: return kByteUnits;
    case SearchKind::flops: return kFlopUnits;
    case SearchKind::number: return kPlainUnits;
    default: return {};
  }
}

bool is_number(SearchKind kind) { return !units_of(kind).empty(); }

std::optional<double> number_with_unit(const std::string& text, SearchKind kind) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  const std::string unit(end, text.data() + text.size());
  for (const UnitFactor& u : units_of(kind))
    if (unit == u.name) return value * u.factor;
  return std::nullopt;
}

// "time, bytes and flops"
std::string number_names(std::span<const SearchKey> keys) {
  std::vector<std::string> names;
  for (const SearchKey& key : keys)
    if (is_number(key.kind)) names.emplace_back(key.name);
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

std::string key_names(std::span<const SearchKey> keys) {
  std::vector<std::string_view> names;
  for (const SearchKey& key : keys)
    if (key.listed && std::find(names.begin(), names.end(), key.name) == names.end())
      names.push_back(key.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Status take_number(SearchTerm& term, const std::string& value) {
  const auto number = number_with_unit(term.text, term.kind);
  if (!number) return Error{Errc::usage, fmt::format("'{}' is not a number with a unit", escaped(value))};
  term.number = *number;
  return {};
}

Result<SearchTerm> parse_term(std::string_view word, std::span<const SearchKey> keys) {
  using Compare = SearchTerm::Compare;
  SearchTerm term;
  if (word.size() > 1 && word.front() == '-') {
    term.negated = true;
    word.remove_prefix(1);
  }
  const size_t at = word.front() == '"' ? std::string_view::npos : word.find_first_of(":<>");
  std::string value(word);
  if (at != std::string_view::npos && at > 0) {
    const std::string name = lower(word.substr(0, at));
    value = word.substr(at + 1);
    if (word[at] != ':') {
      const bool equal = !value.empty() && value.front() == '=';
      if (equal) value.erase(0, 1);
      term.compare = word[at] == '<' ? (equal ? Compare::less_equal : Compare::less)
                                     : (equal ? Compare::greater_equal : Compare::greater);
    }
    const bool numeric = term.compare != Compare::text;
    const SearchKey* found = nullptr;
    for (const SearchKey& key : keys)
      if (key.name == name && (found == nullptr || is_number(key.kind) == numeric)) found = &key;
    if (found == nullptr)
      return Error{Errc::usage, fmt::format("unknown key '{}' ({})", escaped(name), key_names(keys))};
    if (is_number(found->kind) != numeric) {
      const std::string names = number_names(keys);
      return Error{Errc::usage, numeric ? "only " + names + " take < or >"
                                        : fmt::format("{} take < or >, as in {}>1{}", names, found->name,
                                                      found->kind == SearchKind::ns ? "ms" : "")};
    }
    term.field = found->field;
    term.kind = found->kind;
  }
  value.erase(std::remove(value.begin(), value.end(), '"'), value.end());
  term.text = lower(value);
  if (is_number(term.kind)) {
    TRY(take_number(term, value));
  } else if (term.text.empty()) {
    return Error{Errc::usage, fmt::format("'{}' needs a text", escaped(word))};
  }
  return term;
}

}  // namespace

bool SearchTerm::matches(std::string_view value) const {
  const std::string low = lower(value);
  if (text.find_first_of("*?") != std::string::npos) return glob_match(text, low);
  return kind == SearchKind::whole   ? low == text
         : kind == SearchKind::start ? low.compare(0, text.size(), text) == 0
                                     : low.find(text) != std::string::npos;
}

bool SearchTerm::matches(double value) const {
  switch (compare) {
    case Compare::less: return value < number;
    case Compare::less_equal: return value <= number;
    case Compare::greater: return value > number;
    case Compare::greater_equal: return value >= number;
    case Compare::text: break;
  }
  return false;
}

Result<std::vector<SearchTerm>> parse_terms(std::string_view text, std::span<const SearchKey> keys) {
  std::vector<SearchTerm> terms;
  while (!text.empty()) {
    if (text.front() == ' ') {
      text.remove_prefix(1);
      continue;
    }
    size_t end = 0;
    bool quoted = false;
    while (end < text.size() && (quoted || text[end] != ' ')) quoted ^= text[end++] == '"';
    if (quoted) return Error{Errc::usage, "a quote is not closed"};
    terms.push_back(TRY(parse_term(text.substr(0, end), keys)));
    text.remove_prefix(end);
  }
  return terms;
}

std::string round_below(double value, SearchKind kind, std::string_view unit) {
  const auto units = units_of(kind);
  const auto known =
      std::find_if(units.begin(), units.end(), [&](const UnitFactor& u) { return unit == u.name; });
  const double number = value / known->factor, power = std::pow(10, std::floor(std::log10(number)));
  double round = power;
  for (const double step : {2.0, 5.0})
    if (step * power < number) round = step * power;
  if (round >= number) round /= 2;
  return fmt::format("{:.12g}{}", round, unit == "kib" ? "KiB" : unit);
}

}  // namespace gradloom
