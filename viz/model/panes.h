// The arrangement of panes: a tree of horizontal and vertical splits whose leaves hold tabs. Pure data and
// operations; the drawing is viz/draw/panes.h. Saved as text:
// "h0.30(v0.60(Graph*,Kernels|Memory*),Passes*|Run)".
#pragma once

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
  std::vector<std::string> tabs;        // of a leaf
  int active = 0;
};

// Where a tab goes in a layout that lacks it: behind the tab beside it.
struct TabPlace {
  std::string_view tab, beside;
};

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

  // Makes the tab visible; adds it to the first leaf when it is nowhere.
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
