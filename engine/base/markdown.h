// Pieces of the Markdown pages that are made from declarations: docs/recipe.md, docs/commands.md and
// docs/sessions.md.
#pragma once

#include <string>
#include <vector>

namespace gradloom::markdown {

std::string cell(const std::string& text);  // a table's cell: its bars are not the table's
std::string code(const std::string& text);  // the same in backquotes; empty stays empty
std::string row(const std::vector<std::string>& cells);
std::string head(const std::vector<std::string>& names);  // a row and the rule under it

}  // namespace gradloom::markdown
