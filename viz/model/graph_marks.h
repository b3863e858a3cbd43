// What the application marks on the nodes of a graph, by name, and a place of the graph to come back to. By
// name, because graphs come and go with every change of the passes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "viz/model/graph_model.h"

namespace gradloom {

struct GraphMarks {
  std::unordered_set<std::string> noted;  // somebody wrote a note on it
  // By the change of the plan that is shown, or as another graph does not have it, or has it otherwise.
  std::unordered_set<std::string> added, removed, changed;
  // Kernels in the marked time range; the rest is dimmed.
  std::optional<std::unordered_set<std::string>> inside;
  bool operator==(const GraphMarks&) const = default;
};

enum GraphMark : uint8_t {
  kMarkNoted = 1,
  kMarkAdded = 2,
  kMarkRemoved = 4,
  kMarkOutside = 8,
  kMarkChanged = 16
};
// Bits of GraphMark by box; empty when nothing is marked.
std::vector<uint8_t> marks_of_boxes(const GraphModel& model, const GraphMarks& marks);

// Kept by the node nearest to the middle: it is found again when the layout around it has changed.
struct GraphPlace {
  std::string node;
  float dx = 0, dy = 0;                // from the middle of the canvas to the node, in points
  float zoom = 1;                      // points per world unit
  std::vector<std::string> expanded;   // scope paths, sorted
  std::vector<std::string> selection;  // node names
  bool operator==(const GraphPlace&) const = default;
};

}  // namespace gradloom
