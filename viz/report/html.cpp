#include "viz/report/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/text.h"

namespace gradloom::html {

std::string text(std::string_view foreign) {
  std::string made;
  for (const char c : escaped(foreign)) {
    switch (c) {
      case '&': made += "&amp;"; break;
      case '<': made += "&lt;"; break;
      case '>': made += "&gt;"; break;
      case '"': made += "&quot;"; break;
      case '\'': made += "&#39;"; break;
      default: made += c;
    }
  }
  return made;
}

std::string element(std::string_view name, std::string_view classes, std::string_view inside) {
  if (classes.empty()) return fmt::format("<{0}>{1}</{0}>", name, inside);
  return fmt::format("<{0} class=\"{1}\">{2}</{0}>", name, classes, inside);
}

std::string table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return {};
  std::string made = "<div class=\"scroll\"><table><thead><tr>";
  for (const Column& c : columns) made += element("th", c.number ? "n" : "", text(c.title));
  made += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    made += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) made += element("td", columns[i].number ? "n" : "", row[i]);
    made += "</tr>\n";
  }
  return made + "</tbody></table></div>\n";
}

std::string share_bar(double share, double largest, std::string_view classes) {
  return fmt::format("<span class=\"bar\"><i class=\"{}\" style=\"width:{:.2f}%\"></i><b>{}</b></span>",
                     classes, largest > 0 ? std::clamp(share / largest, 0.0, 1.0) * 100 : 0.0,
                     percent_text(share));
}

}  // namespace gradloom::html
