// gradloom background: commands that go on without a terminal or a window.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "app/background/background.h"
#include "app/background/background_output.h"
#include "app/commands/commands.h"
#include "app/json_fields.h"
#include "app/spawn.h"
#include "engine/base/dates.h"
#include "engine/base/plugins.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

struct BackgroundOptions {
  std::vector<std::string> words;
  std::int64_t follow = 0, stop = 0, kill = 0, forget = 0;
  std::string keeper;
};

std::string state_text(const BackgroundCommand& command) {
  if (command.running) return "running";
  if (!command.end) return "lost";
  if (command.end->signal > 0) return "signal " + std::to_string(command.end->signal);
  return command.end->exit_code == 0 ? "done" : "exit " + std::to_string(command.end->exit_code);
}

Json json_of(const BackgroundCommand& command) {
  Json json = {
      {"background", command.number}, {"state", command.running ? "running" : command.end ? "ended" : "lost"},
      {"words", command.words},       {"folder", command.folder},
      {"session", command.session()}, {"started_utc", utc_text(command.started_s)},
      {"out", command.out()},         {"err", command.err()}};
  if (command.end) json["exit_code"] = command.end->exit_code;
  return json;
}

Status list_all(CommandContext& context) {
  std::vector<std::vector<std::string>> rows;
  for (const BackgroundCommand& command : list_background(background_root())) {
    context.out.object(json_of(command));
    const std::string far = progress_text(last_line(command));
    rows.push_back({std::to_string(command.number), state_text(command), utc_text(command.started_s),
                    far.empty() ? "-" : far, escaped(command.command_line())});
  }
  context.out.text(
      rows.empty() ? "nothing is in the background"
                   : table_text({"number", "state", "started", "last said", "command"}, rows, {1, 2, 3, 4}));
  return {};
}

// What a typing error would end is told here, not in the background.
Status check_words(const std::vector<std::string>& words) {
  TRY(check_command(words.front()));
  for (const char* never : {"open", "serve", "background"})
    if (words.front() == never)
      return Error{Errc::usage, std::string("gradloom ") + never + " cannot run in the background"};
  bool json = false;
  CommandLine line(json, words.front());
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 takes them
    line.app->parse(std::move(reversed));
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) return Error{Errc::usage, e.what()};
    return Error{Errc::usage, "nothing to run in the background: it only explains"};
  }
  return {};
}

Status start(std::vector<std::string> words, CommandContext& context) {
  TRY(check_words(words));
  if (std::find(words.begin(), words.end(), "--json") == words.end()) words.emplace_back("--json");
  const BackgroundCommand command = TRY(start_in_background(background_root(), program_path(), words));
  context.out.object(json_of(command));
  const std::string number = std::to_string(command.number);
  context.out.text("command " + number + " runs in the background; `gradloom background --follow " + number +
                   "` shows what it says");
  return {};
}

// Notes, and errors that it goes on after: the last ends it, and is told once.
void tell_problem(const std::string& line, const Output& out) {
  constexpr std::string_view kNote = "note: ";  // as Output writes it
  if (line.starts_with(kNote))
    out.note(line.substr(kNote.size()));
  else
    out.error(without_program_name(line));
}

// Everything it said and says, until it ends or Ctrl-C; it goes on then. Ends as the command has.
Status follow(const BackgroundCommand& command, CommandContext& context) {
  const Finishing finishing(context);  // Ctrl-C is answered here
  BackgroundOutput output = TRY(BackgroundOutput::follow(command));
  const std::stop_callback on_stop(context.stop, [&] { output.wake(); });
  std::string last_error;
  for (bool more = true; more && !context.stop.stop_requested() && !context.out.reader_gone();) {
    std::vector<std::string> out, err;
    more = output.read(out, err);
    for (const std::string& line : out) {
      const Json object = Json::parse(line, nullptr, false);
      if (object.is_object()) context.out.object(object);
      const std::string far = progress_text(line);
      context.out.text(far.empty() ? escaped(line) : far);
    }
    for (const std::string& line : err) tell_problem(line, context.out);
    if (!err.empty()) last_error = err.back();
    if (more) output.wait();
  }
  if (context.stop.stop_requested())
    return Error{Errc::interrupted, "command " + std::to_string(command.number) + " goes on"};
  const BackgroundCommand& now = output.command();
  if (!now.end)
    return Error{Errc::device, "command " + std::to_string(now.number) + " is lost: its keeper was killed"};
  if (now.end->exit_code == 0) return {};
  if (now.end->signal > 0) return Error{Errc::bug, "a signal ended it: " + std::to_string(now.end->signal)};
  return Error{static_cast<Errc>(now.end->exit_code), without_program_name(last_error)};
}

Status run_background(const BackgroundOptions& options, CommandContext& context) {
  if (!options.keeper.empty()) {
    const Finishing finishing(context);  // the command is interrupted by what interrupts its keeper
    return keep_background(options.keeper, program_path(), context.stop);
  }
  if (!options.words.empty()) return start(options.words, context);
  const std::int64_t asked = std::max({options.follow, options.stop, options.kill, options.forget});
  if (asked == 0) return list_all(context);
  const BackgroundCommand command = TRY(find_background(background_root(), asked));
  if (options.follow > 0) return follow(command, context);
  if (options.stop > 0) TRY(ask_background(command, BackgroundAsk::interrupt));
  if (options.kill > 0) TRY(ask_background(command, BackgroundAsk::kill));
  if (options.forget > 0) TRY(forget_background(command));
  context.out.object(json_of(command));
  context.out.text("command " + std::to_string(asked) +
                   (options.forget > 0 ? " is forgotten"
                    : options.kill > 0 ? " is killed"
                                       : " is asked to stop"));
  return {};
}

}  // namespace

CommandRun declare_background(CLI::App& app) {
  auto options = std::make_shared<BackgroundOptions>();
  app.add_option("WORDS", options->words,
                 "a command of gradloom and its flags, behind `--`: it is started in the background");
  const auto number = [&](const char* flag, std::int64_t& value, const char* help) {
    return app.add_option(flag, value, help)->type_name("NUMBER")->check(CLI::Range(1, 1'000'000));
  };
  std::vector<CLI::Option*> asks{
      number("--follow", options->follow,
             "show what a command said and says, and end as it does; Ctrl-C leaves it running"),
      number("--stop", options->stop, "ask a command to end after its step, as Ctrl-C does"),
      number("--kill", options->kill, "end a command at once"),
      number("--forget", options->forget, "take what an ended command said away")};
  for (CLI::Option* a : asks)
    for (CLI::Option* b : asks)
      if (a != b) a->excludes(b);
  app.add_option("--keeper", options->keeper)->group("");
  return [options](CommandContext& context) { return run_background(*options, context); };
}

}  // namespace gradloom
