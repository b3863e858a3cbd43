#include "viz/model/search_terms.h"

#include <regex.h>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "engine/base/text.h"

namespace gradloom {

struct CompiledRegex {
  regex_t regex{};
  bool good = false;
  CompiledRegex() = default;
  CompiledRegex(const CompiledRegex&) = delete;
  CompiledRegex& operator=(const CompiledRegex&) = delete;
  ~CompiledRegex() {
    if (good) regfree(&regex);
  }
};

namespace {

constexpr std::size_t kMostRegex = 200;     // characters
constexpr std::size_t kMostMatched = 4096;  // of a text
constexpr std::size_t kMostPlus = 6;        // of a regex
constexpr std::size_t kMostGroups = 64;     // parentheses
constexpr int kMostDepth = 20;              // of parentheses

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

Status take_regex(SearchTerm& term, const std::string& pattern) {
  const auto refused = [&](const std::string& why) {
    return Error{Errc::usage, fmt::format("'{}' is no regex: {}", escaped(pattern), why)};
  };
  if (pattern.size() > kMostRegex) return refused(fmt::format("more than {} characters", kMostRegex));
  std::size_t doubled = 0;  // + makes the library copy what is before it, and that within others again
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '[') {  // up to its end everything is a character; a ] that comes first is one, too
      std::size_t first = i + 1;
      if (first < pattern.size() && pattern[first] == '^') ++first;
      const std::size_t end = pattern.find(']', first + 1);
      i = end == std::string::npos ? pattern.size() : end;
      continue;
    }
    if (pattern[i] == '+' && ++doubled > kMostPlus) return refused(fmt::format("more than {} +", kMostPlus));
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      if (std::isdigit(static_cast<unsigned char>(pattern[++i])) != 0)
        return refused("back references are not taken");
    } else if (pattern[i] == '{') {
      return refused("counted repetition is not taken; \\{ is the character");
    }
  }
  auto compiled = std::make_shared<CompiledRegex>();
  const int code = regcomp(&compiled->regex, pattern.c_str(), REG_EXTENDED | REG_ICASE | REG_NOSUB);
  if (code != 0) {
    char why[128];
    regerror(code, &compiled->regex, why, sizeof why);
    return refused(why);
  }
  compiled->good = true;
  term.regex = std::move(compiled);
  return {};
}

Result<SearchTerm> parse_term(std::string_view word, std::span<const SearchKey> keys) {
  using Compare = SearchTerm::Compare;
  SearchTerm term;
  if (word.size() > 1 && word.front() == '-') {
    term.negated = true;
    word.remove_prefix(1);
  }
  const size_t at = word.front() == '"' ? std::string_view::npos : word.find_first_of(":<>~");
  std::string value(word);
  if (at == 0 && word[0] == '~') {
    term.compare = Compare::regex;
    value.erase(0, 1);
  } else if (at != std::string_view::npos && at > 0) {
    const std::string name = lower(word.substr(0, at));
    value = word.substr(at + 1);
    if (word[at] == '~') {
      term.compare = Compare::regex;
    } else if (word[at] != ':') {
      const bool equal = !value.empty() && value.front() == '=';
      if (equal) value.erase(0, 1);
      term.compare = word[at] == '<' ? (equal ? Compare::less_equal : Compare::less)
                                     : (equal ? Compare::greater_equal : Compare::greater);
    }
    const bool numeric = term.compare != Compare::text && term.compare != Compare::regex;
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
  term.text = term.compare == Compare::regex ? value : lower(value);
  if (term.compare == Compare::regex && !value.empty()) {
    TRY(take_regex(term, value));
  } else if (is_number(term.kind)) {
    TRY(take_number(term, value));
  } else if (term.text.empty()) {
    return Error{Errc::usage, fmt::format("'{}' needs a text", escaped(word))};
  }
  return term;
}

}  // namespace

bool SearchTerm::matches(std::string_view value) const {
  if (regex)
    return regexec(&regex->regex, std::string(value.substr(0, kMostMatched)).c_str(), 0, nullptr, 0) == 0;
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
    case Compare::text:
    case Compare::regex: break;
  }
  return false;
}

// Words by spaces; what stands in quotes is one.
class SearchParser {
 public:
  SearchParser(std::string_view text, std::span<const SearchKey> keys) : text_(text), keys_(keys) {}

  Result<SearchTerms> run() {
    TRY(group(0, 0));
    if (!text_.empty()) return Error{Errc::usage, "a parenthesis is closed that none opened"};
    if (made_.terms_.empty()) return SearchTerms();
    return std::move(made_);
  }

 private:
  // Alternatives up to the end or the parenthesis that closes.
  Status group(std::size_t number, int depth) {
    if (depth > kMostDepth) return Error{Errc::usage, "too many parentheses"};
    SearchTerms::Alternative current{number, {}};
    for (bool after_or = false;;) {
      while (!text_.empty() && text_.front() == ' ') text_.remove_prefix(1);
      const bool over = text_.empty() || text_.front() == ')';
      const std::string_view word = over ? std::string_view() : TRY(next_word(depth));
      const std::string joint = lower(word);
      if (over || joint == "or" || joint == "|") {
        if (current.members.empty()) {
          if (!over) return Error{Errc::usage, "a term is missing before or"};
          if (after_or) return Error{Errc::usage, "a term is missing behind or"};
          if (number > 0) return Error{Errc::usage, "a term is missing between parentheses"};
        }
        if (!current.members.empty()) made_.alternatives_.push_back(std::move(current));
        current = {number, {}};
        if (over) return {};
        after_or = true;
        text_.remove_prefix(word.size());
        continue;
      }
      if (joint == "and") {
        text_.remove_prefix(word.size());
        continue;
      }
      TRY(member(word, current, depth));
    }
  }

  Status member(std::string_view word, SearchTerms::Alternative& current, int depth) {
    const bool negated = word.starts_with("-(");
    if (!negated && word.front() != '(') {
      current.members.push_back({made_.terms_.size(), false, false});
      made_.terms_.push_back(TRY(parse_term(word, keys_)));
      text_.remove_prefix(word.size());
      return {};
    }
    text_.remove_prefix(negated ? 2 : 1);
    const std::size_t number = ++groups_;
    if (number > kMostGroups) return Error{Errc::usage, "too many parentheses"};
    TRY(group(number, depth + 1));
    if (text_.empty()) return Error{Errc::usage, "a parenthesis is not closed"};
    text_.remove_prefix(1);
    current.members.push_back({number, true, negated});
    return {};
  }

  // Up to the next space, or, inside parentheses, the one that closes: the first that the word did not open itself.
  Result<std::string_view> next_word(int depth) const {
    std::size_t end = 0;
    bool quoted = false;
    int open = 0;
    for (; end < text_.size() && (quoted || text_[end] != ' '); ++end) {
      const char c = text_[end];
      if (c == '"') quoted = !quoted;
      if (quoted || end == 0) continue;
      if (c == '(') ++open;
      if (c == ')' && depth > 0 && open-- == 0) break;
    }
    if (quoted) return Error{Errc::usage, "a quote is not closed"};
    return text_.substr(0, end);
  }

  std::string_view text_;  // what is left
  std::span<const SearchKey> keys_;
  std::size_t groups_ = 0;
  SearchTerms made_;
};

Result<SearchTerms> SearchTerms::parse(std::string_view text, std::span<const SearchKey> keys) {
  return SearchParser(text, keys).run();
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
