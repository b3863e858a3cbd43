#include "engine/base/markdown.h"

namespace gradloom::markdown {

std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string code(const std::string& text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

std::string row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& text : cells) line += " " + text + " |";
  return line + "\n";
}

std::string head(const std::vector<std::string>& names) {
  std::string rule = "|";
  for (std::size_t i = 0; i < names.size(); ++i) rule += "---|";
  return row(names) + rule + "\n";
}

}  // namespace gradloom::markdown
