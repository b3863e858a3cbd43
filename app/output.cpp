#include "app/output.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"

namespace gradloom {
namespace {

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
  if (!json_) return;
  // Names from files in plain ASCII: what would turn or hide text on a terminal is escaped as JSON does it.
  const std::string line = value.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

void Output::text(const std::string& line) const {
  if (json_) return;
  std::fprintf(stdout, "%s\n", printable(line).c_str());
}

void Output::note(const std::string& line) const {
  std::fprintf(stderr, "note: %s\n", escaped(line).c_str());
}

bool Output::terminal() const { return isatty(STDERR_FILENO) != 0; }

void Output::progress(const std::string& what, double fraction, const std::string& detail) const {
  if (!terminal()) return;
  constexpr int kWidth = 30;
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kWidth);
  std::fprintf(stderr, "\r\033[K%s [%s%s] %3.0f %%  %s", what.c_str(),
               std::string(static_cast<std::size_t>(full), '#').c_str(),
               std::string(static_cast<std::size_t>(kWidth - full), '.').c_str(), fraction * 100,
               detail.c_str());
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

}  // namespace gradloom
