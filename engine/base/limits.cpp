// The limits of files, by name.
#include "engine/base/limits.h"

#include "engine/base/text.h"

namespace gradloom {

std::span<const LimitField> limit_fields() {
  static constexpr LimitField kFields[] = {{"file_bytes", &Limits::file_bytes},
                                           {"nodes", &Limits::nodes},
                                           {"nesting", &Limits::nesting},
                                           {"rank", &Limits::rank},
                                           {"name_bytes", &Limits::name_bytes},
                                           {"expanded_nodes", &Limits::expanded_nodes},
                                           {"expanded_bytes", &Limits::expanded_bytes},
                                           {"folded_bytes", &Limits::folded_bytes},
                                           {"folded_work", &Limits::folded_work},
                                           {"examined_elements", &Limits::examined_elements}};
  return kFields;
}

Status set_limit(Limits& limits, const std::string& name, std::int64_t value) {
  std::string known;
  for (const LimitField& field : limit_fields()) {
    known += (known.empty() ? "" : ", ") + std::string(field.name);
    if (name != field.name) continue;
    // Above, the sums that are compared with it could overflow; nesting is the depth of our own recursion.
    const std::int64_t most = name == "nesting" ? 1000 : std::int64_t{1} << 40;
    if (value < 1 || value > most)
      return Error{Errc::usage, "limit " + name + " must be between 1 and " + std::to_string(most)};
    limits.*field.value = value;
    return {};
  }
  return Error{Errc::usage, "limit '" + escaped(name) + "' is not known (" + known + ")"};
}

std::string raised_by(const char* name) {
  return std::string(" (--import-limit ") + name + "=N raises the limit)";
}

}  // namespace gradloom
