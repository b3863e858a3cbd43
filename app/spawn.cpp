#include "app/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

extern char** environ;

namespace gradloom {

namespace {

std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=')); }

std::vector<char*> environment_with(std::vector<std::string>& variables) {
  std::vector<char*> all;
  for (std::string& one : variables) all.push_back(one.data());
  for (char** own = environ; *own != nullptr; ++own)
    if (std::none_of(variables.begin(), variables.end(),
                     [&](const std::string& one) { return name_of(one) == name_of(*own); }))
      all.push_back(*own);
  all.push_back(nullptr);
  return all;
}

}  // namespace

std::string without_program_name(std::string line) {
  constexpr std::string_view kPrefix = "gradloom: ";  // as Output writes it
  if (line.starts_with(kPrefix)) line.erase(0, kPrefix.size());
  return line;
}

int spawn(const std::string& program, std::vector<std::string> words, const SpawnStreams& streams,
          pid_t& process, std::vector<std::string> variables) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (streams.in >= 0)
    posix_spawn_file_actions_adddup2(&files, streams.in, STDIN_FILENO);
  else
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (streams.out >= 0) posix_spawn_file_actions_adddup2(&files, streams.out, STDOUT_FILENO);
  if (streams.err >= 0) posix_spawn_file_actions_adddup2(&files, streams.err, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);  // this process blocks signals for its own waiter thread
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);  // the leader of a session has one anyway
  sigset_t defaults;
  sigemptyset(&defaults);  // whoever started this process may have ignored what cancels a run
  sigaddset(&defaults, SIGINT);
  sigaddset(&defaults, SIGTERM);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  const int group = streams.own_session ? POSIX_SPAWN_SETSID : POSIX_SPAWN_SETPGROUP;
  posix_spawnattr_setflags(&attributes,
                           static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int failure = posix_spawnp(&process, program.c_str(), &files, &attributes, argv.data(),
                                   environment_with(variables).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return failure;
}

}  // namespace gradloom
