// gradloom_command: commands of the command line behind C.
#include <CLI/CLI.hpp>
#include <atomic>
#include <stop_token>

#include "app/commands/commands.h"
#include "app/embed/border.h"
#include "app/embed/stop_flag.h"
#include "app/parse_words.h"
#include "engine/base/text.h"

using namespace gradloom;

namespace {

struct Row {
  const char* name;
  CommandRun (*declare)(CLI::App& app);
};
// Not `open`, which brings a window's libraries along, `train`, which is a job, and `help`.
constexpr Row kCommands[] = {
    {"inspect", declare_inspect}, {"plan", declare_plan},       {"check", declare_check},
    {"verify", declare_verify},   {"compare", declare_compare}, {"tune", declare_tune},
    {"runs", declare_runs},       {"show", declare_show},       {"trace", declare_trace},
    {"import", declare_import},   {"export", declare_export},   {"recipe", declare_recipe},
    {"passes", declare_passes},   {"ops", declare_ops},         {"devices", declare_devices},
};

Result<const Row*> command_called(const std::string& name) {
  std::vector<std::string> known;
  for (const Row& row : kCommands) {
    if (name == row.name) return &row;
    known.emplace_back(row.name);
  }
  return Error{Errc::usage, unknown_name("command", name, known)};
}

Status run_command(const std::vector<std::string>& words, const gradloom_callbacks& callbacks,
                   const std::int32_t* stop) {
  if (words.empty()) return Error{Errc::usage, "a command is needed: the first of `words`"};
  const Row& row = *TRY(command_called(words[0]));
  CLI::App app;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  bool json = callbacks.json != 0;
  app.add_flag("--json", json);
  const CommandRun run = row.declare(app);
  TRY(parse_words(app, {words.begin() + 1, words.end()}));
  Output out(json);
  out.set_listener(embed::listener(callbacks));
  std::stop_source source;
  std::atomic<int> finishing{0};
  CommandContext context{out, source.get_token(), finishing};
  const embed::StopFlag watched(stop, source);
  return run(context);
}

}  // namespace

int gradloom_command(int word_count, const char* const* words, const gradloom_callbacks* callbacks,
                     const int32_t* stop) {
  return embed::guarded(nullptr, [&]() -> Status {
    const std::vector<std::string> all = TRY(embed::words_of(word_count, words));
    if (callbacks == nullptr) return run_command(all, {}, stop);
    return run_command(all, TRY(embed::sized(callbacks, "callbacks")), stop);
  });
}
