#include "viz/model/panes.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

constexpr const char* kLayout = "h0.300(v0.600(Graph*,Kernels|Memory*),Passes*|Run)";

TEST(Panes, TextRoundTrip) {
  const auto tree = PaneTree::parse(kLayout);
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(tree->to_text(), kLayout);
  EXPECT_EQ(tree->all_tabs(), (std::vector<std::string>{"Graph", "Kernels", "Memory", "Passes", "Run"}));
}

TEST(Panes, BadTextIsRefused) {
  for (const char* text :
       {"", "h0.3(A,B", "h2(A,B)", "h0.3(A)", "A|A", "h0.5(A,B)x", "h(A,B)", "|", "h0.5(A,)"}) {
    EXPECT_FALSE(PaneTree::parse(text).ok()) << text;
  }
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "h0.5(";
  EXPECT_FALSE(PaneTree::parse(deep).ok());
}

// Each of many tabs split off the one before: what is saved is read again.
TEST(Panes, ALayoutOfManySplitsIsReadAgain) {
  std::string tabs = "T0*";
  for (int i = 1; i < 40; ++i) tabs += "|T" + std::to_string(i);
  PaneTree tree = std::move(PaneTree::parse(tabs).value());
  for (int i = 1; i < 40; ++i)
    tree.move("T" + std::to_string(i), *tree.find("T" + std::to_string(i - 1)), PaneEdge::kRight);
  const auto again = PaneTree::parse(tree.to_text());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->to_text(), tree.to_text());
}

TEST(Panes, ShowActivatesOrAdds) {
  PaneTree tree = std::move(PaneTree::parse(kLayout).value());
  tree.show("Run");
  EXPECT_EQ(tree.find("Run")->active, 1);
  tree.show("New");
  EXPECT_EQ(tree.find("New"), tree.find("Graph"));
}

TEST(Panes, CloseRemovesEmptyPanes) {
  PaneTree tree = std::move(PaneTree::parse(kLayout).value());
  tree.close("Graph");
  EXPECT_EQ(tree.to_text(), "h0.300(Kernels|Memory*,Passes*|Run)");
  tree.close("Memory");
  EXPECT_EQ(tree.to_text(), "h0.300(Kernels*,Passes*|Run)");
}

TEST(Panes, KeepTabsAddsAndClosesAndShowsWhatWasShown) {
  PaneTree tree = std::move(PaneTree::parse("h0.300(A|Old|B*,v0.500(C*,Gone*))").value());
  tree.keep_tabs({{"A", ""}, {"B", ""}, {"C", ""}, {"New", "A"}, {"Other", "C"}, {"Stray", "Nowhere"}});
  EXPECT_EQ(tree.to_text(), "h0.300(A|New|B*|Stray,C*|Other)");
}

TEST(Panes, MoveJoinsAndSplits) {
  PaneTree tree = std::move(PaneTree::parse("h0.500(A*,B*|C)").value());
  tree.move("C", *tree.find("A"), PaneEdge::kCentre);
  EXPECT_EQ(tree.to_text(), "h0.500(A|C*,B*)");
  tree.move("C", *tree.find("B"), PaneEdge::kTop);
  EXPECT_EQ(tree.to_text(), "h0.500(A*,v0.500(C*,B*))");
  tree.move("A", *tree.find("B"), PaneEdge::kRight);
  EXPECT_EQ(tree.to_text(), "v0.500(C*,h0.500(B*,A*))");
  tree.move("A", *tree.find("A"), PaneEdge::kLeft);  // a pane's only tab cannot split from itself
  EXPECT_EQ(tree.to_text(), "v0.500(C*,h0.500(B*,A*))");
}

// Side panes need 100, the main one 200; the gap is 10.
PaneRoom least_of(std::string_view tab) {
  return tab == "Main" || tab == "Table" ? PaneRoom{200, 150} : PaneRoom{100, 50};
}
constexpr const char* kSides = "h0.250(v0.500(Model*,Passes*),v0.600(h0.700(Main*|Table,Node*),Run*|Curve))";

TEST(Panes, ASideThatHasTooLittleTakesItFromTheOther) {
  PaneTree tree = std::move(PaneTree::parse("h0.250(Model*,Main*)").value());
  EXPECT_FLOAT_EQ(cut_of(tree.root(), {1010, 500}, 10, least_of).first, 250);
  EXPECT_FLOAT_EQ(cut_of(tree.root(), {330, 500}, 10, least_of).first, 100);
  tree.root().ratio = 0.9f;
  EXPECT_FLOAT_EQ(cut_of(tree.root(), {1010, 500}, 10, least_of).first, 800);
}

TEST(Panes, ASplitFoldsWhereBothSidesHaveTooLittle) {
  PaneTree tree = std::move(PaneTree::parse(kSides).value());
  Pane& root = tree.root();
  const auto folds = [&](const Pane& split, PaneRoom room) {
    return cut_of(split, room, 10, least_of).folds;
  };
  EXPECT_FALSE(folds(root, {1000, 800}));
  // The main pane and the node do not fit beside each other any more, both still beside the model.
  EXPECT_FALSE(folds(root, {320, 800}));
  EXPECT_TRUE(folds(*root.second->first, {210, 480}));
  EXPECT_TRUE(folds(root, {305, 800}));
  EXPECT_FALSE(folds(*root.second, {600, 210}));
  EXPECT_TRUE(folds(*root.second, {600, 205}));
  for (const PaneRoom room : {PaneRoom{0, 0}, {5, 5}, {1e6f, 1e6f}}) {
    const PaneCut cut = cut_of(root, room, 10, least_of);
    EXPECT_TRUE(cut.folds || (cut.first >= 100 && cut.first <= room.width - 210)) << room.width;
  }
}

TEST(Panes, AFoldedPaneHasAllTabsAndShowsWhatWasShownLast) {
  PaneTree tree = std::move(PaneTree::parse(kSides).value());
  Pane all = folded(tree.root());
  EXPECT_EQ(all.tabs, (std::vector<std::string>{"Model", "Passes", "Main", "Table", "Node", "Run", "Curve"}));
  EXPECT_EQ(all.tabs[static_cast<std::size_t>(all.active)], "Main") << "the larger side at each split";
  for (const char* tab : {"Passes", "Curve", "Node", "Table"}) {
    tree.show(tab);
    all = folded(tree.root());
    EXPECT_EQ(all.tabs[static_cast<std::size_t>(all.active)], tab);
    EXPECT_EQ(tree.tabs_in_front().back(), tab) << "and so it is after a start";
    const auto again = PaneTree::parse(tree.to_text());
    ASSERT_TRUE(again.ok()) << tree.to_text();
    all = folded(again->root());
    EXPECT_EQ(all.tabs[static_cast<std::size_t>(all.active)], tab) << tree.to_text();
  }
  tree.show("Main");
  EXPECT_EQ(tree.to_text(), "h0.250(v0.500>(Model*,Passes*),v0.600(h0.700(Main*|Table,Node*),Run|Curve*))");
  EXPECT_EQ(tree.tabs_in_front(), (std::vector<std::string>{"Model", "Passes", "Node", "Curve", "Main"}));
  EXPECT_FALSE(PaneTree::parse("h0.250<>(A,B)").ok());
}

TEST(Panes, ASideFoldsAwayAndComesBack) {
  PaneTree tree = std::move(PaneTree::parse(kSides).value());
  EXPECT_TRUE(tree.fold_away("Node"));
  EXPECT_TRUE(tree.fold_away("Passes"));
  EXPECT_EQ(tree.to_text(), "h0.250(v0.500](Model*,Passes*),v0.600(h0.700](Main*|Table,Node*),Run*|Curve))");
  EXPECT_FALSE(tree.in_sight("Node"));
  EXPECT_TRUE(tree.in_sight("Main"));
  EXPECT_TRUE(tree.fold_away("Model")) << "alone in its split: that goes";
  EXPECT_EQ(tree.to_text(), "h0.250[(v0.500](Model*,Passes*),v0.600(h0.700](Main*|Table,Node*),Run*|Curve))");
  const auto again = PaneTree::parse(tree.to_text());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->to_text(), tree.to_text()) << "and is so after a start";
  EXPECT_TRUE(again->any_away());
  EXPECT_FLOAT_EQ(cut_of(again->root(), {1010, 500}, 10, least_of).first, 0);
  EXPECT_FLOAT_EQ(cut_of(*again->root().second->first, {1010, 500}, 10, least_of).first, 1000);
  // What is there needs no room for what is not.
  EXPECT_FALSE(cut_of(*again->root().second, {205, 220}, 10, least_of).folds);
  tree.bring_to_front("Passes");
  EXPECT_FALSE(tree.in_sight("Passes")) << "in front of what is out of sight";
  tree.show("Passes");
  EXPECT_TRUE(tree.in_sight("Passes"));
  EXPECT_FALSE(tree.in_sight("Node"));
  tree.fold_none_away();
  EXPECT_FALSE(tree.any_away());
  EXPECT_TRUE(tree.in_sight("Node"));
  PaneTree one = std::move(PaneTree::parse("A*|B").value());
  EXPECT_FALSE(one.fold_away("A"));
}

TEST(Panes, OnePaneHasAllTheRoomUntilAnotherIsAskedFor) {
  PaneTree tree = std::move(PaneTree::parse(kSides).value());
  const std::string before = tree.to_text();
  tree.maximize("Table");
  EXPECT_EQ(tree.maximized(), tree.find("Main"));
  EXPECT_TRUE(tree.in_sight("Main"));
  EXPECT_FALSE(tree.in_sight("Node"));
  EXPECT_EQ(tree.to_text(), before) << "it is not saved";
  tree.show("Table");
  EXPECT_NE(tree.maximized(), nullptr) << "a tab of the pane";
  tree.show("Node");
  EXPECT_EQ(tree.maximized(), nullptr);
  EXPECT_TRUE(tree.in_sight("Main"));
  tree.maximize("Gone");
  EXPECT_EQ(tree.maximized(), nullptr);
  EXPECT_TRUE(tree.in_sight("Main"));
}

}  // namespace
}  // namespace gradloom
