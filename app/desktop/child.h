// A run in its own process: the window starts the command line it shows, reads JSON lines from its stdout and
// the last line of its stderr, and learns its exit code. A crash, an out-of-memory or a poisoned device never
// takes the window down. What runs in the background (app/background/background.h) goes on when the window ends, too.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/background/background.h"
#include "engine/base/result.h"

namespace gradloom {

// A POSIX shell's words of a command line as command_line() prints it:
// '...' and \' are understood, nothing is expanded.
Result<std::vector<std::string>> split_command_line(const std::string& line);

struct ChildExit {
  int code = 0;          // exit status, or 128 + signal
  bool crashed = false;  // ended by a signal other than those we send
  std::string error;     // last line of stderr, without the program's name
  bool ok() const { return code == 0; }
};

class Child {
 public:
  // `program` is started with `arguments` (without the program's name). `notify` is called from a background
  // thread whenever something can be taken. Error: the program cannot be started.
  static Result<std::unique_ptr<Child>> start(const std::string& program,
                                              const std::vector<std::string>& arguments,
                                              std::function<void()> notify);
  // The same of a command in the background, whoever started it, with all that it has said before.
  static Result<std::unique_ptr<Child>> follow(const BackgroundCommand& command,
                                               std::function<void()> notify);
  ~Child();  // kills what still runs, but for the background

  std::vector<std::string> take_lines(std::size_t most = SIZE_MAX);  // of stdout since the last call
  bool all_taken() const;                                            // no line waits
  bool running() const;    // false once the process ended and all its output was read
  ChildExit exit() const;  // REQUIRES !running()
  void interrupt();        // SIGINT: finish the step, keep what is committed
  void kill();
  long pid() const;                             // -1: in the background
  const BackgroundCommand* background() const;  // nullptr: it ends with this object

 private:
  struct Impl;
  explicit Child(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace gradloom
