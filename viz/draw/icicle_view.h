// The icicle view: one step as rectangles, each as wide as its time, children below their parents; a line with the sum of
// what is selected, and what the node that fills the width is made of as a table. Mouse: click selects, Ctrl + click adds or
// takes away, double click zooms in, right click is a menu; keys as in key_map(). Widths are the model's (icicle.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "sessions/store.h"
#include "viz/draw/actions.h"
#include "viz/draw/table.h"
#include "viz/model/icicle.h"
#include "viz/model/step_tree.h"

namespace gradloom {

struct IcicleState {
  TreeBy by = TreeBy::kScope;
  bool fold = true;
  StepTree tree;                   // of `by` and `fold`; see icicle_set_tree
  int32_t root = 0;                // fills the width
  std::vector<int32_t> selection;  // the last is where the arrows go from
  TableState table;
  std::vector<IcicleBox> boxes;  // of `root` in `boxes_width` pixels; empty: to be made
  float boxes_width = 0;
  int32_t menu_node = -1;    // of the open context menu
  bool menu_wanted = false;  // by the key, of what is selected
  int32_t hovered = -1;      // in the last frame, in icicle or table
  std::vector<bool> faint;   // by node of the tree, as `faint_of` has it; empty: none is, or it is to be made
  std::shared_ptr<const std::unordered_set<std::string>> faint_of;
  int32_t focus() const { return selection.empty() ? root : selection.back(); }
};

// What other views say of nodes of the graph.
struct IcicleMarks {
  std::string selected, outline;
  // Boxes of other kernels alone are faint; null: none is
  std::shared_ptr<const std::unordered_set<std::string>> inside;
};

struct IcicleEvents {
  bool changed_tree = false;                                // by or fold: a new tree is wanted
  bool selected = false;                                    // the selection became another
  int32_t show_graph = -1, show_kernels = -1, faster = -1;  // asked for in the menu
};

// Another tree: root and selection stay with what has their paths.
void icicle_set_tree(IcicleState& state, StepTree tree);
// `kernels`: what the tree was made of. `about`: of which run, for the line of the controls.
IcicleEvents draw_icicle(const std::vector<KernelRow>& kernels, const std::string& about,
                         const IcicleMarks& marks, IcicleState& state, Actions& actions);
// The keys of the key map that concern it; call after drawing it. True: the selection became another.
bool icicle_keys(IcicleState& state);

}  // namespace gradloom
