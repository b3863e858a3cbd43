// The arrangement of panes: a tree of horizontal and vertical splits whose leaves hold tabs. Pure data and
// operations; the drawing is viz/draw/panes.h. Saved as text:
// "h0.30(v0.60(Graph*,Kernels|Memory*),Passes*|Run)".
//
// A side of a split may be folded away: [ behind the ratio for the first, ] for the second. One pane may have all the room for a
// while (maximize); that is not saved.
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
  // The side of a split that is folded away.
  enum class Away : unsigned char { kNeither, kFirst, kSecond } away = Away::kNeither;
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
// needs folded; where there is too little for that too, the split folds. A side that is folded away gets nothing.
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

  // Makes the tab visible, also where panes are folded or folded away; adds it to the first leaf when it is nowhere. Ends
  // maximize() of another pane.
  void show(std::string_view tab);
  // Of its pane, and of splits that fold; what is out of sight stays so.
  void bring_to_front(std::string_view tab);
  // Its pane is neither folded away nor behind one that has all the room.
  bool in_sight(std::string_view tab) const;

  // The pane with this tab gets all the room; empty: none has any more.
  void maximize(std::string_view tab) { maximized_ = tab; }
  Pane* maximized() { return maximized_.empty() ? nullptr : find(maximized_); }  // null: none is
  // Folds away the nearest side of a split that has the tab, so that what is beside it has the room. False: it has no split.
  bool fold_away(std::string_view tab);
  bool any_away() const;
  void fold_none_away();
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
  std::string maximized_;  // a tab of the pane
};

}  // namespace gradloom
