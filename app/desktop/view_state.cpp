#include "app/desktop/view_state.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "app/desktop/kept_json.h"
#include "app/desktop/panels.h"
#include "app/desktop/ui.h"
#include "engine/base/file.h"
#include "engine/base/hash.h"

namespace gradloom {
namespace {

constexpr std::int64_t kMostViewBytes = 16 << 20;
constexpr std::size_t kMostTextBytes = 4096, kMostEntries = 100;

// A choice of a view that is a small number: how it is read, and what takes it back.
struct Choice {
  const char* name;
  int count;  // 0 .. count - 1
  int (*get)(const Ui& ui);
  void (*set)(Ui& ui, int value);
};

constexpr Choice kChoices[] = {
    {"graph.stage", 3,  // which step was shown pass by pass is not kept, as of bookmarks
     [](const Ui& ui) {
       return static_cast<int>(ui.stage == GraphStage::passes ? GraphStage::after : ui.stage);
     },
     [](Ui& ui, int v) { ui.stage = static_cast<GraphStage>(v); }},
    {"graph.color", static_cast<int>(kColorKinds.size()),
     [](const Ui& ui) { return static_cast<int>(ui.graph.color_by); },
     [](Ui& ui, int v) { ui.graph.color_by = static_cast<ColorBy>(v); }},
    {"graph.minimap", 2, [](const Ui& ui) { return ui.graph.minimap ? 1 : 0; },
     [](Ui& ui, int v) { ui.graph.minimap = v != 0; }},
    {"kernels.group", 6, [](const Ui& ui) { return static_cast<int>(ui.kernels.group()); },
     [](Ui& ui, int v) { ui.kernels.set_group(static_cast<KernelGroup>(v)); }},
    {"icicle.by", 5, [](const Ui& ui) { return static_cast<int>(ui.icicle.by); },
     [](Ui& ui, int v) {
       ui.icicle.by = static_cast<TreeBy>(v);
       ui.icicle_source = nullptr;
     }},
    {"icicle.fold", 2, [](const Ui& ui) { return ui.icicle.fold ? 1 : 0; },
     [](Ui& ui, int v) {
       ui.icicle.fold = v != 0;
       ui.icicle_source = nullptr;
     }},
    {"roofline.group", 4, [](const Ui& ui) { return ui.roofline.view.group; },
     [](Ui& ui, int v) { ui.roofline.view.group = v; }},
    {"compare.table", 3, [](const Ui& ui) { return ui.compare.table; },
     [](Ui& ui, int v) { ui.compare.table = v; }},
    {"curve.of", static_cast<int>(kCurveKinds.size()), [](const Ui& ui) { return ui.curves.of; },
     [](Ui& ui, int v) { ui.curves.of = v; }},
    {"curve.smoothing", static_cast<int>(std::size(kSmoothings)),
     [](const Ui& ui) { return ui.curves.smoothing; }, [](Ui& ui, int v) { ui.curves.smoothing = v; }},
    {"curve.log", 2, [](const Ui& ui) { return ui.curves.log ? 1 : 0; },
     [](Ui& ui, int v) { ui.curves.log = v != 0; }},
    {"run.more", 2, [](const Ui& ui) { return ui.more_settings ? 1 : 0; },
     [](Ui& ui, int v) { ui.more_settings = v != 0; }},
};

// Tables, and how many columns each has: an order by none of them is none.
struct Ordered {
  const char* name;
  int columns;
  TableState& (*table)(Ui& ui);
};
constexpr Ordered kOrdered[] = {
    {"kernels", static_cast<int>(KernelColumn::kThreads) + 1,
     [](Ui& ui) -> TableState& { return ui.kernel_table.table; }},
    {"runs", 16, [](Ui& ui) -> TableState& { return ui.runs_table; }},
};

void show_order(Ui& ui, const Ordered& of, const KeptOrder& order) {
  if (order.column < 0 || order.column >= of.columns) return;
  TableState& table = of.table(ui);
  table.sort_column = order.column;
  table.descending = order.descending;
  table.sort_given = true;
  if (&table != &ui.kernel_table.table) return;
  ui.kernel_table.started = true;
  ui.kernels.set_sort(static_cast<KernelColumn>(order.column), order.descending);
}

}  // namespace

std::string view_json(const ViewState& view) {
  Json root = {{"tabs", view.tabs}, {"choices", view.choices}, {"texts", view.texts}};
  Json orders = Json::object();
  for (const auto& [table, order] : view.orders)
    orders[table] = {{"column", order.column}, {"descending", order.descending}};
  root["orders"] = orders;
  root["lanes"] = view.lanes;
  if (view.graph) kept::put_place(root["graph"] = Json::object(), *view.graph);
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

ViewState parse_view(const std::string& json) {
  ViewState view;
  const Json root = Json::parse(json, nullptr, false);
  if (!root.is_object()) return view;
  view.tabs = kept::names_of(root, "tabs");
  if (view.tabs.size() > kMostEntries) view.tabs.resize(kMostEntries);
  const auto each = [&](const char* member, const auto& take) {
    const auto object = root.find(member);
    if (object == root.end() || !object->is_object() || object->size() > kMostEntries) return;
    for (const auto& [name, value] : object->items()) take(name, value);
  };
  each("choices", [&](const std::string& name, const Json& value) {
    if (value.is_number_integer() && value >= 0 && value < 100) view.choices[name] = value.get<int>();
  });
  each("texts", [&](const std::string& name, const Json& value) {
    if (value.is_string() && value.get_ref<const std::string&>().size() <= kMostTextBytes)
      view.texts[name] = value.get<std::string>();
  });
  each("lanes", [&](const std::string& name, const Json& value) {
    if (value.is_boolean() && name.size() <= kMostTextBytes) view.lanes[name] = value.get<bool>();
  });
  each("orders", [&](const std::string& name, const Json& value) {
    if (!value.is_object()) return;
    const auto descending = value.find("descending");
    const auto column = std::clamp<std::int64_t>(integer_of(value, "column", -1), -1, 100);
    view.orders[name] = {static_cast<int>(column),
                         descending == value.end() || !descending->is_boolean() || descending->get<bool>()};
  });
  if (const auto graph = root.find("graph"); graph != root.end() && graph->is_object())
    view.graph = kept::place_of(*graph);
  return view;
}

std::string view_key(const AppState& state) {
  if (state.has_model()) return state.model->model.content_hash;
  return state.session ? "session-" + hash_hex(state.session_path) : std::string();
}

std::string view_file(const std::string& folder, const std::string& key) {
  return folder.empty() || key.empty() ? std::string() : folder + "/" + key + ".json";
}

std::optional<ViewState> load_view(const std::string& path) {
  if (path.empty()) return std::nullopt;
  const auto text = read_file_limited(path, kMostViewBytes);
  return text ? std::optional(parse_view(*text)) : std::nullopt;
}

Status save_view(const ViewState& view, const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return Error{Errc::io, "view: " + path + ": " + error.message()};
  return atomic_write_file(path, view_json(view));
}

ViewState view_of(Ui& ui) {
  ViewState view;
  view.tabs = ui.panes.tabs_in_front();
  // A place that was to be shown and never was is still the one.
  view.graph = ui.place_after ? ui.place_after : graph_place(ui.graph);
  for (const Choice& choice : kChoices) view.choices[choice.name] = choice.get(ui);
  view.texts = {{"graph", ui.query_after.empty() ? ui.graph.query_text : ui.query_after},
                {"kernels", ui.kernel_table.query_text},
                {"runs", ui.runs_filter}};
  view.lanes = ui.lanes.folds;
  for (const Ordered& of : kOrdered) {
    const TableState& table = of.table(ui);
    view.orders[of.name] = {table.sort_column, table.descending};
  }
  return view;
}

void show_view(Ui& ui, const ViewState& view) {
  for (const std::string& tab : view.tabs)
    if (find_panel(tab) != nullptr) ui.panes.bring_to_front(tab);
  for (const Choice& choice : kChoices) {
    const auto kept = view.choices.find(choice.name);
    if (kept != view.choices.end() && kept->second < choice.count) choice.set(ui, kept->second);
  }
  const auto text = [&](const char* name) {
    const auto kept = view.texts.find(name);
    return kept == view.texts.end() ? std::string() : kept->second;
  };
  ui.query_after = text("graph");
  kernel_table_set_query(ui.kernels, ui.kernel_table, text("kernels"));
  ui.runs_filter = text("runs");
  ui.lanes.folds = view.lanes;
  for (const Ordered& of : kOrdered) {
    const auto kept = view.orders.find(of.name);
    if (kept != view.orders.end()) show_order(ui, of, kept->second);
  }
  ui.place_after = view.graph && !view.graph->node.empty() ? view.graph : std::nullopt;
}

}  // namespace gradloom
