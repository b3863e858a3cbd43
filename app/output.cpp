#include "app/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/base/text.h"

namespace gradloom {
namespace {

// A pipe that poll() calls writable takes this much without waiting (pipe(7)): only poll() waits, and looks
// up now and then whether the user wants to stop.
constexpr std::size_t kPiece = PIPE_BUF;
constexpr int kLookUpMs = 50;

std::size_t display_width(const std::string& text) {  // code points: our texts have no wide ones
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// Most texts have escaped what is foreign in them; nothing that was missed may reach a terminal.
std::string printable(const std::string& text) {
  std::string out;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find('\n', begin);
    out += escaped(std::string_view(text).substr(begin, end == std::string::npos ? end : end - begin));
    if (end == std::string::npos) return out;
    out += '\n';
    begin = end + 1;
  }
}

}  // namespace

void Output::object(const Json& value) const {
  if (!json_ || quiet_) return;
  // Names from files in plain ASCII: what would turn or hide text on a terminal is escaped as JSON does it.
  const std::string line = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  listener_ ? listener_(Said::json, line) : document(line + "\n");
}

void Output::text(const std::string& line) const {
  if (json_ || quiet_) return;
  listener_ ? listener_(Said::text, printable(line)) : document(printable(line) + "\n");
}

void Output::document(std::string_view bytes) const {
  if (listener_) {
    while (!bytes.empty()) {
      const std::size_t end = std::min(bytes.find('\n'), bytes.size());
      listener_(Said::text, std::string(bytes.substr(0, end)));
      bytes.remove_prefix(std::min(end + 1, bytes.size()));
    }
    return;
  }
  const std::lock_guard lock(mutex_);
  while (failure_ == 0 && !bytes.empty()) {
    pollfd out{STDOUT_FILENO, POLLOUT, 0};
    const int ready = ::poll(&out, 1, kLookUpMs);
    if (ready == 0 && stop_.stop_requested()) failure_ = EINTR;
    if (ready <= 0) continue;
    const ssize_t n = ::write(STDOUT_FILENO, bytes.data(), std::min(bytes.size(), kPiece));
    if (n > 0)
      bytes.remove_prefix(static_cast<std::size_t>(n));
    else if (errno != EINTR && errno != EAGAIN)
      failure_ = errno;
  }
}

void Output::note(const std::string& line) const {
  if (quiet_) return;
  if (listener_) return listener_(Said::note, escaped(line));
  std::fprintf(stderr, "note: %s\n", escaped(line).c_str());
}

void Output::error(const std::string& message) const {
  const std::lock_guard lock(mutex_);
  if (!told_.insert(message).second) return;
  std::string line = message;
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  // Most messages have escaped what is foreign in them; nothing that was missed may reach a terminal.
  if (listener_) return listener_(Said::error, escaped(line));
  std::fprintf(stderr, "gradloom: %s\n", escaped(line).c_str());
}

bool Output::reader_gone() const { return failure_ == EPIPE; }

Status Output::written() const {
  if (failure_ == 0) return {};
  const int failure = failure_;
  if (failure == EPIPE || failure == EINTR) return Error{Errc::interrupted, ""};
  return Error{Errc::io, std::string("cannot write to standard output: ") + std::strerror(failure)};
}

bool Output::terminal() const {
  const char* const kind = std::getenv("TERM");
  const bool dumb = kind != nullptr && std::string_view(kind) == "dumb";  // has no codes for its cursor
  return !listener_ && !dumb && isatty(STDERR_FILENO) != 0;
}

void Output::progress(const std::string& what, double fraction, const std::string& detail) const {
  if (!terminal()) return;
  constexpr int kWidth = 30;
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kWidth);
  // Without line wrap: of a line that is wider than the terminal, what wraps would stay.
  std::fprintf(stderr, "\r\033[K\033[?7l%s [%s%s] %3.0f %%  %s\033[?7h", escaped(what).c_str(),
               std::string(static_cast<std::size_t>(full), '#').c_str(),
               std::string(static_cast<std::size_t>(kWidth - full), '.').c_str(), fraction * 100,
               escaped(detail).c_str());
  std::fflush(stderr);
}

void Output::progress_done() const {
  if (terminal()) std::fprintf(stderr, "\r\033[K");
}

std::string table_text(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows, const std::vector<int>& left) {
  std::vector<std::size_t> width(header.size(), 0);
  for (std::size_t c = 0; c < header.size(); ++c) {
    width[c] = display_width(header[c]);
    for (const auto& row : rows) width[c] = std::max(width[c], display_width(row[c]));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const bool is_left = c == 0 || std::find(left.begin(), left.end(), static_cast<int>(c)) != left.end();
      const std::string pad(width[c] - display_width(cells[c]), ' ');
      if (c) text += "  ";
      text += is_left ? cells[c] + pad : pad + cells[c];
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
  };
  std::string text = line(header);
  for (const auto& row : rows) text += "\n" + line(row);
  return text;
}

Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json error_json(const Error& error) {
  return {{"error", {{"code", static_cast<int>(error.code)}, {"message", error.message}}}};
}

}  // namespace gradloom
