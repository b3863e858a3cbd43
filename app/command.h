// Commands: one row each. The command line, its --help, the tests and the window's "equivalent command" come
// from these rows.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
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

// Ctrl-C (SIGINT, SIGTERM, SIGHUP) ends a command at once with 130: files appear whole or not at all and
// sessions undo what was not committed, so there is nothing to put in order. Who has something to bring to an
// end holds a Finishing: then the first signal only asks for a stop, and the second ends the process.
struct CommandContext {
  Output& out;
  std::stop_token stop;
  std::atomic<int>& finishing;  // Finishing objects alive
};
class Finishing {
 public:
  explicit Finishing(CommandContext& context) : count_(context.finishing) { ++count_; }
  ~Finishing() { --count_; }
  Finishing(const Finishing&) = delete;
  Finishing& operator=(const Finishing&) = delete;

 private:
  std::atomic<int>& count_;
};
using CommandRun = std::function<Status(CommandContext&)>;

struct CommandDef {
  const char* name;
  const char* group;  // of the list that `gradloom` alone and --help print
  const char* summary;
  CommandRun (*declare)(CLI::App& app);  // adds flags; the returned function runs with what was parsed
  // Command lines that a shell takes; a test runs them (tests/app/examples_test.cpp)
  std::array<const char*, 5> examples{};
};
std::span<const CommandDef> all_commands();
// Errc::usage, with the commands that there are and the nearest, when the name is of none.
Status check_command(const std::string& name);

// "Examples:" and their lines; empty where there are none.
std::string examples_text(const CommandDef& def);

// All commands as one parser.
struct CommandLine {
  // `as_json` is set by the flag --json of every command. Where `only` names one, the others have no flags: to declare
  // those of all takes longer than many commands do.
  explicit CommandLine(bool& as_json, const std::string& only = {});
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();
  std::unique_ptr<CLI::App> app;
  CommandRun run;  // of the command that was parsed
};
inline constexpr const char* kExitCodes =
    "0 ok, 1 check or comparison failed, 2 usage, 3 bad input, 4 limit, 5 I/O, 6 device, 7 NaN or Inf, 70 bug, "
    "130 interrupted, also by a reader of stdout that went away";

// Parses and runs; returns the exit code (0 ok, else Errc). Errors are printed as one line on stderr, with
// --json also as the last line on stdout. A stdout that takes nothing (full disk) is Errc::io, one whose
// reader went away Errc::interrupted.
int run_command_line(int argc, const char* const* argv);

}  // namespace gradloom
