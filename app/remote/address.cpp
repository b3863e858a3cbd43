#include "app/remote/address.h"

#include <algorithm>
#include <string_view>

#include "app/recipe_flags.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr std::string_view kScheme = "ssh://";

bool is_name(std::string_view text) {
  return !text.empty() && text.front() != '-' && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  });
}

Error no_remote(const std::string& text, const char* why) {
  return {Errc::usage, "'" + escaped(text) + "' " + why + ": expected ssh://[user@]host[:port]/path"};
}

}  // namespace

bool is_remote(const std::string& text) { return std::string_view(text).starts_with(kScheme); }

std::string RemoteAddress::text() const {
  return std::string(kScheme) + (user.empty() ? "" : user + "@") + host +
         (port > 0 ? ":" + std::to_string(port) : "") + (path.starts_with('/') ? path : "/~/" + path);
}

Result<RemoteAddress> parse_remote(const std::string& text) {
  if (!is_remote(text)) return no_remote(text, "is no address");
  const std::string_view rest = std::string_view(text).substr(kScheme.size());
  const std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return no_remote(text, "names no file");
  std::string_view host = rest.substr(0, slash);
  RemoteAddress address;
  address.path = std::string(rest.substr(slash));
  if (address.path.starts_with("/~/")) address.path.erase(0, 3);
  if (const std::size_t at = host.find('@'); at != std::string_view::npos) {
    address.user = std::string(host.substr(0, at));
    host.remove_prefix(at + 1);
    if (!is_name(address.user)) return no_remote(text, "has no name of a user");
  }
  if (const std::size_t colon = host.find(':'); colon != std::string_view::npos) {
    const auto port = parse_number<int>(host.substr(colon + 1));
    if (!port || *port < 1 || *port > 65535) return no_remote(text, "has no number of a port");
    address.port = *port;
    host = host.substr(0, colon);
  }
  address.host = std::string(host);
  if (!is_name(address.host)) return no_remote(text, "has no name of a host");
  if (address.path.empty() || address.path == "/" || address.path.find('\0') != std::string::npos)
    return no_remote(text, "names no file");
  return address;
}

std::vector<std::string> ssh_words(const RemoteAddress& address, const std::vector<std::string>& arguments) {
  // A connection that is gone is noticed within a minute. Nothing is asked, as no terminal is there to answer; and no connection
  // to be shared is begun, which would outlive this one and hold its outputs.
  std::vector<std::string> words = {"ssh", "-T"};
  for (const char* option :
       {"ServerAliveInterval=15", "ServerAliveCountMax=3", "BatchMode=yes", "ControlMaster=no"})
    words.insert(words.end(), {"-o", option});
  if (address.port > 0) words.insert(words.end(), {"-p", std::to_string(address.port)});
  if (!address.user.empty()) words.insert(words.end(), {"-l", address.user});
  words.insert(words.end(), {"--", address.host});
  std::string line = shell_quoted(address.program);  // ssh hands one line to the shell there
  for (const std::string& argument : arguments) line += " " + shell_quoted(argument);
  words.push_back(std::move(line));
  return words;
}

}  // namespace gradloom
