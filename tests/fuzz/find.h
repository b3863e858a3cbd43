// What a fuzz target died of is left in fuzz-find.bin, in the folder that the test runs in.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "tests/fuzz/targets.h"

namespace gradloom::fuzz {

inline const std::string* current = nullptr;  // what a target works on
inline const char* current_name = "";         // said when it dies

inline void keep_current(int signal_number) {
  const int fd = open("fuzz-find.bin", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd >= 0 && current != nullptr && write(fd, current->data(), current->size()) > 0) {
    const std::string text =
        std::string("what it died of is in fuzz-find.bin, in the folder of the test: ") + current_name + "\n";
    (void)!write(STDERR_FILENO, text.data(), text.size());
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

// A crash, or SIGALRM from an alarm that the test sets for a hang.
inline void keep_finds() {
  for (const int number : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGALRM}) signal(number, keep_current);
}

inline void run_kept(const Target& target, const std::string& bytes, const char* name = "") {
  current = &bytes;
  current_name = name;
  target.run(bytes);
}

}  // namespace gradloom::fuzz
