#include "app/conversion_notes.h"

namespace gradloom {

Json notes_json(const std::vector<ConversionNote>& notes) {
  Json list = Json::array();
  for (const ConversionNote& note : notes)
    list.push_back({{"where", note.where}, {"value", note.value}, {"why", note.why}});
  return list;
}

void tell_notes(const Output& out, const std::vector<ConversionNote>& notes, bool beside_file) {
  for (const ConversionNote& note : notes) {
    const std::string line = note.where + " (" + note.value + "): " + note.why;
    if (beside_file)
      out.note(line);
    else
      out.text("  " + line);
  }
}

}  // namespace gradloom
