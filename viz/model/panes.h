// The arrangement of panes: a tree of horizontal and vertical splits whose leaves hold tabs. Pure data and
// operations; the drawing is viz/draw/panes.h. Saved as text:
// "h0.30(v0.60(Graph*,Kernels|Memory*),Passes*|Run)".
//
// Where a window is too small for all panes a split folds: its panes become one, with the tabs of both. Nothing of that is in the
// tree but which side is in front then; a larger window has its panes again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

struct Pane {
  enum class Kind : unsigned char { kTabs, kLeftRight, kTopBottom } kind = Kind::kTabs;
  float ratio = 0.5f;                   // the first child's share
  std::unique_ptr<Pane> first, second;  // of a split
  // The side of a split whose tab is in front while it is folded; < or > behind the ratio where it is not the larger one.
  enum class Front : unsigned char { kLarger, kFirst, kSecond } front = Front::kLarger;
  std::vector<std::string> tabs;  // of a leaf
  int active = 0;
};

// Where a tab goes in a layout that lacks it: behind the tab beside it.
struct TabPlace {
  std::string_view tab, beside;
};

// Room, or the least of it that is worth having; in any unit, the same for all of a call.
struct PaneRoom {
  float width = 0, height = 0;
};
using LeastRoom = std::function<PaneRoom(std::string_view tab)>;

// How a split shares its room. Each side gets what its panes need side by side; where there is too little for that, what the side
// needs folded; where there is too little for that too, the split folds.
struct PaneCut {
  bool folds = false;
  float first = 0;  // of the first side, without the gap
};
PaneCut cut_of(const Pane& split, PaneRoom room, float gap, const LeastRoom& least);
// A leaf with all tabs below a split, the one in front active.
Pane folded(const Pane& split);

enum class PaneEdge : unsigned char { kCentre, kLeft, kRight, kTop, kBottom };

class PaneTree {
 public:
  PaneTree() : root_(std::make_unique<Pane>()) {}
  static Result<PaneTree> parse(std::string_view text);
  std::string to_text() const;

  Pane& root() { return *root_; }
  const Pane& root() const { return *root_; }
  Pane* find(std::string_view tab);
  std::vector<std::string> all_tabs() const;
  // Those in front of their panes, in order, but last the one that is in front when all are folded.
  std::vector<std::string> tabs_in_front() const;

  // Makes the tab visible, also where panes are folded; adds it to the first leaf when it is nowhere.
  void show(std::string_view tab);
  void close(std::string_view tab);
  // The same layout with exactly these tabs: others are closed, missing ones are added,
  // hidden behind what is shown.
  void keep_tabs(const std::vector<TabPlace>& tabs);
  // Moves a tab into `target` (a leaf): among its tabs, or into a new pane split off at an edge.
  void move(std::string_view tab, Pane& target, PaneEdge edge);

 private:
  void remove(std::string_view tab);
  void prune(std::unique_ptr<Pane>& pane);
  std::unique_ptr<Pane> root_;
};

}  // namespace gradloom
