#include "app/command_page.h"

#include <CLI/CLI.hpp>
#include <map>

#include "app/command.h"
#include "app/commands/examples.h"
#include "engine/base/markdown.h"

namespace gradloom {
namespace {

using markdown::cell, markdown::code, markdown::head, markdown::row;

struct Flag {
  std::string name, value, help;  // value: empty for a flag that takes none
  auto operator<=>(const Flag&) const =
      default;  // NOLINT(modernize-use-nullptr): clang-tidy sees a null here
};

constexpr std::size_t kShared = 3;  // commands with an equal flag

bool is_argument(const CLI::Option& option) {
  return option.get_lnames().empty() && option.get_snames().empty();
}

std::string value_of(const CLI::Option& option) {
  if (option.get_type_size_max() == 0) return "";
  const std::string type = option.get_type_name();  // "FLOAT:FLOAT in [0.1 - 86400]", "TEXT:{dark,light}"
  const std::size_t colon = type.find(':');
  return colon == std::string::npos ? type : type.substr(colon + 1);
}

// In the order of their declaration, without --help.
std::vector<Flag> flags_of(const CLI::App& command) {
  std::vector<Flag> flags;
  for (const CLI::Option* option : command.get_options())
    if (!is_argument(*option) && option != command.get_help_ptr())
      flags.push_back({option->get_name(false, true), value_of(*option), option->get_description()});
  return flags;
}

std::string flag_table(const std::vector<Flag>& flags) {
  std::string page = head({"flag", "value", "meaning"});
  for (const Flag& flag : flags) page += row({code(flag.name), cell(flag.value), cell(flag.help)});
  return page + "\n";
}

// Names of several flags in one line: `--recipe`, `--dim`.
std::string names_of(const std::vector<Flag>& flags) {
  std::string text;
  for (const Flag& flag : flags) text += (text.empty() ? "" : ", ") + code(flag.name);
  return text;
}

std::string argument_list(const CLI::App& command) {
  std::string page;
  for (const CLI::Option* option : command.get_options())
    if (is_argument(*option))
      page += "- " + code(option->get_single_name()) + ": " + option->get_description() + "\n";
  return page.empty() ? "" : page + "\n";
}

// "gradloom show [OPTIONS] SESSION", as the command's help says it.
std::string usage_of(const CLI::App& command) {
  const std::string help = command.help("gradloom");
  const std::size_t begin = help.find("Usage: ") + 7;
  return help.substr(begin, help.find('\n', begin) - begin);
}

std::string command_section(const CLI::App& command, const std::map<Flag, std::size_t>& uses) {
  std::vector<Flag> own, shared;
  for (const Flag& flag : flags_of(command)) (uses.at(flag) < kShared ? own : shared).push_back(flag);
  std::string page = "## " + command.get_name() + "\n\n`" + usage_of(command) +
                     "`: " + command.get_description() + ".\n\n" + argument_list(command);
  if (!own.empty()) page += flag_table(own);
  page += "Shared flags: " + names_of(shared) + ".\n\n";
  const std::string examples = examples_of(command);
  return examples.empty() ? page : page + "```\n" + examples + "```\n\n";
}

}  // namespace

std::string command_page() {
  bool json = false;
  const CommandLine line(json);
  std::map<Flag, std::size_t> uses;
  std::vector<Flag> shared;
  std::string list = head({"command", "what it is for"}), sections;
  const std::vector<const CLI::App*> commands = std::as_const(*line.app).get_subcommands({});
  for (const CLI::App* command : commands) {
    list += row(
        {"[" + command->get_name() + "](#" + command->get_name() + ")", cell(command->get_description())});
    for (const Flag& flag : flags_of(*command))
      if (++uses[flag] == kShared) shared.push_back(flag);
  }
  for (const CLI::App* command : commands) sections += command_section(*command, uses);
  std::string page =
      "# Commands\n\n"
      "This page is made by `gradloom help --markdown` from what the commands declare.\n\n" +
      list + "\nExit codes: " + kExitCodes +
      ".\n\n## Shared flags\n\nA flag that is given again replaces the one before, except where it is said to "
      "be repeatable. [Recipes](recipe.md) has types and defaults of what a recipe holds.\n\n" +
      flag_table(shared) + sections;
  while (page.back() == '\n') page.pop_back();
  return page;
}

}  // namespace gradloom
