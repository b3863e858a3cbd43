#include "app/parse_words.h"

#include <CLI/CLI.hpp>

namespace gradloom {

Status parse_words(CLI::App& app, const std::vector<std::string>& words) {
  app.set_help_flag();
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& e) {
    return Error{Errc::usage, e.what()};
  }
  return {};
}

}  // namespace gradloom
