#include "viz/model/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "engine/base/text.h"

namespace gradloom {
namespace {

std::string lower(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// A pattern with wildcards must match the whole text; without, it may stand anywhere (or at the start).
bool text_matches(const std::string& pattern, std::string_view text, bool at_start) {
  const std::string low = lower(text);
  if (pattern.find_first_of("*?") != std::string::npos) return glob_match(pattern, low);
  return at_start ? low.compare(0, pattern.size(), pattern) == 0 : low.find(pattern) != std::string::npos;
}

// One of the passes in the list, which are joined by commas.
bool any_pass_matches(const std::string& pattern, std::string_view passes) {
  for (size_t begin = 0; begin <= passes.size();) {
    const size_t end = std::min(passes.find(',', begin), passes.size());
    if (text_matches(pattern, passes.substr(begin, end - begin), false)) return true;
    begin = end + 1;
  }
  return false;
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

template <size_t N>
std::optional<double> number_with_unit(const std::string& text, const UnitFactor (&units)[N]) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  const std::string unit(end, text.data() + text.size());
  for (const UnitFactor& u : units) {
    if (unit == u.name) return value * u.factor;
  }
  return std::nullopt;
}

// A round number below `value` (1, 2 or 5 times a power of ten of the unit), with the unit.
template <size_t N>
std::string below(double value, const UnitFactor (&units)[N], std::string_view unit) {
  const auto* known =
      std::find_if(std::begin(units), std::end(units), [&](const UnitFactor& u) { return unit == u.name; });
  const double number = value / known->factor, power = std::pow(10, std::floor(std::log10(number)));
  double round = power;
  for (const double step : {2.0, 5.0})
    if (step * power < number) round = step * power;
  if (round >= number) round /= 2;
  return fmt::format("{:.12g}{}", round, unit == "kib" ? "KiB" : unit);
}

// "bwd" and "backward" are the same phase.
std::string phase_name_of(const std::string& s) {
  if (s == "fwd") return "forward";
  if (s == "bwd") return "backward";
  if (s == "opt") return "optimizer";
  return s;
}

}  // namespace

Result<Query> Query::parse(std::string_view text) {
  Query query;
  while (!text.empty()) {
    if (text.front() == ' ') {
      text.remove_prefix(1);
      continue;
    }
    size_t end = 0;
    bool quoted = false;
    while (end < text.size() && (quoted || text[end] != ' ')) quoted ^= text[end++] == '"';
    if (quoted) return Error{Errc::usage, "a quote is not closed"};
    query.terms_.push_back(TRY(parse_term(text.substr(0, end))));
    text.remove_prefix(end);
  }
  return query;
}

Result<Query::Term> Query::parse_term(std::string_view word) {
  static constexpr std::pair<std::string_view, Field> kKeys[] = {
      {"name", Field::kName}, {"op", Field::kOp},         {"phase", Field::kPhase}, {"scope", Field::kScope},
      {"pass", Field::kPass}, {"kernel", Field::kKernel}, {"type", Field::kType},   {"shape", Field::kType},
      {"time", Field::kTime}, {"bytes", Field::kBytes},   {"flops", Field::kFlops}};
  Term term;
  if (word.size() > 1 && word.front() == '-') {
    term.negated = true;
    word.remove_prefix(1);
  }
  const size_t at = word.front() == '"' ? std::string_view::npos : word.find_first_of(":<>");
  std::string value(word);
  if (at != std::string_view::npos && at > 0) {
    const std::string key = lower(word.substr(0, at));
    const auto* known =
        std::find_if(std::begin(kKeys), std::end(kKeys), [&](const auto& k) { return k.first == key; });
    if (known == std::end(kKeys)) {
      return Error{
          Errc::usage,
          fmt::format("unknown key '{}' (op, phase, scope, pass, kernel, type, time, bytes, flops)", key)};
    }
    term.field = known->second;
    value = word.substr(at + 1);
    if (word[at] != ':') {
      const bool equal = !value.empty() && value.front() == '=';
      if (equal) value.erase(0, 1);
      term.compare = word[at] == '<' ? (equal ? Compare::kLessEqual : Compare::kLess)
                                     : (equal ? Compare::kGreaterEqual : Compare::kGreater);
    }
  }
  value.erase(std::remove(value.begin(), value.end(), '"'), value.end());
  term.text = lower(value);
  const bool numeric =
      term.field == Field::kTime || term.field == Field::kBytes || term.field == Field::kFlops;
  if (numeric != (term.compare != Compare::kText)) {
    return Error{Errc::usage, numeric ? "time, bytes and flops take < or >, as in time>1ms"
                                      : "only time, bytes and flops take < or >"};
  }
  if (numeric) {
    const auto number = term.field == Field::kTime    ? number_with_unit(term.text, kTimeUnits)
                        : term.field == Field::kBytes ? number_with_unit(term.text, kByteUnits)
                                                      : number_with_unit(term.text, kFlopUnits);
    if (!number) return Error{Errc::usage, fmt::format("'{}' is not a number with a unit", value)};
    term.number = *number;
  } else if (term.text.empty()) {
    return Error{Errc::usage, fmt::format("'{}' needs a text", word)};
  }
  if (term.field == Field::kPhase) term.text = phase_name_of(term.text);
  return term;
}

bool Query::term_matches(const Term& term, const SearchFields& f) {
  auto compare = [&](double value) {
    switch (term.compare) {
      case Compare::kLess: return value < term.number;
      case Compare::kLessEqual: return value <= term.number;
      case Compare::kGreater: return value > term.number;
      case Compare::kGreaterEqual: return value >= term.number;
      case Compare::kText: break;
    }
    return false;
  };
  switch (term.field) {
    case Field::kText:
      return text_matches(term.text, f.name, false) || text_matches(term.text, f.op, false) ||
             text_matches(term.text, f.scope, false);
    case Field::kName: return text_matches(term.text, f.name, false);
    case Field::kOp: return text_matches(term.text, f.op, true);
    case Field::kPhase: return text_matches(term.text, f.phase, true);
    case Field::kScope: return text_matches(term.text, f.scope, false);
    case Field::kPass: return any_pass_matches(term.text, f.passes);
    case Field::kKernel: return text_matches(term.text, f.kernel, false);
    case Field::kType: return text_matches(term.text, f.type, false);
    case Field::kTime: return compare(f.time_ns);
    case Field::kBytes: return compare(f.bytes);
    case Field::kFlops: return compare(f.flops);
  }
  return false;
}

std::string example_query(const std::vector<SearchFields>& rows) {
  const auto cost = [timed = std::any_of(rows.begin(), rows.end(), [](const SearchFields& f) {
                       return f.time_ns > 0;
                     })](const SearchFields& f) {
    const double value = timed ? f.time_ns : f.bytes;
    return std::isnan(value) ? 0.0 : value;
  };
  std::map<std::pair<std::string_view, std::string_view>, double> sums;
  for (const SearchFields& f : rows)
    if (!f.op.empty() && !f.phase.empty()) sums[{f.op, f.phase}] += cost(f);
  if (sums.empty()) return {};
  const auto most = std::max_element(sums.begin(), sums.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto& [op, phase] = most->first;
  double time = 0, bytes = 0;
  for (const SearchFields& f : rows) {
    if (f.op != op || f.phase != phase) continue;
    time = std::max(time, f.time_ns);  // the first argument stays when the second is not a number
    bytes = std::max(bytes, f.bytes);
  }
  const std::string short_phase = phase == "forward"     ? "fwd"
                                  : phase == "backward"  ? "bwd"
                                  : phase == "optimizer" ? "opt"
                                                         : std::string(phase);
  std::string text = fmt::format("op:{} phase:{}", op, short_phase);
  if (time > 0) return fmt::format("{} time>{}", text, below(time, kTimeUnits, "us"));
  if (bytes > 0) return fmt::format("{} bytes>{}", text, below(bytes, kByteUnits, "kib"));
  return text;
}

bool Query::matches(const SearchFields& fields) const {
  return std::all_of(terms_.begin(), terms_.end(),
                     [&](const Term& term) { return term_matches(term, fields) != term.negated; });
}

}  // namespace gradloom
