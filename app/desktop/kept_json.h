// Places of the graph in the files that the window keeps.
#pragma once

#include <string>
#include <vector>

#include "app/json_fields.h"
#include "viz/model/graph_marks.h"

namespace gradloom::kept {

inline constexpr std::size_t kMostNames = 20000;  // of one place

inline std::vector<std::string> names_of(const Json& object, const char* key) {
  return texts_of(object, key, kMostNames);
}

// A place of the graph among the other members of `object`.
inline void put_place(Json& object, const GraphPlace& place) {
  object["node"] = place.node;
  object["dx"] = place.dx;
  object["dy"] = place.dy;
  object["zoom"] = place.zoom;
  object["expanded"] = place.expanded;
  object["selection"] = place.selection;
}

inline GraphPlace place_of(const Json& object) {
  GraphPlace place;
  place.node = text_of(object, "node");
  place.dx = static_cast<float>(number_of(object, "dx"));
  place.dy = static_cast<float>(number_of(object, "dy"));
  place.zoom = static_cast<float>(number_of(object, "zoom", 1));
  place.expanded = names_of(object, "expanded");
  place.selection = names_of(object, "selection");
  return place;
}

}  // namespace gradloom::kept
