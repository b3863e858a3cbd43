// Commands in the background: they go on when the window or the terminal that started them ends, and who looks for them later finds what
// they said. Each has a folder ROOT/N, of the user alone (mode 0700):
//   command.json   {"words": [..], "folder": where it was started, "started": Unix seconds, "note": ".."}
//   out, err       what it wrote
//   lock           locked (flock) as long as its keeper lives
//   ask            a FIFO for the keeper: one byte of BackgroundAsk each
//   end.json       {"exit_code": N, "signal": N}, once it has ended
// The keeper is this program again, in a session of its own: it starts the command, passes on what is asked, and writes how it ended.
// The lock is the keeper's standard input, so it is held from before it starts until the system has ended it, however that came.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

enum class BackgroundAsk : char { interrupt = 'i', kill = 'k' };

struct BackgroundEnd {
  int exit_code = 0;  // 128 + signal where one ended it
  int signal = 0;
};

struct BackgroundCommand {
  std::int64_t number = 0;         // its name; small, and used again
  std::string files;               // its folder
  std::vector<std::string> words;  // without the program's
  std::string folder;              // where it was started, and what its paths are relative to
  std::int64_t started_s = 0;      // Unix time
  std::string note;                // what whoever started it wants to find again
  bool running = false;
  std::optional<BackgroundEnd> end;  // nothing, and not running: its keeper was killed
  pid_t keeper = -1;                 // a child of this process, where it was started by it; to be waited for

  std::string out() const { return files + "/out"; }
  std::string err() const { return files + "/err"; }
  std::string session() const;       // that its words name, as an absolute path; empty: none
  std::string command_line() const;  // "gradloom WORD ..", as a shell takes it
};

std::string background_root();  // data_folder()/background; empty: there is none

// Starts `program` with these words, its lines in `out` and `err`. Errors: Errc::io; nothing is left behind then.
Result<BackgroundCommand> start_in_background(const std::string& root, const std::string& program,
                                              const std::vector<std::string>& words,
                                              const std::string& note = {});

// Those of this root, the oldest first; what is no such folder is left out. No folder: none.
std::vector<BackgroundCommand> list_background(const std::string& root);
// Errc::usage: there is none of this number.
Result<BackgroundCommand> find_background(const std::string& root, std::int64_t number);

// How it stands now: running, and its end.
void look_again(BackgroundCommand& command);

// Errc::usage: it has ended.
Status ask_background(const BackgroundCommand& command, BackgroundAsk ask);

// Takes its folder away. Errc::usage: it is running.
Status forget_background(const BackgroundCommand& command);

// What the keeper does, from its start to the command's end; a stop interrupts the command.
Status keep_background(const std::string& files, const std::string& program, const std::stop_token& stop);

}  // namespace gradloom
