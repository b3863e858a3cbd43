// Command lines to start from, at the end of a command's --help and in docs/commands.md.
#pragma once

#include <initializer_list>
#include <string>

namespace CLI {
class App;
}

namespace gradloom {

void add_examples(CLI::App& app, std::initializer_list<const char*> lines);
std::string examples_of(const CLI::App& app);  // a line each; empty: it has none

}  // namespace gradloom
