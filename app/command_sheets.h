// What the commands declare, as data: the reference of docs/, the manual page and the completions of shells are made of it.
#pragma once

#include <string>
#include <vector>

namespace gradloom {

// What a value may be, for completion: words, and files (all, or those that end so) or folders.
struct ValueHints {
  std::vector<std::string> words;
  bool files = false, folders = false;
  std::vector<std::string> endings;  // "onnx"; empty: any file
  bool list = false;                 // several values, joined by commas
  bool empty() const { return words.empty() && !files && !folders; }
  bool operator==(const ValueHints&) const = default;
};

struct FlagSheet {
  std::string names, value, help;  // "-o,--output"; value: empty for a flag that takes none
  bool repeatable = false;
  ValueHints hints;
  // The same flag of two commands: what it says and takes.
  bool same(const FlagSheet& other) const {
    return names == other.names && value == other.value && help == other.help;
  }
};

struct ArgumentSheet {
  std::string name, help;
  ValueHints hints;
};

struct CommandSheet {
  std::string name, summary, usage;  // "gradloom show [OPTIONS] SESSION"
  std::vector<ArgumentSheet> arguments;
  std::vector<FlagSheet> flags;  // in the order of their declaration, without --help
  std::vector<std::string> examples;
};

std::vector<CommandSheet> command_sheets();

// Flags that at least three commands have alike, in the order of their declaration.
std::vector<FlagSheet> shared_flags(const std::vector<CommandSheet>& commands);
bool is_shared(const std::vector<FlagSheet>& shared, const FlagSheet& flag);

}  // namespace gradloom
