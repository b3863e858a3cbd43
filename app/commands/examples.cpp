#include "app/commands/examples.h"

#include <CLI/CLI.hpp>

namespace gradloom {
namespace {

constexpr const char* kHead = "Examples:\n";

}  // namespace

// They stand before what all commands end with: the exit codes.
void add_examples(CLI::App& app, std::initializer_list<const char*> lines) {
  std::string text = kHead;
  for (const char* line : lines) text += "  " + std::string(line) + "\n";
  app.footer(text + "\n" + app.get_footer());
}

std::string examples_of(const CLI::App& app) {
  const std::string footer = app.get_footer(), head = kHead;
  if (!footer.starts_with(head)) return "";
  std::string text;
  for (std::size_t at = head.size(); footer.compare(at, 2, "  ") == 0;) {
    const std::size_t end = footer.find('\n', at);
    text += footer.substr(at + 2, end - at - 1);
    at = end + 1;
  }
  return text;
}

}  // namespace gradloom
