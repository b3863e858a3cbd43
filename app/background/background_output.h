// What a command in the background writes, as it comes: whole lines of its two files, from the first on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/background/background.h"

namespace gradloom {

class BackgroundOutput {
 public:
  // Errors: Errc::io.
  static Result<BackgroundOutput> follow(const BackgroundCommand& command);
  BackgroundOutput(BackgroundOutput&&) noexcept;
  BackgroundOutput& operator=(BackgroundOutput&&) = delete;
  ~BackgroundOutput();

  // Adds lines that are whole; once the command has ended, what stands behind the last end of a line too. False: no
  // more will come. A line longer than 16 MiB is left out.
  bool read(std::vector<std::string>& out, std::vector<std::string>& err);
  void wait();        // until there may be more: half a second at most
  void wake() const;  // from any thread: ends the wait that goes on, or else the next one
  const BackgroundCommand& command() const;  // as it stood at the last read

 private:
  struct Impl;
  explicit BackgroundOutput(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The last whole line of a command's `out`; empty: none yet. At most the file's last 64 KiB are read.
std::string last_line(const BackgroundCommand& command);

// What a line of --json says of how far a command is: "step 120, loss 2.31", "35 %, measuring"; empty: nothing.
std::string progress_text(const std::string& line);

}  // namespace gradloom
