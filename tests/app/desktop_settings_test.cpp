#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "app/desktop/settings.h"
#include "tests/folder.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

TEST(Settings, SurviveARoundTrip) {
  Settings s;
  s.theme = ThemeKind::contrast;
  s.scale = 1.25f;
  s.motion = false;
  s.keys = "graph.fit=ctrl+home; run.stop=";
  s.layouts = {{"Mine \"1\"", "h0.5(A*,B*)"}, {"\u03b1", "A*"}};
  s.layout = "h0.5(A*,B*)";
  s.filters = {{"slow", "time>1ms or ~\"a\\\\.b\""}, {"op:Conv", "op:Conv"}};
  s.last_folder = "/models";
  s.recents = {"/a.onnx", "/b \"quoted\".db"};
  EXPECT_EQ(parse_settings(settings_json(s)), s);
}

TEST(Settings, WhatCannotBeReadKeepsItsDefault) {
  EXPECT_EQ(parse_settings(""), Settings());
  EXPECT_EQ(parse_settings("not json"), Settings());
  EXPECT_EQ(parse_settings("[1, 2]"), Settings());
  const Settings s = parse_settings(
      R"({"dark": "yes", "scale": 99, "layout": 7, "recents": [1, "/a.onnx", "", "/a.onnx", null], "later": {}})");
  EXPECT_EQ(s.theme, ThemeKind::dark);
  EXPECT_EQ(s.scale, 1);
  EXPECT_EQ(s.layout, "");
  EXPECT_EQ(s.recents, std::vector<std::string>{"/a.onnx"});
  EXPECT_EQ(parse_settings(R"({"theme": "mauve"})").theme, ThemeKind::dark);
  EXPECT_EQ(parse_settings(R"({"dark": false})").theme, ThemeKind::light) << "as older files say it";
  const auto layouts =
      parse_settings(
          R"({"layouts": [1, {"name": "A"}, {"name": "B", "panes": "X*"}, {"name": "B", "panes": "Y*"}]})")
          .layouts;
  EXPECT_EQ(layouts, (std::vector<NamedLayout>{{"B", "X*"}}));
  const auto filters =
      parse_settings(
          R"({"filters": [1, {"name": "A"}, {"name": "B", "query": "tme>1"}, {"query": "op:Conv"}]})")
          .filters;
  EXPECT_EQ(filters, (std::vector<SavedFilter>{{"op:Conv", "op:Conv"}})) << "no query, and one that is none";
}

TEST(Settings, RecentsAreNewestFirstWithoutRepeats) {
  Settings s;
  for (int i = 0; i < 20; ++i) add_recent(s, "/m" + std::to_string(i));
  EXPECT_EQ(s.recents.size(), kMostRecents);
  EXPECT_EQ(s.recents.front(), "/m19");
  add_recent(s, "/m15");
  EXPECT_EQ(s.recents.size(), kMostRecents);
  EXPECT_EQ(s.recents.front(), "/m15");
  EXPECT_EQ(s.recents[1], "/m19");
}

TEST(Settings, AreWrittenIntoAFolderThatDoesNotExistYet) {
  const TemporaryFolder folder;
  const std::string path = folder / "config/gradloom/settings.json";
  Settings s;
  s.theme = ThemeKind::light;
  ASSERT_TRUE(save_settings(s, path).ok());
  EXPECT_EQ(load_settings(path), s);
  EXPECT_EQ(load_settings(folder / "missing.json"), Settings());
}

TEST(Settings, AFileInTheWayIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  std::ofstream(folder / "config") << "x";
  const Status saved = save_settings(Settings(), folder / "config/settings.json");
  ASSERT_FALSE(saved.ok());
  EXPECT_NE(saved.error().message.find("config"), std::string::npos);
}

TEST(Settings, FollowTheXdgVariables) {
  const char* before = std::getenv("XDG_CONFIG_HOME");
  const std::string kept = before ? before : "";
  setenv("XDG_CONFIG_HOME", "/somewhere", 1);
  EXPECT_EQ(settings_path(), "/somewhere/gradloom/settings.json");
  setenv("XDG_CONFIG_HOME", "relative", 1);  // the specification says to ignore it
  EXPECT_EQ(settings_path().find("relative"), std::string::npos);
  if (before)
    setenv("XDG_CONFIG_HOME", kept.c_str(), 1);
  else
    unsetenv("XDG_CONFIG_HOME");
}

}  // namespace
}  // namespace gradloom
