// Commands: one row each. The command line, its --help, the tests and the window's "equivalent command" come
// from these rows.
#pragma once

#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "app/output.h"
#include "engine/base/result.h"

namespace CLI {
class App;
}

namespace gradloom {

struct CommandContext {
  Output& out;
  std::stop_token stop;  // Ctrl-C: finish the step, keep what is committed, exit 130
};
using CommandRun = std::function<Status(CommandContext&)>;

struct CommandDef {
  const char* name;
  const char* summary;
  CommandRun (*declare)(CLI::App& app);  // adds flags; the returned function runs with what was parsed
};
std::span<const CommandDef> all_commands();

// Parses and runs; returns the exit code (0 ok, else Errc). Errors are printed as one line on stderr.
int run_command_line(int argc, const char* const* argv);

}  // namespace gradloom
