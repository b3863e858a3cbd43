#include "sessions/session_page.h"

#include <sstream>
#include <vector>

#include "engine/base/markdown.h"
#include "sessions/sqlite.h"
#include "sessions/store.h"

namespace gradloom {
namespace {

using markdown::code, markdown::head, markdown::row;

bool starts_with(const std::string& line, const std::string& start) { return line.rfind(start, 0) == 0; }

// What follows "--" on a line; lines of SQL in comments are indented by more than one blank.
std::string comment_text(const std::string& line) { return line.size() > 3 ? line.substr(3) : ""; }

// Comment lines as Markdown: SQL stands in a block of its own.
std::string prose(const std::vector<std::string>& lines) {
  std::string page;
  bool in_block = false;
  for (const std::string& line : lines) {
    const bool sql = starts_with(line, "  ");
    if (sql != in_block) page += sql ? "\n```\n" : "```\n";
    in_block = sql;
    page += (sql ? line.substr(2) : line) + "\n";
  }
  if (in_block) page += "```\n";
  return page + "\n";
}

std::string after(const std::string& line, const std::string& start) {
  return line.substr(start.size(), line.find_first_of(" (", start.size()) - start.size());
}

// "  name TYPE more,   -- meaning" of a table; other lines of its body (UNIQUE) are no columns.
std::string column_row(const std::string& line) {
  const std::size_t dashes = line.find("--");
  std::string sql = line.substr(0, dashes);
  sql.erase(sql.find_last_not_of(" ,") + 1);
  std::istringstream words(sql);
  std::string name, type, rest;
  words >> name >> type;
  std::getline(words >> std::ws, rest);
  if (name.find('(') != std::string::npos || type.rfind('(', 0) == 0) return "";
  if (name.front() == '"') name = name.substr(1, name.size() - 2);
  const std::string meaning = dashes == std::string::npos ? "" : comment_text(line.substr(dashes));
  return row({code(name), type,
              rest.find("NOT NULL") != std::string::npos || rest.find("KEY") != std::string::npos
                  ? ""
                  : "may be NULL",
              markdown::cell(meaning)});
}

Result<std::string> view_columns(Database& database, const std::string& view) {
  Statement columns = TRY(database.prepare("SELECT name FROM pragma_table_info('" + view + "')"));
  std::string list;
  while (TRY(columns.row())) list += (list.empty() ? "Columns: " : ", ") + code(columns.text(0));
  return list + ".\n\n";
}

}  // namespace

Result<std::string> session_page() {
  Database database = TRY(Database::open(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  TRY(database.execute(schema_sql()));
  std::string tables, views;
  std::vector<std::string> comment, intro;
  bool in_table = false;
  std::istringstream text(schema_sql());
  for (std::string line; std::getline(text, line);) {
    if (in_table) {
      in_table = !starts_with(line, ")");
      tables += in_table ? column_row(line) : "\n";
    } else if (starts_with(line, "--")) {
      comment.push_back(comment_text(line));
    } else if (starts_with(line, "CREATE TABLE ")) {
      tables += "### " + after(line, "CREATE TABLE ") + "\n\n" + prose(comment) +
                head({"column", "type", "", "meaning"});
      in_table = true;
      comment.clear();
    } else if (starts_with(line, "CREATE VIEW ")) {
      const std::string view = after(line, "CREATE VIEW ");
      views += "### " + view + "\n\n" + (comment.empty() ? "" : prose(comment)) +
               TRY(view_columns(database, view));
      comment.clear();
    } else if (starts_with(line, "PRAGMA")) {
      if (intro.empty()) intro.swap(comment);
    }
  }
  if (!intro.empty()) intro.erase(intro.begin());  // the title, which is this page's
  while (!intro.empty() && intro.front().empty()) intro.erase(intro.begin());
  std::string page =
      "# Session files\n\n"
      "This page is made by `gradloom help --sessions` from [sessions/schema.sql](../sessions/schema.sql), "
      "which is what the program runs to create a session (version " +
      std::to_string(TRY(database.integer("PRAGMA user_version"))) + ").\n\n" + prose(intro) +
      "## Tables\n\n" + tables + "## Views\n\n" + views;
  while (page.back() == '\n') page.pop_back();
  return page;
}

}  // namespace gradloom
