// Pieces of a page: foreign text made harmless, tables, bars.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradloom::html {

// As text between tags and in quoted attributes; control characters and the like as escaped() shows them.
std::string text(std::string_view foreign);
std::string element(std::string_view name, std::string_view classes, std::string_view inside);

struct Column {
  std::string title;
  bool number = false;  // right-aligned
};
// Cells are HTML. Empty without rows.
std::string table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows);

// A share in [0, 1] as its text on a bar, which is full for `largest`.
std::string share_bar(double share, double largest, std::string_view classes = "");

}  // namespace gradloom::html
