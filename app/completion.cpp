#include "app/completion.h"

#include <algorithm>
#include <map>
#include <vector>

#include "app/command_sheets.h"

namespace gradloom {
namespace {

constexpr const char* kShells[] = {"bash", "zsh", "fish"};

std::vector<std::string> names_of(const FlagSheet& flag) {
  std::vector<std::string> names;
  std::string rest = flag.names;
  for (std::size_t comma; (comma = rest.find(',')) != std::string::npos; rest.erase(0, comma + 1))
    names.push_back(rest.substr(0, comma));
  names.push_back(rest);
  return names;
}

std::string joined_by(const std::vector<std::string>& words, const std::string& separator = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

// Up to the end of the first sentence or part: what fits beside a flag in a list.
std::string short_help(const std::string& help) {
  const std::size_t end =
      std::min({help.find(". "), help.find("; "), help.find(" ("), std::size_t{80}, help.size()});
  std::string text = help.substr(0, end);
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.pop_back();
  return text;
}

std::string with_escapes(const std::string& text, const std::string& escaped_characters) {
  std::string out;
  for (const char c : text) {
    if (escaped_characters.find(c) != std::string::npos) out += '\\';
    out += c;
  }
  return out;
}

// Within '...' of bash and zsh.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + out + "'";
}

// What a case of the bash script sets.
std::string bash_hints(const ValueHints& hints) {
  std::string text = "words=" + quoted(joined_by(hints.words));
  if (hints.list) text += " list=1";
  if (hints.files) text += " files=1 endings=" + quoted(joined_by(hints.endings));
  if (hints.folders) text += " folders=1";
  return text;
}

// Patterns of a case that set the same, by what they set.
std::string bash_cases(const std::map<std::string, std::vector<std::string>>& patterns_of,
                       const std::string& indent) {
  std::string text;
  for (const auto& [action, patterns] : patterns_of)
    text += indent + joined_by(patterns, "|") + ") " + action + " ;;\n";
  return text;
}

constexpr const char* kBashBegin =
    R"(# Completion of gradloom for bash, made by: gradloom help --completion bash
_gradloom_add() { # what compgen finds, a line each
  local line
  while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen "$@")
}
_gradloom() {
  local cur=${COMP_WORDS[COMP_CWORD]} command='' prev='' words='' list='' files='' endings='' folders='' flags='' value='' ending
  COMPREPLY=()
  if [ "$COMP_CWORD" -gt 1 ]; then command=${COMP_WORDS[1]}; fi
  prev=${COMP_WORDS[COMP_CWORD-1]}
  # bash parts words at = and : itself: --flag=value, tokens:FILE.
  case $cur in
    =) cur='' ;;
    :) cur='' prev=: ;;
    *) if [ "$prev" = = ]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi ;;
  esac
)";

constexpr const char* kBashEnd = R"(  if [ "$prev" = : ]; then files=1 endings='' words=''; fi
  if [ -n "$list" ]; then
    local before='' last=$cur sign=''
    case $cur in *,*) before=${cur%,*}, last=${cur##*,} ;; esac
    case $last in -*) sign=- last=${last#-} ;; esac
    _gradloom_add -P "$before$sign" -W "$words" -- "$last"
    compopt -o nospace 2>/dev/null
    return 0
  fi
  if [ -n "$words" ]; then
    _gradloom_add -W "$words" -- "$cur"
    case ${COMPREPLY[*]} in *[:=]) if [ ${#COMPREPLY[@]} -eq 1 ]; then compopt -o nospace 2>/dev/null; fi ;; esac
  fi
  if [ -n "$files$folders" ]; then
    compopt -o filenames 2>/dev/null
    if [ -n "$files" ] && [ -z "$endings" ]; then _gradloom_add -f -- "$cur"; else _gradloom_add -d -- "$cur"; fi
    for ending in $endings; do _gradloom_add -f -X "!*.$ending" -- "$cur"; done
  fi
  return 0
}
complete -F _gradloom gradloom
)";

// Flags of the same hints in all commands that have them stand alone, others behind their command.
std::map<std::string, std::vector<std::string>> flag_cases(const std::vector<CommandSheet>& commands) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> by_name;  // name, hints, commands
  for (const CommandSheet& command : commands)
    for (const FlagSheet& flag : command.flags)
      for (const std::string& name : names_of(flag))
        by_name[name][flag.value.empty() ? "" : bash_hints(flag.hints)].push_back(command.name);
  std::map<std::string, std::vector<std::string>> cases;
  for (const auto& [name, hints] : by_name)
    for (const auto& [action, in] : hints) {
      if (action.empty()) continue;
      if (hints.size() == 1)
        cases["value=1 " + action].push_back("*:" + name);
      else
        for (const std::string& command : in) cases["value=1 " + action].push_back(command + ":" + name);
    }
  return cases;
}

}  // namespace

std::span<const char* const> completion_shells() { return kShells; }

std::string completion_script(const std::string& shell) {
  return shell == "bash" ? bash_completion() : shell == "zsh" ? zsh_completion() : fish_completion();
}

std::string bash_completion() {
  const std::vector<CommandSheet> commands = command_sheets();
  std::string names, flag_lists;
  std::map<std::string, std::vector<std::string>> arguments;
  for (const CommandSheet& command : commands) {
    names += (names.empty() ? "" : " ") + command.name;
    std::string flags;
    for (const FlagSheet& flag : command.flags) flags += " " + joined_by(names_of(flag));
    flag_lists += "    " + command.name + ") flags='--help" + flags + "' ;;\n";
    if (!command.arguments.empty())
      arguments[bash_hints(command.arguments.front().hints)].push_back(command.name);
  }
  std::string script = kBashBegin;
  script += "  case $command:$prev in\n" + bash_cases(flag_cases(commands), "    ") + "  esac\n";
  script +=
      "  if [ -z \"$value\" ]; then\n  case $command in\n    '') words=" +
      quoted(names + " --help --version") + " ;;\n" + bash_cases(arguments, "    ") +
      "  esac\n  case $command in\n" + flag_lists +
      "  esac\n  case $cur in -*) if [ -n \"$command\" ]; then words=$flags files='' folders=''; fi ;; esac\n  fi\n";
  return script + kBashEnd;
}

namespace {

// An action of zsh's _arguments.
std::string zsh_action(const ValueHints& hints) {
  const std::string words = with_escapes(joined_by(hints.words), ":");
  if (hints.list) return "value:_values -s , value " + words;
  if (!hints.words.empty()) return "value:(" + words + ")";
  if (hints.files && !hints.endings.empty())
    return "file:_files -g \"*.(" + joined_by(hints.endings, "|") + ")\"";
  if (hints.files) return "file:_files";
  if (hints.folders) return "folder:_files -/";
  return "value: ";
}

std::string zsh_spec(const FlagSheet& flag) {
  const std::string help = "[" + with_escapes(short_help(flag.help), "[]:\\") + "]";
  const std::string action = flag.value.empty() ? "" : ":" + zsh_action(flag.hints);
  std::string specs;
  for (const std::string& name : names_of(flag))
    specs += " \\\n        " + quoted((flag.repeatable ? "*" : "") + name + help + action);
  return specs;
}

}  // namespace

std::string zsh_completion() {
  std::string descriptions, cases;
  for (const CommandSheet& command : command_sheets()) {
    descriptions += "    " + quoted(command.name + ":" + with_escapes(command.summary, ":\\")) + "\n";
    cases += "    " + command.name + ")\n      _arguments '--help[print the help of this command]'";
    for (const FlagSheet& flag : command.flags) cases += zsh_spec(flag);
    if (!command.arguments.empty())
      cases += " \\\n        " + quoted("*:" + zsh_action(command.arguments.front().hints));
    cases += "\n      ;;\n";
  }
  return "#compdef gradloom\n# Completion of gradloom for zsh, made by: gradloom help --completion zsh\n_gradloom() {\n"
         "  local -a commands\n  commands=(\n" +
         descriptions +
         "  )\n  if (( CURRENT == 2 )); then\n    _describe -t commands command commands\n    return\n  fi\n"
         "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n" +
         cases +
         "  esac\n}\nif [ \"$funcstack[1]\" = _gradloom ]; then\n  _gradloom \"$@\"\nelse\n  compdef _gradloom gradloom\nfi\n";
}

namespace {

std::string fish_quoted(const std::string& text) { return "'" + with_escapes(text, "\\'") + "'"; }

std::string fish_values(const ValueHints& hints) {
  if (hints.list)
    return " -x -a " +
           fish_quoted("(__fish_complete_list , 'string split \" \" \"" + joined_by(hints.words) + "\"')");
  if (!hints.words.empty())
    return std::string(hints.files ? " -r" : " -x") + " -a " + fish_quoted(joined_by(hints.words));
  if (!hints.files) return hints.folders ? " -x -a '(__fish_complete_directories)'" : " -x";
  if (hints.endings.empty()) return " -r -F";
  std::string found;
  for (const std::string& ending : hints.endings)
    found += (found.empty() ? "" : "; ") + ("__fish_complete_suffix ." + ending);
  return " -r -k -a " + fish_quoted("(" + found + ")");
}

}  // namespace

std::string fish_completion() {
  std::string script =
      "# Completion of gradloom for fish, made by: gradloom help --completion fish\ncomplete -c gradloom -f\n"
      "complete -c gradloom -n __fish_use_subcommand -l help -d 'print the list of commands'\n"
      "complete -c gradloom -n __fish_use_subcommand -l version -d 'print the version'\n";
  for (const CommandSheet& command : command_sheets()) {
    script += "complete -c gradloom -n __fish_use_subcommand -a " + command.name + " -d " +
              fish_quoted(command.summary) + "\n";
    const std::string in = "complete -c gradloom -n '__fish_seen_subcommand_from " + command.name + "'";
    for (const FlagSheet& flag : command.flags) {
      script += in;
      for (const std::string& name : names_of(flag))
        script += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      script += (flag.value.empty() ? "" : fish_values(flag.hints)) + " -d " +
                fish_quoted(short_help(flag.help)) + "\n";
    }
    if (command.arguments.empty()) continue;
    ValueHints hints = command.arguments.front().hints;
    script += in +
              (hints.files && hints.words.empty() && hints.endings.empty() ? " -F" : fish_values(hints)) +
              "\n";
  }
  return script;
}

}  // namespace gradloom
