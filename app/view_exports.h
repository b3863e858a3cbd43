// Every view of the window as data: the command whose --json tells what the view shows, and which of that are the rows of its table.
// `export --view`, the window's menu Export and the test that asks for each view are made of these rows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/command.h"
#include "sessions/recipe.h"

namespace gradloom {

enum class ViewOf : std::uint8_t {
  session,
  run,
  run_beside,  // and another, side A, where one is named
  pair,        // of runs of a session, as recorded
  job,
  ranks,  // a job of several ranks
  answer  // of a question that was asked in the window
};

struct ViewDef {
  const char* name;   // as export --view takes it
  const char* panel;  // tab of the window
  const char* label;  // in the window's menu
  ViewOf of;
  const char* command;
  const char* flags;    // behind what `of` gives the command
  const char* rows;     // where its JSON has the rows, "a.b"; empty: each line is one. See view_csv
  const char* columns;  // what stands around the rows and comes first in each, separated by blanks
  // For a picture: what the window is asked for, besides the tab in front. {against}: the run of side A
  const char* script;
};
// Of one name there may be several: the first that can be made is meant.
std::span<const ViewDef> all_views();
std::vector<const ViewDef*> views_by_name();         // the first of each name
const ViewDef& view_named(const std::string& name);  // the first. REQUIRES that there is one

struct ViewSource {
  std::string session;
  std::int64_t run = 0, other = 0;  // 0: none; other: side A of a pair, whose B is `run`
  std::optional<Recipe> recipe;     // of the job
  std::vector<std::string> more;    // further words: what the window chose
  // Gives what the command would say, line by line, where the window shows what one said before; empty: the command is asked.
  std::function<std::vector<std::string>()> said;
};
// Errors: Errc::usage: there is no such view, or it needs what the source lacks. Where its rows are said already nothing lacks.
Result<const ViewDef*> find_view(const std::string& name, const ViewSource& source);
// Without the program's name and --json.
std::vector<std::string> view_words(const ViewDef& view, const ViewSource& source);

// Rows of JSON lines as CSV with a head. Rows are what `rows` leads to in each line that has it: the elements of a list; an object
// with `children`, and those below it, each with its `depth`; with "*" behind the name of a list, an element's columns of equal
// length row by row. Objects in a row become columns "a.b", lists of texts and numbers one text, lists of objects none.
// Errc::bug: a line is no JSON.
Result<std::string> view_csv(const ViewDef& view, const std::vector<std::string>& lines);

// By the ending of a file: .csv or .json is the data, .svg or .png the picture.
enum class ViewForm : std::uint8_t { csv, objects, picture };
Result<ViewForm> view_form(const std::string& file);  // Errc::usage

// What a command says with --json, line by line, without its errors and notes; an error is the command's.
Result<std::vector<std::string>> json_lines(const std::vector<std::string>& words, CommandContext& context);
// Those lines as `file`, which is no picture. Errors: of view_csv; Errc::io.
Status write_view(const ViewDef& view, const std::vector<std::string>& lines, const std::string& file);

}  // namespace gradloom
