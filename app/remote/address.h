// Where a session lies that another machine has: ssh://[user@]host[:port]/path, /~/path from the home folder.
//
// The user's own ssh carries everything; no port is opened. `program` is what runs at the far end.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

struct RemoteAddress {
  std::string user, host, path;  // path: absolute, or from the home folder
  int port = 0;                  // 0: ssh's own
  std::string program = "gradloom";
  std::string text() const;  // as it is written
  bool operator==(const RemoteAddress&) const = default;
};

bool is_remote(const std::string& text);  // it begins with ssh://
// Errc::usage: no host, no path, characters that no name of a host has (one that begins with '-' would be an option of ssh's).
Result<RemoteAddress> parse_remote(const std::string& text);

// The words of ssh that run the program there with these arguments; the first is "ssh".
std::vector<std::string> ssh_words(const RemoteAddress& address, const std::vector<std::string>& arguments);

}  // namespace gradloom
