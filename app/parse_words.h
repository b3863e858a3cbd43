// Words of a program that uses the library, read as those of the command line are.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace CLI {
class App;
}

namespace gradloom {

// Reads the words into what `app` declares; there is no --help. Errc::usage: words that it does not know, or cannot read.
Status parse_words(CLI::App& app, const std::vector<std::string>& words);

}  // namespace gradloom
