#include "app/manual_page.h"

#include "app/build_info.h"
#include "app/command.h"
#include "app/command_sheets.h"

namespace gradloom {
namespace {

// Text in which nothing is a request or an escape. Dashes are the ones that are typed.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\'')
      out += "\\(aq";
    else if (c == '`')
      out += "\\(ga";
    else if (c == '^')
      out += "\\(ha";
    else if (c == '~')
      out += "\\(ti";
    else if (c == '\n')
      out += ' ';
    else
      out += c;
  }
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }

// A term with its text below and to the right.
std::string entry(const std::string& term, const std::string& text) {
  return ".TP\n" + term + "\n" + roff(text) + "\n";
}

std::string flag_entry(const FlagSheet& flag) {
  const std::string value = flag.value.empty() ? "" : " \\fI" + roff(flag.value) + "\\fR";
  std::string names;
  std::string rest = flag.names;
  for (std::size_t comma; (comma = rest.find(',')) != std::string::npos; rest.erase(0, comma + 1))
    names += bold(rest.substr(0, comma)) + ", ";
  return entry(names + bold(rest) + value, flag.help);
}

std::string manual_section(const CommandSheet& command, const std::vector<FlagSheet>& all_shared) {
  std::string page =
      ".SS " + roff(command.name) + "\n" + bold(command.usage) + "\n.PP\n" + roff(command.summary) + ".\n";
  for (const ArgumentSheet& argument : command.arguments)
    page += entry("\\fI" + roff(argument.name) + "\\fR", argument.help);
  std::string shared;
  for (const FlagSheet& flag : command.flags) {
    if (is_shared(all_shared, flag))
      shared += (shared.empty() ? "" : ", ") + flag.names;
    else
      page += flag_entry(flag);
  }
  if (!shared.empty()) page += ".PP\nShared flags: " + roff(shared) + ".\n";
  if (command.examples.empty()) return page;
  page += ".PP\n.nf\n";
  for (const std::string& example : command.examples) page += roff(example) + "\n";
  return page + ".fi\n";
}

}  // namespace

std::string manual_page() {
  const std::vector<CommandSheet> commands = command_sheets();
  const std::vector<FlagSheet> shared = shared_flags(commands);
  std::string page =
      ".\\\" Made by gradloom help --man from what the commands declare.\n.TH GRADLOOM 1 \"\" \"Gradloom " +
      build_info().version + "\" \"User Commands\"\n.SH NAME\ngradloom \\- " +
      "profiler and optimization workbench for neural\\-network training graphs\n"
      ".SH SYNOPSIS\n.B gradloom\n.I COMMAND\n[\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]\n.SH DESCRIPTION\n"
      "Gradloom reads an ONNX model, makes the backward graph and the optimizer update part of the same graph, "
      "rewrites it with passes that can each be switched, plans its memory, runs real steps and keeps every timing "
      "in a session, which is an SQLite database.\n";
  for (const CommandSheet& command : commands) page += entry(bold(command.name), command.summary);
  page += ".SH COMMANDS\n";
  for (const CommandSheet& command : commands) page += manual_section(command, shared);
  page +=
      ".SH SHARED FLAGS\nA flag that is given again replaces the one before, except where it is said to be repeatable.\n";
  for (const FlagSheet& flag : shared) page += flag_entry(flag);
  page +=
      ".SH EXIT STATUS\n" + roff(kExitCodes) + ".\n.SH ENVIRONMENT\n" +
      entry(bold("OMP_NUM_THREADS"), "number of CPU threads where --threads says none") +
      entry(bold("GRADLOOM_ISA"),
            "x86-64 level whose kernels run: v2, v3 or v4; by default the best that the processor has") +
      entry(bold("GRADLOOM_PLUGINS"), "folder in which the plugins of GPUs and ranks are looked for first") +
      entry(bold("GRADLOOM_TRANSPORT"),
            "what carries bytes between the ranks that --ranks starts: mpi or tcp") +
      entry(bold("GRADLOOM_PORT"),
            "port at which ranks that RANK and MASTER_ADDR name meet, instead of MASTER_PORT + 1") +
      entry(bold("GRADLOOM_WORLD_ID"),
            "any text, the same for the ranks of a training: others are sent away") +
      ".SH FILES\n" +
      entry("\\fI$XDG_CONFIG_HOME/gradloom/settings.json\\fR",
            "what the window remembers (by default below ~/.config)") +
      entry("\\fI$XDG_DATA_HOME/gradloom/marks\\fR",
            "bookmarks and notes on models (by default below ~/.local/share)");
  return page;
}

}  // namespace gradloom
