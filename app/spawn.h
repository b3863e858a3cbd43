// Starting a program beside this one.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gradloom {

// Descriptors that become the program's; -1: nothing to read, our outputs.
struct SpawnStreams {
  int in = -1, out = -1, err = -1;
  bool own_session = false;  // without our terminal, so that its end is not the program's
};

// What a line says that a program of ours wrote on stderr: without the program's name.
std::string without_program_name(std::string line);

// In a process group of its own, so that Ctrl-C in the terminal is this process's to pass on; with no signal
// blocked, and none ignored that asks for an end. `program`: a path, or a name to look for; `words`: its command line, the
// name first; `variables`: "NAME=value" of its environment, instead of ours of that name. Returns 0, or the errno.
int spawn(const std::string& program, std::vector<std::string> words, const SpawnStreams& streams,
          pid_t& process, std::vector<std::string> variables = {});

}  // namespace gradloom
