// CSV as RFC 4180 has it, with lines that end in \n, as spreadsheets and scripts read it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

// A text: quoted where it must be. A leading = + - @ would be a formula to a spreadsheet: such names from files get an apostrophe in front.
std::string csv_field(std::string_view text);
// Of fields that are ready: texts by csv_field, and numbers.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace gradloom
