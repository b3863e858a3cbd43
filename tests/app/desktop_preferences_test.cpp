// The window made one's own: settings, keys and layouts by their dialogs, and what is there again in the next window.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "app/desktop/panels.h"
#include "app/desktop/preferences.h"
#include "app/desktop/settings.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

const std::string kMlp =
    GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx --dim batch=8 --loss loss --steps 2";

class DesktopPreferences : public WindowScript {
 protected:
  // Windows that keep what they are told, one after the other.
  void window(const std::string& script, const std::string& arguments = kMlp) {
    ASSERT_EQ(open(arguments + " --keep " + file("kept"), "wait idle\n" + script), 0) << error_;
  }
  Settings settings() const { return load_settings(file("kept/settings.json")); }
  void write_settings(const std::string& json) {
    ASSERT_TRUE(save_settings(Settings(), file("kept/settings.json")).ok());  // makes the folder
    std::ofstream(file("kept/settings.json")) << json;
  }
};

TEST_F(DesktopPreferences, SettingsAreKept) {
  window(
      "key ctrl+,\nexpect \"settings.theme/Dark\" on\nclick \"settings.theme/High contrast\"\n"
      "click \"settings.scale/150 %\"\nwait 3\nclick settings.still\nexpect settings.still on\n"
      "key escape\nabsent settings.still\n");
  EXPECT_EQ(settings().theme, ThemeKind::contrast);
  EXPECT_EQ(settings().scale, 1.5f);
  EXPECT_FALSE(settings().motion);
  window(
      "click menu.View\nclick menu.app.settings\nexpect \"settings.theme/High contrast\" on\n"
      "expect \"settings.scale/150 %\" on\nexpect settings.still on\nkey escape\n"
      "key ctrl+plus\nkey ctrl+,\nexpect \"settings.scale/150 %\" off\nkey escape\nkey ctrl+0\n");
  EXPECT_EQ(settings().scale, 1);
}

TEST_F(DesktopPreferences, KeysAreChangedKeptAndListed) {
  window(
      // Undo by F9: the new key does it, the usual one no more.
      "click menu.Help\nclick menu.app.change_keys\nclick key-editor.search\ntype undo\nwait 2\n"
      "absent key-editor.keys.file.open\nexpect key-editor.keys.app.undo Ctrl+Z\n"
      "click key-editor.change.app.undo\nexpect key-editor.awaiting app.undo\nkey f9\n"
      "expect key-editor.keys.app.undo F9\nclick preferences.close\n"
      "click pass.fuse-optimizer\nexpect pass.fuse-optimizer off\nkey ctrl+z\nwait 3\nexpect pass.fuse-optimizer off\n"
      "key f9\nexpect pass.fuse-optimizer on\nwait idle\n");
  EXPECT_EQ(settings().keys, "app.undo=f9");
  window(
      "click pass.fuse-optimizer\nkey f9\nexpect pass.fuse-optimizer on\n"
      "click menu.Help\nclick menu.app.change_keys\nclick key-editor.reset.app.undo\n"
      "expect key-editor.keys.app.undo Ctrl+Z\nclick preferences.close\nwait idle\n");
  EXPECT_EQ(settings().keys, "");
}

TEST_F(DesktopPreferences, AKeyThatMeansSomethingElseIsTold) {
  window(
      "key ctrl+,\nclick settings.keys\nclick key-editor.search\ntype do\nwait 2\n"
      "click key-editor.change.app.redo\nkey ctrl+z\nexpect key-editor.conflict \"*Ctrl+Z is for: Undo*\"\n"
      "key escape\nexpect key-editor.keys.app.redo Ctrl+Shift+Z\nabsent key-editor.conflict\n"
      "click key-editor.add.app.redo\nkey ctrl+z\nclick key-editor.take\n"
      "expect key-editor.keys.app.redo \"Ctrl+Shift+Z, Ctrl+Z\"\nexpect key-editor.keys.app.undo none\n"
      // Escape leaves a key as it is, and the dialog open.
      "click key-editor.change.app.redo\nkey escape\nexpect key-editor.keys.app.redo \"Ctrl+Shift+Z, Ctrl+Z\"\n"
      "click key-editor.reset_all\nexpect key-editor.keys.app.redo Ctrl+Shift+Z\n");
  EXPECT_EQ(settings().keys, "");
}

TEST_F(DesktopPreferences, ABadTextOfKeysIsToldAndStays) {
  write_settings(R"({"keys": "app.undo=f9; file.open=banana"})");
  window(
      "expect toast.0 *banana*\nclick pass.fuse-optimizer\nkey f9\nexpect pass.fuse-optimizer on\nwait idle\n");
  EXPECT_EQ(settings().keys, "app.undo=f9; file.open=banana");
}

TEST_F(DesktopPreferences, LayoutsByNameKeyAndMenu) {
  window(
      "expect tab.Graph on\nkey alt+3\nexpect tab.Memory on\nexpect pane.Memory\n"
      "key ctrl+shift+p\nwait until commands.input\ntype export: roofline\nwait 3\n"
      "expect commands.row.0 \"Export: The roofline*\"\nkey escape\nwait 3\n"
      "key ctrl+shift+p\nwait until commands.input\ntype layout compare\nwait 3\nkey enter\nexpect tab.Compare on\n"
      "click menu.View\nclick menu.layouts\nclick \"menu.layout.Graph focus\"\nexpect tab.Graph on\nabsent pane.Passes\n"
      // One's own: kept under a name, used, renamed, deleted.
      "key alt+1\nclick tab.Kernels\nclick tab.Runs\nclick menu.View\nclick menu.app.layouts\nclick layouts.name\n"
      "type Mine\nkey enter\nexpect layouts.use.Mine\nclick preferences.close\n"
      "key alt+2\nexpect tab.Graph on\nkey alt+5\nexpect tab.Kernels on\nexpect tab.Runs on\n");
  ASSERT_EQ(settings().layouts.size(), 1u);
  EXPECT_EQ(settings().layouts[0].name, "Mine");
  EXPECT_TRUE(PaneTree::parse(settings().layouts[0].panes).ok());
  window(
      "click menu.View\nclick menu.app.layouts\nclick layouts.name\ntype Compare\nclick layouts.keep\n"
      "expect layouts.problem \"'Compare' is the window's own\"\n"
      "click layouts.rename.Mine\nwait 2\nkey ctrl+a\ntype Yours\nkey enter\nexpect layouts.use.Yours\n"
      "absent layouts.use.Mine\nclick layouts.use.Yours\nclick preferences.close\nexpect tab.Runs on\n");
  EXPECT_EQ(settings().layouts[0].name, "Yours");
  window("click menu.View\nclick menu.app.layouts\nclick layouts.delete.Yours\nabsent layouts.use.Yours\n");
  EXPECT_TRUE(settings().layouts.empty());
}

TEST(Layouts, EveryOneOfTheWindowHoldsEveryPanel) {
  std::vector<std::string> all = default_panes().all_tabs();
  std::sort(all.begin(), all.end());
  for (const NamedLayout& layout : built_in_layouts()) {
    ASSERT_TRUE(PaneTree::parse(layout.panes).ok()) << layout.name;
    std::vector<std::string> tabs = panes_from(layout.panes).all_tabs();
    std::sort(tabs.begin(), tabs.end());
    EXPECT_EQ(tabs, all) << layout.name;
  }
}

TEST_F(DesktopPreferences, AModelOpensAsItWasLeft) {
  window(
      "click tab.Kernels\nclick kernels.group/Operator\nclick \"kernel-groups.column.Time / step\"\n"
      "click kernels.search\ntype op:MatMul\nwait 3\n"
      "click tab.Notes\nkey ctrl+p\nwait until nodes.input\ntype layers.1\nwait 3\nkey enter\nwait idle\n"
      "expect node-panel.name *layers.1*\nclick tab.Kernels\nwait 3\n");
  window(
      "expect tab.Kernels on\nexpect tab.Notes on\nexpect kernels.group/Operator on\nexpect kernels.search op:MatMul\n"
      "expect \"kernel-groups.column.Time / step\" ascending\n"
      "click tab.Graph\nwait idle\nexpect node-panel.name *layers.1*\n");
  // Another model is not shown so.
  window("click tab.Kernels\nexpect kernels.search \"\"\nabsent node-panel.name\n",
         GRADLOOM_SOURCE_DIR "/tests/models/cnn-digits/model.onnx --loss loss --steps 2");
}

// Without a mouse: from pane to pane, from tab to tab, and through a list.
TEST_F(DesktopPreferences, KeysReachPanesTabsAndRows) {
  ASSERT_EQ(
      open(
          kMlp,
          "wait idle\nkey ctrl+tab\nexpect pane.Model keys\nkey ctrl+tab\nexpect pane.Passes keys\n"
          "key ctrl+tab\nexpect pane.Graph keys\nkey ctrl+pagedown\nexpect tab.Kernels on\nexpect pane.Kernels keys\n"
          "key down\nwait 2\nkey down\nwait 2\nexpect node-panel.name\n"
          "key ctrl+pageup\nexpect tab.Graph on\nkey ctrl+shift+tab\nexpect pane.Passes keys\n"),
      0)
      << error_;
}

TEST_F(DesktopPreferences, TabsThatHaveNoRoomAreInTheMenu) {
  ASSERT_EQ(
      open(
          kMlp,
          "wait idle\nkey alt+2\nsize 640 480\nwait 3\nscale 1.5\nwait 3\nabsent tab.Compare\nclick tabs.Graph\n"
          "click tabs.menu.Compare\nexpect tab.Compare on\nexpect pane.Compare\n"
          // A script finds one that is out of sight.
          "click tab.Memory\nexpect tab.Memory on\n"),
      0)
      << error_;
}

TEST_F(DesktopPreferences, AFileInTheWayDoesNotKeepTheWindowFromOpening) {
  std::ofstream(file("kept")) << "x";
  EXPECT_EQ(open(kMlp + " --keep " + file("kept"), "wait idle\nexpect tab.Graph on\n"), 0) << error_;
  EXPECT_NE(error_.find("settings"), std::string::npos) << error_;
}

// The window by keys alone: no mouse event is sent in these scripts.
const std::string kFocusJob = GRADLOOM_SOURCE_DIR
    "/tests/models/mlp/model.onnx --dim batch=8 --loss loss --optimizer 'sgd{lr=0.1}' --steps 5 --profile all";

class DesktopFocus : public WindowScript {
 protected:
  int keys(const std::string& script) {
    return open(kFocusJob + " --session " + file("s.db"), "wait idle\nabsent focus\n" + script);
  }
};

TEST_F(DesktopFocus, TabGoesThroughAPaneAndPressesWhatHasTheFocus) {
  EXPECT_EQ(
      keys(
          "key ctrl+tab\nkey ctrl+tab\nexpect pane.Passes keys\nkey tab\nexpect focus\n"
          "key tab\nkey shift+tab\nexpect pane.Passes keys\n"
          // The segments above the graph, in their order.
          "key ctrl+tab\nexpect pane.Graph keys\nabsent focus\nkey tab\nexpect focus graph.stage/Model\nscreenshot " +
          picture("desktop_focus_test.png") +
          "\nkey tab\nexpect focus \"graph.stage/No passes\"\nkey enter\nwait idle\n"
          "expect \"graph.stage/No passes\" on\nkey shift+tab\nexpect focus graph.stage/Model\nkey space\nwait idle\n"
          "expect graph.stage/Model on\nexpect graph.stage/Step off\n"
          // Before what a pane shows, its tabs: the one in front, and the menu of all where they have no room.
          "key shift+tab\nexpect focus tab*Graph\n"),
      0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture("desktop_focus_test.png")), 20'000u);
}

TEST_F(DesktopFocus, TabLeavesAFieldWithWhatWasTyped) {
  EXPECT_EQ(
      keys(
          "key ctrl+f\nwait 3\nexpect typing graph.search\ntype op:MatMul\nkey tab\nexpect focus\nabsent typing\n"
          "expect graph.search op:MatMul\nkey shift+tab\nexpect typing graph.search\n"),
      0)
      << error_;
}

TEST_F(DesktopFocus, MenusAreReachedAndStayInThemselves) {
  // Shift + Tab from the first item of the first pane: the menus are before it.
  EXPECT_EQ(
      keys(
          "key tab\nexpect focus menu.File\nkey enter\nexpect menu.File open\nkey down\nexpect focus menu.file.*\n"
          "key down\nexpect focus menu.file.*\nkey up\nkey escape\nexpect menu.File closed\n"
          "key tab\nexpect focus menu.View\n"),
      0)
      << error_;
}

}  // namespace
}  // namespace gradloom
