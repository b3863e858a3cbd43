#include "app/view_exports.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <map>

#include "app/recipe_flags.h"
#include "engine/base/csv.h"
#include "engine/base/fields.h"
#include "engine/base/file.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr ViewDef kViews[] = {
    {"graph", "Graph", "The graph\u2026", ViewOf::run_beside, "show", "--graph", "graph.boxes", "", ""},
    {"graph", "Graph", "The graph\u2026", ViewOf::job, "plan", "--graph", "graph.boxes", "", ""},
    {"kernels", "Kernels", "The kernels\u2026", ViewOf::run, "show", "", "kernels", "", ""},
    {"kernels", "Kernels", "The kernels\u2026", ViewOf::job, "plan", "", "kernels", "", ""},
    {"icicle", "Icicle", "The icicle\u2026", ViewOf::run, "show", "--tree scope --unfold", "step", "", ""},
    {"memory", "Memory", "The memory\u2026", ViewOf::run, "show", "--memory", "memory.live", "", ""},
    {"memory", "Memory", "The memory\u2026", ViewOf::job, "plan", "--memory", "memory.live", "", ""},
    {"timeline", "Timeline", "The timeline\u2026", ViewOf::run, "show", "--launches", "launches.rows", "",
     ""},
    {"roofline", "Roofline", "The roofline\u2026", ViewOf::run, "show", "--roofline", "roofline.kernels", "",
     ""},
    {"roofline", "Roofline", "The roofline\u2026", ViewOf::job, "plan", "--roofline", "roofline.kernels", "",
     ""},
    {"compare", "Compare", "The comparison\u2026", ViewOf::pair, "compare", "--stored", "kernels", "", ""},
    {"difference", "Compare", "The graphs' difference\u2026", ViewOf::pair, "compare", "--stored --graph",
     "graph_diff.regions", "",
     "click compare.view/Graph\nclick compare.against\nclick \"compare.against/run {against}\"\n"},
    {"difference", "Compare", "The graphs' difference\u2026", ViewOf::job, "plan", "--diff passes=none",
     "graph_diff.regions", "", "click compare.view/Graph\n"},
    {"advice", "Advice", "The advice\u2026", ViewOf::run, "advise", "", "", "", "click advice.run\n"},
    {"advice", "Advice", "The advice\u2026", ViewOf::job, "advise", "", "", "", "click advice.find\n"},
    {"prediction", "What if", "The prediction\u2026", ViewOf::answer, "what-if", "--forget", "ops", "", ""},
    {"scores", "What if", "The predictions' scores\u2026", ViewOf::session, "what-if", "--scores",
     "predictions", "", "click whatif.tab/Scores\n"},
    {"scaling", "Scaling", "The scaling\u2026", ViewOf::ranks, "plan", "", "scaling.rows", "", ""},
    {"tune", "Tune", "The search\u2026", ViewOf::session, "runs", "--searches", "rows", "search model", ""},
    {"waterfall", "Tune", "The waterfall\u2026", ViewOf::session, "runs", "--searches", "worth.passes",
     "search model", "click tune.view/Waterfall\n"},
    {"trends", "Trends", "The trends\u2026", ViewOf::session, "trends", "", "runs", "model hardware", ""},
    {"curves", "Curve", "The curves\u2026", ViewOf::run, "show", "--curves loss", "runs*", "curves", ""},
    {"runs", "Runs", "The list of runs\u2026", ViewOf::session, "runs", "", "", "", ""},
    {"passes", "Passes", "The passes\u2026", ViewOf::job, "plan", "", "passes", "", ""},
};

std::vector<std::string> words_in(const std::string& text, char separator) {
  std::vector<std::string> words = split_top_level(text, separator);
  std::erase(words, "");
  return words;
}

const char* lack_of(ViewOf of, const ViewSource& source) {
  if (source.said) return nullptr;
  switch (of) {
    case ViewOf::session: return source.session.empty() ? "a session" : nullptr;
    case ViewOf::run:
    case ViewOf::run_beside: return source.session.empty() || source.run == 0 ? "a recorded run" : nullptr;
    case ViewOf::pair:
      return source.session.empty() || source.run == 0 || source.other == 0 ? "two runs of a session"
                                                                            : nullptr;
    case ViewOf::job:
    case ViewOf::ranks: return source.recipe ? nullptr : "a job";
    case ViewOf::answer: return "a question (gradloom what-if)";
  }
  return nullptr;
}

// Columns of rows in the order in which they come, each cell ready for a file.
class Rows {
 public:
  using Cells = std::vector<std::pair<std::string, Json>>;

  void add(const Cells& cells) {
    std::map<std::size_t, std::string>& row = rows_.emplace_back();
    for (const auto& [name, value] : cells) put(row, name, value);
  }
  std::string text() const {
    std::vector<std::string> head;
    for (const std::string& name : names_) head.push_back(csv_field(name));
    std::string all = csv_line(head);
    for (const auto& row : rows_) {
      std::vector<std::string> fields(names_.size());
      for (const auto& [column, field] : row) fields[column] = field;
      all += csv_line(fields);
    }
    return all;
  }

 private:
  static std::string scalar(const Json& value) {
    if (value.is_null()) return {};
    return value.is_string() ? value.get<std::string>() : value.dump();
  }
  void put(std::map<std::size_t, std::string>& row, const std::string& name, const Json& value) {
    if (value.is_object()) {
      for (const auto& [inner, inside] : value.items()) put(row, name + "." + inner, inside);
      return;
    }
    std::string field;
    if (value.is_array()) {
      for (const Json& element : value) {
        if (element.is_structured()) return;
        field += (field.empty() ? "" : " ") + scalar(element);
      }
    } else {
      field = scalar(value);
    }
    const auto [at, added] = places_.try_emplace(name, names_.size());
    if (added) names_.push_back(name);
    row[at->second] = value.is_number() ? field : csv_field(field);
  }
  std::vector<std::string> names_;
  std::map<std::string, std::size_t> places_;
  std::vector<std::map<std::size_t, std::string>> rows_;
};

Rows::Cells cells_of(const Json& row, Rows::Cells before) {
  for (const auto& [name, value] : row.items())
    if (name != "children") before.emplace_back(name, value);
  return before;
}

void add_tree(const Json& node, std::int64_t depth, Rows& rows) {
  rows.add(cells_of(node, {{"depth", depth}}));
  if (const auto children = node.find("children"); children != node.end())
    for (const Json& child : *children) add_tree(child, depth + 1, rows);
}

// An element whose lists are columns: a row for each place in them.
void add_columns(const Json& element, const Rows::Cells& before, Rows& rows) {
  std::size_t length = 0;
  for (const auto& [_, value] : element.items())
    if (value.is_array()) length = std::max(length, value.size());
  for (std::size_t i = 0; i < length; ++i) {
    Rows::Cells cells = before;
    for (const auto& [name, value] : element.items()) {
      if (!value.is_array())
        cells.emplace_back(name, value);
      else if (i < value.size())
        cells.emplace_back(name, value[i]);
    }
    rows.add(cells);
  }
}

void add_line(const ViewDef& view, const Json& line, Rows& rows) {
  std::string path = view.rows;
  if (path.empty()) {
    if (!line.contains("summary")) rows.add(cells_of(line, {}));
    return;
  }
  const bool by_column = path.back() == '*';
  if (by_column) path.pop_back();
  const Json* at = &line;
  for (const std::string& name : words_in(path, '.')) {
    if (!at->is_object() || !at->contains(name)) return;
    at = &(*at)[name];
  }
  if (at->is_object()) return add_tree(*at, 0, rows);
  if (!at->is_array()) return;
  Rows::Cells before;
  for (const std::string& name : words_in(view.columns, ' '))
    if (line.contains(name)) before.emplace_back(name, line[name]);
  for (const Json& element : *at) {
    if (by_column)
      add_columns(element, before, rows);
    else if (element.is_object())
      rows.add(cells_of(element, before));
  }
}

}  // namespace

std::span<const ViewDef> all_views() { return kViews; }

std::vector<const ViewDef*> views_by_name() {
  std::vector<const ViewDef*> views;
  for (const ViewDef& view : kViews)
    if (&view == &view_named(view.name)) views.push_back(&view);
  return views;
}

const ViewDef& view_named(const std::string& name) {
  const auto found = std::find_if(std::begin(kViews), std::end(kViews),
                                  [&](const ViewDef& view) { return name == view.name; });
  CHECK(found != std::end(kViews), "a view by its name");
  return *found;
}

Result<const ViewDef*> find_view(const std::string& name, const ViewSource& source) {
  const char* lack = nullptr;
  for (const ViewDef& view : kViews) {
    if (name != view.name) continue;
    lack = lack_of(view.of, source);
    if (lack == nullptr) return &view;
  }
  if (lack != nullptr) return Error{Errc::usage, "the view '" + name + "' needs " + lack};
  std::vector<std::string> known;
  for (const ViewDef* const view : views_by_name()) known.emplace_back(view->name);
  return Error{Errc::usage, unknown_name("view", name, known)};
}

std::vector<std::string> view_words(const ViewDef& view, const ViewSource& source) {
  std::vector<std::string> words{view.command};
  const auto add = [&](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  switch (view.of) {
    case ViewOf::session: add({source.session}); break;
    case ViewOf::run: add({source.session, "--run", std::to_string(source.run)}); break;
    case ViewOf::run_beside:
      add({source.session, "--run", std::to_string(source.run)});
      if (source.other != 0) add({"--against", std::to_string(source.other)});
      break;
    case ViewOf::pair:
      add({std::to_string(source.other), std::to_string(source.run), "--session", source.session});
      break;
    case ViewOf::job:
    case ViewOf::ranks: {
      Recipe job = *source.recipe;
      if (view.of == ViewOf::ranks) job.ranks = std::max<std::int64_t>(2, job.ranks);
      const std::vector<std::string> train = command_words(job, {});
      words.insert(words.end(), train.begin() + 2, train.end());  // behind "gradloom train"
      break;
    }
    case ViewOf::answer: break;
  }
  for (const std::string& flag : words_in(view.flags, ' ')) words.push_back(flag);
  add(source.more);
  return words;
}

Result<std::string> view_csv(const ViewDef& view, const std::vector<std::string>& lines) {
  Rows rows;
  for (const std::string& line : lines) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded()) return Error{Errc::bug, "a line is no JSON: " + escaped(line.substr(0, 80))};
    if (json.is_object()) add_line(view, json, rows);
  }
  return rows.text();
}

Result<ViewForm> view_form(const std::string& file) {
  if (file.ends_with(".csv")) return ViewForm::csv;
  if (file.ends_with(".json")) return ViewForm::objects;
  if (file.ends_with(".svg") || file.ends_with(".png")) return ViewForm::picture;
  return Error{Errc::usage, "a view is written as .csv, .json, .svg or .png, not '" + escaped(file) + "'"};
}

Result<std::vector<std::string>> json_lines(const std::vector<std::string>& words, CommandContext& context) {
  bool json = true;
  CommandLine line(json, words.front());
  std::vector<const char*> arguments{"gradloom"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  try {
    line.app->parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::ParseError& e) {
    return Error{Errc::usage, e.what()};
  }
  std::vector<std::string> lines;
  Output out(true);
  out.set_listener([&](Said kind, const std::string& said) {
    if (kind == Said::json) lines.push_back(said);
  });
  CommandContext inner{out, context.stop, context.finishing};
  TRY(line.run(inner));
  return lines;
}

Status write_view(const ViewDef& view, const std::vector<std::string>& lines, const std::string& file) {
  if (TRY(view_form(file)) == ViewForm::csv) return atomic_write_file(file, TRY(view_csv(view, lines)));
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return atomic_write_file(file, text);
}

}  // namespace gradloom
