// What the user changes in the key map.
#include "viz/draw/keys.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

class KeyChanges : public testing::Test {
 protected:
  void TearDown() override { use_key_changes({}); }  // the table is one per process
};

using Chords = std::vector<std::string>;

TEST_F(KeyChanges, ATextGivesActionsOtherKeys) {
  EXPECT_TRUE(use_key_changes("file.open=ctrl+shift+o; graph.back=f7 alt+left ;run.stop=").empty());
  EXPECT_EQ(chords_of("file.open"), Chords{"ctrl+shift+o"});
  EXPECT_EQ(chords_of("graph.back"), (Chords{"f7", "alt+left"}));
  EXPECT_EQ(chords_of("run.stop"), Chords());
  EXPECT_EQ(key_label("file.open"), "Ctrl+Shift+O");
  EXPECT_EQ(key_label("run.stop"), "");
  EXPECT_TRUE(keys_changed("run.stop"));
  EXPECT_FALSE(keys_changed("run.start"));
  EXPECT_EQ(key_changes(), "file.open=ctrl+shift+o; graph.back=f7 alt+left; run.stop=");
  EXPECT_TRUE(use_key_changes({}).empty());
  EXPECT_EQ(key_label("file.open"), "Ctrl+O");
  EXPECT_EQ(key_changes(), "");
}

TEST_F(KeyChanges, WhatCannotBeReadIsToldAndStays) {
  const auto problems = use_key_changes("file.open=banana; noaction=f9; rubbish; run.start=f9");
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[0], "key 'file.open=banana': 'banana' is no key");
  EXPECT_EQ(problems[1], "key 'noaction=f9': there is no action 'noaction'");
  EXPECT_EQ(problems[2], "key 'rubbish': there is no action 'rubbish'");
  EXPECT_EQ(key_label("file.open"), "Ctrl+O") << "as it was";
  EXPECT_EQ(key_label("run.start"), "F9") << "the part that can be read holds";
  EXPECT_EQ(key_changes(), "run.start=f9; file.open=banana; noaction=f9; rubbish") << "nothing is lost";
}

TEST_F(KeyChanges, NoTwoActionsThatHearTheSameGetOneKey) {
  const auto problems = use_key_changes("run.start=ctrl+o");
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0], "key 'ctrl+o' of run.start is that of file.open");
  EXPECT_EQ(key_label("run.start"), "F5");
  EXPECT_EQ(key_changes(), "run.start=ctrl+o");
  // Two that change places are none of it, and neither are keys of two canvases.
  EXPECT_TRUE(use_key_changes("run.start=ctrl+o; file.open=f5; timeline.mark=g").empty());
  EXPECT_EQ(key_label("file.open"), "F5");
}

TEST_F(KeyChanges, AConflictNamesWhoHasTheKey) {
  EXPECT_EQ(key_conflict("run.start", "ctrl+o"), "file.open");
  EXPECT_EQ(key_conflict("run.start", "Ctrl+O"), "file.open") << "however it is written";
  EXPECT_EQ(key_conflict("file.open", "ctrl+o"), "") << "its own";
  EXPECT_EQ(key_conflict("timeline.mark", "g"), "") << "the graph's";
  EXPECT_EQ(key_conflict("run.start", "g"), "graph.partner") << "heard everywhere";
  set_chords("file.open", {});
  EXPECT_EQ(key_conflict("run.start", "ctrl+o"), "");
}

TEST_F(KeyChanges, TheUsualKeysAreNoChange) {
  set_chords("file.open", {"f7"});
  set_chords("file.open", {"ctrl+o"});
  EXPECT_FALSE(keys_changed("file.open"));
  set_chords("graph.back", {"f7"});
  reset_chords("graph.back");
  EXPECT_EQ(chords_of("graph.back"), (Chords{"backspace", "alt+left"}));
}

TEST_F(KeyChanges, LabelsAreAsOnKeyboards) {
  EXPECT_EQ(chord_label("ctrl+pageup"), "Ctrl+PageUp");
  EXPECT_EQ(chord_label("pagedown"), "PageDown");
  EXPECT_EQ(chord_label("ctrl+shift+p"), "Ctrl+Shift+P");
}

TEST_F(KeyChanges, TheSheetSaysTheKeyThatHolds) {
  const auto sheet = [](std::string_view action) {
    for (const KeyBinding& binding : key_map())
      if (action == binding.action && binding.help != nullptr) return keys_text(binding);
    return std::string();
  };
  EXPECT_EQ(sheet("graph.fit"), "Home, tap Space");
  use_key_changes("graph.fit=f7 f8; run.stop=");
  EXPECT_EQ(sheet("graph.fit"), "F7, F8");
  EXPECT_EQ(sheet("run.stop"), "none");
}

}  // namespace
}  // namespace gradloom
