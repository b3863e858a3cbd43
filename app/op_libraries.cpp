#include "app/op_libraries.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "app/recipe_flags.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/ops/custom/custom_ops.h"

namespace gradloom {
namespace {

OpLibrary parse_library(const std::string& text) {
  constexpr std::size_t kDigits = 32;
  const std::size_t mark = text.size() < kDigits + 2 ? 0 : text.size() - kDigits - 1;
  const bool pinned = mark > 0 && text[mark] == '#' &&
                      text.find_first_not_of("0123456789abcdef", mark + 1) == std::string::npos;
  return pinned ? OpLibrary{text.substr(0, mark), text.substr(mark + 1)} : OpLibrary{text, ""};
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

// The loaded library that is the needed one: by contents, or where those are not known by name.
const OpLibrary* loaded(const std::vector<OpLibrary>& all, const OpLibrary& needed) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const OpLibrary& library) {
    return needed.hash.empty() ? file_name(library.path) == file_name(needed.path)
                               : library.hash == needed.hash;
  });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

void declare_op_libraries(CLI::App& app, std::vector<std::string>& given) {
  app.add_option("--ops", given, "a library with operators of your own (gradloom_op.h); repeatable")
      ->take_all()
      ->allow_extra_args(false);
}

Result<std::vector<std::string>> load_op_libraries(const std::vector<std::string>& named) {
  std::vector<std::string> libraries;
  for (const std::string& text : named) {
    if (text.empty()) continue;
    const OpLibrary wanted = parse_library(text);
    if (!wanted.hash.empty()) {
      const std::string found = TRY(hash_file_hex(wanted.path));
      if (found != wanted.hash)
        return Error{Errc::bad_input, "--ops " + escaped(wanted.path) + ": its contents hash to " + found +
                                          ", not " + wanted.hash};
    }
    libraries.push_back(wanted.path + "#" + TRY(load_op_library(wanted.path)));
  }
  return libraries;
}

Status check_op_libraries(const std::vector<std::string>& needed) {
  const std::vector<OpLibrary> all = op_libraries();
  for (const std::string& text : needed) {
    const OpLibrary library = parse_library(text);
    if (loaded(all, library) != nullptr) continue;
    const OpLibrary* const other = loaded(all, {library.path, ""});
    if (other != nullptr)
      return Error{Errc::bad_input, "--ops " + escaped(other->path) +
                                        " is not the library of the recipe (its contents hash to " +
                                        other->hash + ", the recipe says " + library.hash + ")"};
    return Error{Errc::usage, "the recipe needs operators of " + escaped(library.path) +
                                  ", whose code is loaded only where the command line names it: --ops " +
                                  escaped(shell_quoted(library.path))};
  }
  return {};
}

std::vector<std::string> loaded_of(const std::vector<std::string>& needed) {
  const std::vector<OpLibrary> all = op_libraries();
  std::vector<std::string> names;
  for (const std::string& text : needed)
    if (const OpLibrary* const library = loaded(all, parse_library(text)))
      names.push_back(library->path + "#" + library->hash);
  return names;
}

}  // namespace gradloom
