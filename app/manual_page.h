// The manual page gradloom(1) in roff, as man reads it: every command with its arguments, flags and examples, as it declares them.
#pragma once

#include <string>

namespace gradloom {

std::string manual_page();

}  // namespace gradloom
