#include "app/command_sheets.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "app/command.h"
#include "passes/pass.h"
#include "passes/planners.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

constexpr std::size_t kShared = 3;  // commands with an equal flag

bool is_argument(const CLI::Option& option) {
  return option.get_lnames().empty() && option.get_snames().empty();
}

// "FLOAT:FLOAT in [0.1 - 86400]", "TEXT:{dark,light}": what stands behind the type.
std::string value_of(const CLI::Option& option) {
  if (option.get_type_size_max() == 0) return "";
  const std::string type = option.get_type_name();
  const std::size_t colon = type.find(':');
  return colon == std::string::npos ? type : type.substr(colon + 1);
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  return parts;
}

// Words of "cpu | cuda:N | host-gpu (see gradloom devices)": cpu, cuda:, host-gpu. What stands in capitals is no word: FILE, OUTPUT.
void add_forms(ValueHints& hints, const std::string& forms) {
  for (const std::string& form : split(forms, " | ")) {
    const std::size_t end = form.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-");
    const char next = end == std::string::npos ? '\0' : form[end];
    const std::string word = form.substr(0, end);
    if (form.starts_with("FILE") || form.starts_with("SESSION")) hints.files = true;
    if (word.empty() || std::isdigit(static_cast<unsigned char>(word[0])) != 0) continue;
    const bool sentence = next == ' ' && form.compare(word.size(), 2, " (") != 0;
    if (next == ',' || sentence) continue;
    const bool open = next == ':' || next == '=';  // more follows
    const std::string shown = word + (open ? std::string(1, next) : "");
    const auto known = [&](const std::string& text) {
      return std::find(hints.words.begin(), hints.words.end(), text) != hints.words.end();
    };
    if (!known(shown) && !known(word + ":")) hints.words.push_back(shown);
  }
}

// What the help of an option says of files: ".npz or .safetensors file", "session file", "folder for checkpoints".
void add_files(ValueHints& hints, const std::string& help) {
  const auto letter = [&](std::size_t at) {
    return at < help.size() && std::isalnum(static_cast<unsigned char>(help[at])) != 0;
  };
  const auto says = [&](const char* words) { return help.find(words) != std::string::npos; };
  for (std::size_t at = help.find("file"); at != std::string::npos; at = help.find("file", at + 1))
    if (!letter(at + 4) && help[at + 4] != '\'' && (at == 0 || !letter(at - 1))) hints.files = true;
  hints.folders = help.starts_with("folder") || says("a folder");
  if (help.starts_with("ONNX")) hints.endings.emplace_back("onnx");
  for (std::size_t at = help.find('.'); at != std::string::npos; at = help.find('.', at + 1)) {
    if (!letter(at + 1) || (at > 0 && letter(at - 1))) continue;
    std::size_t end = at + 1;
    while (letter(end) || (end < help.size() && help[end] == '.' && letter(end + 1))) ++end;
    hints.endings.push_back(help.substr(at + 1, end - at - 1));
  }
  if (!hints.endings.empty()) hints.files = true;
  // These may be called anything.
  if ((says("session") && !says(".db")) || says("SQLite")) hints.endings.clear();
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const PassDef* pass : all_passes()) names.emplace_back(pass->name);
  return names;
}

// Values that are names of something this program has.
std::vector<std::string> names_for(const std::string& command, const std::string& option) {
  std::vector<std::string> names;
  if (option == "--passes") {
    names = pass_names();
    names.insert(names.begin(), {"default", "none"});
  } else if (option == "--exclude") {
    for (const std::string& pass : pass_names()) names.push_back(pass + ":");
  } else if (command == "help" && option == "COMMAND") {
    for (const CommandDef& def : all_commands()) names.emplace_back(def.name);
  } else if (command == "passes" && option == "NAME") {
    names = pass_names();
    for (const PlannerDef& planner : all_planners()) names.emplace_back(planner.name);
  } else if (command == "recipe" && option == "NAME") {
    for (const RecipeSetting& setting : recipe_settings()) names.emplace_back(setting.key);
  }
  return names;
}

ValueHints hints_of(const std::string& command, const CLI::Option& option, const std::string& value) {
  ValueHints hints;
  const std::string name = option.get_single_name();
  const std::string flag = is_argument(option) ? name : "--" + name;
  hints.words = names_for(command, flag);
  hints.list = flag == "--passes";
  if (!hints.words.empty()) return hints;
  if (value.starts_with('{') && value.ends_with('}')) {
    hints.words = split(value.substr(1, value.size() - 2), ",");
    return hints;
  }
  for (const RecipeSetting& setting : recipe_settings()) {
    if (is_argument(option) || flag_of(setting) != flag) continue;
    if (setting.forms != nullptr) add_forms(hints, setting.forms());
    if (setting.kind == SettingKind::choice) hints.words = split(setting.choices, " ");
    if (setting.kind == SettingKind::switched) hints.words = {"on", "off"};
  }
  if (hints.empty()) add_files(hints, option.get_description());
  return hints;
}

FlagSheet sheet_of(const std::string& command, const CLI::Option& option) {
  FlagSheet flag{option.get_name(false, true), value_of(option), option.get_description(), false, {}};
  flag.repeatable = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  if (!flag.value.empty()) flag.hints = hints_of(command, option, flag.value);
  return flag;
}

// As the command's help says it.
std::string usage_of(const CLI::App& command) {
  const std::string help = command.help("gradloom");
  const std::size_t begin = help.find("Usage: ") + 7;
  return help.substr(begin, help.find('\n', begin) - begin);
}

CommandSheet sheet_of(const CLI::App& command, const CommandDef& def) {
  CommandSheet sheet;
  sheet.name = def.name;
  sheet.summary = command.get_description();
  sheet.usage = usage_of(command);
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;  // nobody types it
    if (is_argument(*option))
      sheet.arguments.push_back({option->get_single_name(), option->get_description(),
                                 hints_of(sheet.name, *option, value_of(*option))});
    else if (option != command.get_help_ptr())
      sheet.flags.push_back(sheet_of(sheet.name, *option));
  }
  for (const char* example : def.examples)
    if (example != nullptr) sheet.examples.emplace_back(example);
  return sheet;
}

}  // namespace

std::vector<CommandSheet> command_sheets() {
  bool json = false;
  const CommandLine line(json);
  std::vector<CommandSheet> sheets;
  for (const CommandDef& def : all_commands())
    sheets.push_back(sheet_of(*std::as_const(*line.app).get_subcommand(def.name), def));
  return sheets;
}

bool is_shared(const std::vector<FlagSheet>& shared, const FlagSheet& flag) {
  return std::any_of(shared.begin(), shared.end(), [&](const FlagSheet& other) { return flag.same(other); });
}

std::vector<FlagSheet> shared_flags(const std::vector<CommandSheet>& commands) {
  std::vector<FlagSheet> shared;
  std::vector<std::pair<const FlagSheet*, std::size_t>> uses;
  for (const CommandSheet& command : commands)
    for (const FlagSheet& flag : command.flags) {
      auto known =
          std::find_if(uses.begin(), uses.end(), [&](const auto& use) { return use.first->same(flag); });
      if (known == uses.end()) known = uses.insert(uses.end(), {&flag, 0});
      if (++known->second == kShared) shared.push_back(flag);
    }
  return shared;
}

}  // namespace gradloom
