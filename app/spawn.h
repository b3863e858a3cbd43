// Starting a program beside this one.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gradloom {

// In a process group of its own, so that Ctrl-C in the terminal is this process's to pass on; with nothing to read, no signal
// blocked, and none ignored that asks for an end. `program`: a path, or a name to look for; `words`: its command line, the
// name first; `out`, `err`: descriptors that become its stdout and stderr, -1: ours; `variables`: "NAME=value" of its environment, instead of
// ours of that name. Returns 0, or the errno.
int spawn(const std::string& program, std::vector<std::string> words, int out, int err, pid_t& process,
          std::vector<std::string> variables = {});

}  // namespace gradloom
