// Globs, as recipes, flags and searches have them (glob_match of text.h): * is any text, ? any one byte, and \ before *, ? or
// another \ takes that character as it is. Any other \ is itself.
#pragma once

#include <string>
#include <string_view>

namespace gradloom {

// The glob that fits exactly this name.
std::string glob_of(std::string_view name);

}  // namespace gradloom
