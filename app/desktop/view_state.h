// What the window shows of a model or a session: tabs, graph, zoom, selection, open scopes, sort orders, filters. One JSON
// file for each, data_folder()/views/KEY.json, written when another is opened and at the end, so that it opens as it was
// left. Read tolerantly, as marks.h is; how panes are arranged is a setting, and what is written about a model are its marks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/desktop/state.h"
#include "viz/model/graph_marks.h"

namespace gradloom {

struct Ui;

struct KeptOrder {
  int column = -1;  // -1: the order in which the rows come
  bool descending = true;
  bool operator==(const KeptOrder&) const = default;
};

struct ViewState {
  std::vector<std::string> tabs;             // in front of their panes
  std::optional<GraphPlace> graph;           // nothing: the graph was never shown
  std::map<std::string, int> choices;        // "graph.stage", "kernels.group", ..
  std::map<std::string, std::string> texts;  // what is searched for: "graph", "kernels", "runs"
  std::map<std::string, KeptOrder> orders;   // by table
  std::map<std::string, bool> lanes;         // of the timeline, that were folded or opened
  bool operator==(const ViewState&) const = default;
};

std::string view_json(const ViewState& view);
ViewState parse_view(const std::string& json);

// Of the open model by its contents, else of the shown session by its place; empty: nothing is open.
std::string view_key(const AppState& state);
std::string view_file(const std::string& folder, const std::string& key);  // empty when either is
std::optional<ViewState> load_view(const std::string& path);               // nothing: there is none
Status save_view(const ViewState& view, const std::string& path);          // makes the folder

ViewState view_of(Ui& ui);
void show_view(Ui& ui, const ViewState& view);

}  // namespace gradloom
