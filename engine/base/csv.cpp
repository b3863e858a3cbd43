#include "engine/base/csv.h"

#include "engine/base/text.h"

namespace gradloom {

std::string csv_field(std::string_view text) {
  std::string safe = escaped(text);
  if (!safe.empty() && std::string_view("=+-@").find(safe[0]) != std::string_view::npos) safe.insert(0, "'");
  if (safe.find_first_of(",\"\n") == std::string::npos) return safe;
  std::string quoted = "\"";
  for (const char c : safe) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += (&field == fields.data() ? "" : ",") + field;
  return line + "\n";
}

}  // namespace gradloom
