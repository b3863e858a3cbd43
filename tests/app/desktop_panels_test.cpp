// The table of panels, and layouts that were saved before a panel was there.
#include "app/desktop/panels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace gradloom {
namespace {

std::vector<std::string> sorted_tabs(const PaneTree& tree) {
  auto tabs = tree.all_tabs();
  std::sort(tabs.begin(), tabs.end());
  return tabs;
}

TEST(DesktopPanels, TheDefaultLayoutHoldsEveryPanelOnce) {
  std::set<std::string> names, commands;
  for (const Panel& panel : panels()) {
    EXPECT_TRUE(names.insert(panel.name).second) << panel.name;
    EXPECT_NE(panel.draw, nullptr);
    EXPECT_NE(find_panel(panel.beside), nullptr) << panel.name << " stands beside no panel";
    if (panel.command) {
      EXPECT_TRUE(commands.insert(panel.command).second) << panel.command;
    }
  }
  EXPECT_EQ(sorted_tabs(default_panes()), std::vector<std::string>(names.begin(), names.end()));
}

// As a window of November 2026 wrote it into its settings, arranged by its user.
constexpr const char* kSaved =
    "h0.215(v0.340(Model*,Passes*),v0.640(h0.745(Graph|Kernels*|Icicle|Memory|Compare|Advice|What if|Trends|Tune|Scaling,v0.500(Node*,"
    "Timeline*|Roofline)),"
    "h0.500(Run*,Curve*|Runs|Notes)))";

TEST(DesktopPanels, ASavedLayoutIsReadAsItIs) { EXPECT_EQ(panes_from(kSaved).to_text(), kSaved); }

TEST(DesktopPanels, ASavedLayoutWithoutAPanelGetsItAndKeepsTheRest) {
  // What the window of before a panel was added had saved: the same without its tab.
  PaneTree tree = panes_from(
      "h0.215(v0.340(Model*,Passes*),v0.640(h0.745(Graph|Kernels*|Memory,v0.500(Node*,Timeline*)),"
      "h0.500(Run*,Curve*|Runs)))");
  EXPECT_EQ(sorted_tabs(tree), sorted_tabs(default_panes()));
  EXPECT_EQ(
      tree.to_text(),
      "h0.215(v0.340(Model*,Passes*),v0.640(h0.745(Graph|Kernels*|Icicle|Memory,v0.500(Node*,Timeline*|Compare|Advice|What "
      "if|Trends|Tune|Scaling|Roofline)),"
      "h0.500(Run*,Curve*|Runs|Notes)))");
}

TEST(DesktopPanels, PanelsThatThereAreNoMoreAreLeftOut) {
  PaneTree tree = panes_from("h0.400(Model*|Passes,h0.500(Hologram*,Graph*))");
  EXPECT_EQ(sorted_tabs(tree), sorted_tabs(default_panes()));
  EXPECT_EQ(tree.to_text().substr(0, 7), "h0.400(");
  EXPECT_EQ(tree.find("Hologram"), nullptr);
}

TEST(DesktopPanels, WhatIsNoLayoutGivesTheDefault) {
  for (const char* text : {"", "h0.5(", "Hologram*", "h9(A,B)"})
    EXPECT_EQ(panes_from(text).to_text(), default_panes().to_text()) << text;
}

}  // namespace
}  // namespace gradloom
