// The settings of a recipe as data: the rows of recipe_settings.def, from which
// files, flags, the window's form and the reference are made. Errors: Errc::usage,
// one line that names the setting as its caller calls it.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sessions/recipe.h"

namespace gradloom {

enum class SettingKind : std::uint8_t { text, name, choice, switched, integer, seed, number, list, part };
enum class SettingEffect : std::uint8_t { model, plan, data, run };

struct RecipeSetting {
  using Member = std::variant<std::monostate, std::string Recipe::*, bool Recipe::*, std::int64_t Recipe::*,
                              std::uint64_t Recipe::*, double Recipe::*, std::vector<std::string> Recipe::*>;
  const char* key;  // in the file
  SettingKind kind;
  SettingEffect effect;
  const char* label;
  const char* help;
  Member member{};  // none: a part
  double least = 0, most = 0;
  double most_here = 0;              // that this program takes, where files may say more; 0: `most`
  const char* choices = "";          // separated by blanks
  bool always_told = false;          // in command lines, at its default too
  bool optional = false;             // left out of files at its default
  const char* flag = nullptr;        // null: the key with dashes; "": none
  std::string (*forms)() = nullptr;  // what a text may say: "a | b{x=1}"
  Status (*check)(const std::string& text) = nullptr;              // of a text, or of each of a list
  void (*set)(Recipe&, const std::string& text) = nullptr;         // where other settings follow
  Status (*set_text)(Recipe&, const std::string& text) = nullptr;  // of a part that has a flag
  const char* usual = "";      // what a text often is, for the window to offer; separated by blanks
  const char* precision = "";  // the only precision with which it means something; "": with all
};

std::span<const RecipeSetting> recipe_settings();
const RecipeSetting* find_setting(const std::string& key);  // null: there is none
std::string flag_of(const RecipeSetting& setting);          // "--clip-norm"; empty: it has none
std::string type_of(const RecipeSetting& setting);          // "integer, at least 1", "f32 | bf16"
std::string help_of(const RecipeSetting& setting);          // forms and help in one line

// A setting's value as text, as flags take it (a list: separated by blanks). Not for parts.
std::string setting_text(const Recipe& recipe, const RecipeSetting& setting);
bool at_default(const Recipe& recipe, const RecipeSetting& setting);
void reset_setting(Recipe& recipe, const RecipeSetting& setting);
// Sets it from a text of its type. `called`: how errors call it, "--steps".
Status read_setting(Recipe& recipe, const RecipeSetting& setting, const std::string& text,
                    const std::string& called);
// Whether its value may be: range, and what the text says.
Status check_setting(const Recipe& recipe, const RecipeSetting& setting, const std::string& called);

std::string setting_page(const RecipeSetting& setting);  // all that is declared about one
std::string recipe_page();  // the reference of recipes as Markdown: docs/recipe.md

}  // namespace gradloom
