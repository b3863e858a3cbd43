// gradloom recipe: the settings of a recipe, from their declarations.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

void list_settings(const Output& out) {
  std::vector<std::vector<std::string>> rows;
  for (const RecipeSetting& setting : recipe_settings()) {
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
  out.text(table_text({"setting", "flag", "type", "default", "what it says"}, rows, {1, 2, 3, 4}));
}

}  // namespace

CommandRun declare_recipe(CLI::App& app) {
  auto markdown = std::make_shared<bool>(false);
  app.add_flag("--markdown", *markdown,
               "the reference of settings, losses, optimizers and schedules as a Markdown page");
  return [markdown](CommandContext& context) -> Status {
    if (*markdown)
      context.out.text(recipe_page());
    else
      list_settings(context.out);
    return {};
  };
}

}  // namespace gradloom
