#include "app/command_page.h"

#include "app/command.h"
#include "app/command_sheets.h"
#include "engine/base/markdown.h"

namespace gradloom {
namespace {

using markdown::cell, markdown::code, markdown::head, markdown::row;

std::string flag_table(const std::vector<FlagSheet>& flags) {
  std::string page = head({"flag", "value", "meaning"});
  for (const FlagSheet& flag : flags) page += row({code(flag.names), cell(flag.value), cell(flag.help)});
  return page + "\n";
}

// Names of several flags in one line: `--recipe`, `--dim`.
std::string names_of(const std::vector<FlagSheet>& flags) {
  std::string text;
  for (const FlagSheet& flag : flags) text += (text.empty() ? "" : ", ") + code(flag.names);
  return text;
}

std::string argument_list(const CommandSheet& command) {
  std::string page;
  for (const ArgumentSheet& argument : command.arguments)
    page += "- " + code(argument.name) + ": " + argument.help + "\n";
  return page.empty() ? "" : page + "\n";
}

std::string example_list(const CommandSheet& command) {
  std::string page = "```\n";
  for (const std::string& example : command.examples) page += example + "\n";
  return command.examples.empty() ? "" : page + "```\n\n";
}

std::string command_section(const CommandSheet& command, const std::vector<FlagSheet>& all_shared) {
  std::vector<FlagSheet> own, shared;
  for (const FlagSheet& flag : command.flags) (is_shared(all_shared, flag) ? shared : own).push_back(flag);
  std::string page = "## " + command.name + "\n\n`" + command.usage + "`: " + command.summary + ".\n\n" +
                     argument_list(command);
  if (!own.empty()) page += flag_table(own);
  return page + "Shared flags: " + names_of(shared) + ".\n\n" + example_list(command);
}

}  // namespace

std::string command_page() {
  const std::vector<CommandSheet> commands = command_sheets();
  const std::vector<FlagSheet> shared = shared_flags(commands);
  std::string list = head({"command", "what it is for"}), sections;
  for (const CommandSheet& command : commands) {
    list += row({"[" + command.name + "](#" + command.name + ")", cell(command.summary)});
    sections += command_section(command, shared);
  }
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
