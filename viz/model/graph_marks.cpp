#include "viz/model/graph_marks.h"

namespace gradloom {

std::vector<uint8_t> marks_of_boxes(const GraphModel& model, const GraphMarks& marks) {
  std::vector<uint8_t> bits;
  if (marks == GraphMarks()) return bits;
  bits.resize(model.boxes.size(), 0);
  const auto set = [&](const std::unordered_set<std::string>& names, GraphMark mark) {
    for (const std::string& name : names)
      if (const int32_t box = model.find(name); box >= 0) bits[static_cast<size_t>(box)] |= mark;
  };
  set(marks.noted, kMarkNoted);
  set(marks.removed, kMarkRemoved);
  set(marks.added, kMarkAdded);
  set(marks.changed, kMarkChanged);
  for (uint8_t& box : bits)  // both: a node that became another under the same name
    if (box & kMarkAdded) box &= static_cast<uint8_t>(~kMarkRemoved);
  if (marks.inside) {
    for (size_t b = 0; b < model.boxes.size(); ++b)
      if (marks.inside->count(model.boxes[b].name) == 0) bits[b] |= kMarkOutside;
  }
  return bits;
}

}  // namespace gradloom
