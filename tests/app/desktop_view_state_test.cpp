#include "app/desktop/view_state.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/folder.h"

namespace gradloom {
namespace {

ViewState some() {
  ViewState view;
  view.tabs = {"Kernels", "Node"};
  view.graph = GraphPlace{"a/\"b\"", 1.5f, -2, 0.25f, {"layers", "layers/0"}, {"n"}};
  view.choices = {{"graph.stage", 2}, {"kernels.group", 1}};
  view.texts = {{"graph", "op:MatMul \u03b1"}};
  view.orders = {{"kernels", {6, false}}, {"runs", {-1, true}}};
  return view;
}

TEST(ViewState, SurvivesARoundTrip) { EXPECT_EQ(parse_view(view_json(some())), some()); }

TEST(ViewState, WhatCannotBeReadIsLeftOut) {
  EXPECT_EQ(parse_view(""), ViewState());
  EXPECT_EQ(parse_view("[1]"), ViewState());
  const ViewState view = parse_view(
      R"({"tabs": ["A", 1, null], "graph": 7, "choices": {"a": -1, "b": 3, "c": "x", "d": 1e9, "e": 2.5},
          "texts": {"x": 1, "y": "z"}, "orders": {"k": 4, "l": {"column": 1e12}, "m": {"column": 2}}})");
  EXPECT_EQ(view.tabs, std::vector<std::string>{"A"});
  EXPECT_FALSE(view.graph);
  EXPECT_EQ(view.choices, (std::map<std::string, int>{{"b", 3}}));
  EXPECT_EQ(view.texts, (std::map<std::string, std::string>{{"y", "z"}}));
  EXPECT_EQ(view.orders, (std::map<std::string, KeptOrder>{{"l", {100, true}}, {"m", {2, true}}}));
}

TEST(ViewState, ATextWithoutEndIsNotKept) {
  ViewState view = some();
  view.texts["graph"] = std::string(100000, 'a');
  EXPECT_EQ(parse_view(view_json(view)).texts.size(), 0u);
}

TEST(ViewState, EachModelHasItsFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(view_file("", "abc"), "");
  EXPECT_EQ(view_file("/f", ""), "");
  const std::string path = view_file(folder / "views", "abc");
  EXPECT_FALSE(load_view(path));
  ASSERT_TRUE(save_view(some(), path).ok());
  EXPECT_EQ(load_view(path), some());
  AppState state;
  EXPECT_EQ(view_key(state), "");
}

}  // namespace
}  // namespace gradloom
