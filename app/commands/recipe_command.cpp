// gradloom recipe: the settings of a recipe, from their declarations.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "engine/base/text.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

void list_settings(const Output& out, const RecipeSetting* only) {
  std::vector<std::vector<std::string>> rows;
  for (const RecipeSetting& setting : recipe_settings()) {
    if (only != nullptr && only != &setting) continue;
    const std::string value = setting_text(Recipe(), setting), flag = flag_of(setting);
    out.object({{"setting", setting.key},
                {"flag", flag.empty() ? Json(nullptr) : Json(flag)},
                {"type", type_of(setting)},
                {"default", setting.kind == SettingKind::part ? Json(nullptr) : Json(value)},
                {"forms", setting.forms != nullptr ? Json(setting.forms()) : Json(nullptr)},
                {"help", setting.help}});
    rows.push_back({setting.key, flag.empty() ? "-" : flag, type_of(setting), value.empty() ? "-" : value,
                    setting.help});
  }
  if (only != nullptr) return out.text(setting_page(*only));
  out.text(table_text({"setting", "flag", "type", "default", "what it says"}, rows, {1, 2, 3, 4}));
}

}  // namespace

CommandRun declare_recipe(CLI::App& app) {
  auto markdown = std::make_shared<bool>(false);
  auto name = std::make_shared<std::string>();
  app.add_option("NAME", *name, "one setting in detail: optimizer lists the optimizers with their options");
  app.add_flag("--markdown", *markdown,
               "the reference of settings, losses, optimizers and schedules as a Markdown page");
  return [markdown, name](CommandContext& context) -> Status {
    const RecipeSetting* const setting = find_setting(*name);
    if (!name->empty() && setting == nullptr) {
      std::vector<std::string> known;
      for (const RecipeSetting& s : recipe_settings()) known.emplace_back(s.key);
      return Error{Errc::usage, unknown_name("setting", *name, known)};
    }
    if (*markdown)
      context.out.text(recipe_page());
    else
      list_settings(context.out, setting);
    return {};
  };
}

}  // namespace gradloom
