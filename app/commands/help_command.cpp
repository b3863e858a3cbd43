// gradloom help: the help text of the program or of one command, the references of docs/, the manual page and what shells complete.
#include <CLI/CLI.hpp>
#include <set>

#include "app/command_page.h"
#include "app/commands/commands.h"
#include "app/completion.h"
#include "app/manual_page.h"
#include "sessions/session_page.h"

namespace gradloom {
namespace {

Status print_help(CommandContext& context, const std::string& command) {
  if (!command.empty()) TRY(check_command(command));
  bool json = false;
  const CommandLine line(json, command);
  context.out.document(command.empty() ? line.app->help()
                                       : line.app->get_subcommand(command)->help("gradloom"));
  return {};
}

}  // namespace

CommandRun declare_help(CLI::App& app) {
  struct Options {
    std::string command, completion;
    bool markdown = false, sessions = false, man = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("COMMAND", options->command, "a command; without it, the list of commands");
  app.add_flag("--markdown", options->markdown, "the reference of all commands as a Markdown page");
  app.add_flag("--sessions", options->sessions, "the reference of session files as a Markdown page");
  app.add_flag("--man", options->man, "the manual page gradloom(1)");
  const std::set<std::string> shells(completion_shells().begin(), completion_shells().end());
  app.add_option("--completion", options->completion, "the script by which a shell completes command lines")
      ->check(CLI::IsMember(shells));
  return [options](CommandContext& context) -> Status {
    if (options->markdown)
      context.out.document(command_page() + "\n");
    else if (options->sessions)
      context.out.document(TRY(session_page()) + "\n");
    else if (options->man)
      context.out.document(manual_page());
    else if (!options->completion.empty())
      context.out.document(completion_script(options->completion));
    else
      return print_help(context, options->command);
    return {};
  };
}

}  // namespace gradloom
