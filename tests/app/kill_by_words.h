// Processes as somebody else's hand ends them, found by their command lines.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace gradloom {

// Sends SIGKILL to every process whose command line, its words separated by blanks, contains all these parts; how many there were.
inline int kill_by_words(const std::vector<std::string>& parts) {
  int killed = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    std::string words{std::istreambuf_iterator<char>(file), {}};
    std::replace(words.begin(), words.end(), '\0', ' ');
    const bool fits = std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
      return words.find(part) != std::string::npos;
    });
    const pid_t process = fits ? std::stoi(name) : 0;
    if (process > 0 && process != getpid() && kill(process, SIGKILL) == 0) ++killed;
  }
  return killed;
}

}  // namespace gradloom
