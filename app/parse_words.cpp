#include "app/parse_words.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "engine/base/parse_number.h"

namespace gradloom {
namespace {

template <class T>
std::string take_number(std::string& text) {
  constexpr const char* kWanted = std::is_floating_point_v<T> ? "number"
                                  : std::is_signed_v<T>       ? "integer"
                                                              : "integer of at least 0";
  const std::optional<T> number = parse_number<T>(text);
  if (!number || !std::isfinite(static_cast<double>(*number))) return "'" + text + "' is no " + kWanted;
  if constexpr (std::is_integral_v<T>) text = std::to_string(*number);
  return "";
}

}  // namespace

// The parser's own way takes 010 for 8, and every range lets NaN through.
void read_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("FLOAT"))
      option->transform(CLI::Validator(take_number<double>, ""));
    else if (type.starts_with("UINT"))
      option->transform(CLI::Validator(take_number<std::uint64_t>, ""));
    else if (type.starts_with("INT") || type.find(":INT") != std::string::npos)
      option->transform(CLI::Validator(take_number<std::int64_t>, ""));
  }
}

Status check_one_answer(std::initializer_list<const char*> asked) {
  const char* first = nullptr;
  for (const char* flag : asked) {
    if (flag == nullptr) continue;
    if (first != nullptr)
      return Error{Errc::usage, std::string(first) + " and " + flag + " are asked one at a time"};
    first = flag;
  }
  return {};
}

Status parse_words(CLI::App& app, const std::vector<std::string>& words) {
  app.set_help_flag();
  read_numbers(app);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& e) {
    return Error{Errc::usage, e.what()};
  }
  return {};
}

}  // namespace gradloom
