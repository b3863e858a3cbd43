#include "app/command.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <thread>

#include "app/commands/commands.h"
#include "engine/base/text.h"

#ifndef GRADLOOM_VERSION
#define GRADLOOM_VERSION "0.1.0"
#endif

namespace gradloom {
namespace {

constexpr CommandDef kCommands[] = {
    {"open", "the window: graphs, passes, runs, kernels, memory, comparison", declare_open},
    {"inspect", "what a model holds: operators, parameters, dims, FLOPs; what has no kernel or gradient",
     declare_inspect},
    {"plan", "passes with match log, kernels and planned memory, without running", declare_plan},
    {"check", "test folders: outputs and gradients against reference files", declare_check},
    {"train", "real training steps, recorded into a session", declare_train},
    {"compare", "two runs of a session, or two configurations run interleaved", declare_compare},
    {"runs", "the runs of a session", declare_runs},
    {"show", "one run: losses, kernels, memory, passes", declare_show},
    {"trace", "a run's timings as Chrome/Perfetto JSON or CSV", declare_trace},
    {"export", "a run as a recipe that replays anywhere", declare_export},
    {"recipe", "the settings of a recipe with flags, types and defaults", declare_recipe},
    {"passes", "the optimization passes and memory planners with their options", declare_passes},
    {"ops", "the operators with opsets, gradients and kernels", declare_ops},
    {"devices", "the devices that can run training here, and why others cannot", declare_devices},
};

// SIGINT and SIGTERM ask for a stop; the second one ends the process at once (committed rows are safe).
class SignalStop {
 public:
  SignalStop() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set_, &previous_);
    waiter_ = std::thread([this] {
      int signal_number = 0;
      int seen = 0;
      while (sigwait(&set_, &signal_number) == 0) {
        if (signal_number == SIGUSR1) return;
        if (++seen > 1) _exit(static_cast<int>(Errc::interrupted));
        source_.request_stop();
      }
    });
  }
  ~SignalStop() {
    pthread_kill(waiter_.native_handle(), SIGUSR1);
    waiter_.join();
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  std::stop_token token() const { return source_.get_token(); }

 private:
  sigset_t set_, previous_;
  std::stop_source source_;
  std::thread waiter_;
};

void print_error(const Error& error) {
  std::string line = error.message;
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  // Most messages have escaped what is foreign in them; nothing that was missed may reach a terminal.
  std::fprintf(stderr, "gradloom: %s\n", escaped(line).c_str());
}

}  // namespace

std::span<const CommandDef> all_commands() { return kCommands; }

int run_command_line(int argc, const char* const* argv) {
  CLI::App app{"Gradloom: profiler and optimization workbench for neural-network training graphs"};
  app.name("gradloom");
  app.set_version_flag("--version", "gradloom " GRADLOOM_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 ok, 1 check or comparison failed, 2 usage, 3 bad input, 4 limit, 5 I/O, 6 device, 7 NaN "
      "or Inf, 70 bug, "
      "130 interrupted");
  Output out;
  bool json = false;
  CommandRun run;
  for (const CommandDef& def : kCommands) {
    CLI::App* sub = app.add_subcommand(def.name, def.summary);
    sub->option_defaults()->multi_option_policy(
        CLI::MultiOptionPolicy::TakeLast);  // a later flag overrides an earlier one
    sub->add_flag("--json", json, "one JSON object (or one per line) on stdout");
    const CommandRun declared = def.declare(*sub);
    sub->callback([&run, declared] { run = declared; });
  }
  if (argc > 1 && argv[1][0] != '-' &&
      std::none_of(std::begin(kCommands), std::end(kCommands),
                   [&](const CommandDef& def) { return std::string(def.name) == argv[1]; })) {
    print_error({Errc::usage, "unknown command '" + escaped(argv[1]) + "' (gradloom --help lists them)"});
    return static_cast<int>(Errc::usage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    print_error({Errc::usage, e.what()});
    return static_cast<int>(Errc::usage);
  }
  out.set_json(json);
  SignalStop signals;
  CommandContext context{out, signals.token()};
  Status status;
  try {
    status = run(context);
  } catch (const std::bad_alloc&) {
    status = Error{Errc::limit, "out of memory"};
  } catch (const std::exception& e) {
    status = Error{Errc::bug, std::string("unexpected exception: ") + e.what()};
  }
  if (std::fflush(stdout) != 0 && status.ok()) status = Error{Errc::io, "writing to stdout failed"};
  if (status.ok()) return 0;
  if (!status.error().message.empty()) print_error(status.error());
  return static_cast<int>(status.error().code);
}

}  // namespace gradloom
