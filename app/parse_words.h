// Words of a command, of the command line or of a program that uses the library.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace CLI {
class App;
}

namespace gradloom {

// Numbers of what `app` declares are read as those of recipes are; what is no number, or not finite, is an error of the parser's.
void read_numbers(CLI::App& app);

// Reads a program's words into what `app` declares, as the command line does; there is no --help. Errc::usage: words that it does not know,
// or cannot read.
Status parse_words(CLI::App& app, const std::vector<std::string>& words);

// Errc::usage where more than one of these flags was given, each of which asks for another answer. Null: it was not given.
Status check_one_answer(std::initializer_list<const char*> asked);

}  // namespace gradloom
