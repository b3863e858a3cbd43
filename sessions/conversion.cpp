#include "sessions/conversion.h"

#include "engine/base/text.h"
#include "sessions/recipe_settings.h"

namespace gradloom {

void note_unsaid(const Recipe& recipe, const std::set<std::string>& said,
                 std::vector<ConversionNote>& notes) {
  constexpr const char* kWhy = "no word for it there";
  for (const RecipeSetting& setting : recipe_settings()) {
    const std::string key = setting.key;
    if (said.count(key) > 0) continue;
    std::string value = setting_text(recipe, setting);
    bool differs = setting.kind != SettingKind::part && !at_default(recipe, setting);
    if (key == "model") differs = true, value = recipe.model;
    if (key == "rules") differs = !recipe.rules.empty(), value = recipe.rules;
    if (key == "passes") {
      const auto pipeline = recipe_pipeline(recipe);
      differs = pipeline.ok() && pipeline->text() != default_pipeline().text();
      value = pipeline.ok() ? pipeline->text() : "";
    }
    if (differs) notes.push_back({key, escaped(value.substr(0, 80)), kWhy});
  }
  for (const RecipePass& pass : recipe.passes)
    if (pass.name == "tensor-parallel" && recipe.ranks > 1)
      notes.push_back(
          {"passes", pass.name, "ranks that share weights have the same batch; there each has its own"});
  for (const auto& [name, size] : recipe.dims)
    if (said.count("dims " + name) == 0)
      notes.push_back({"dims", escaped(name) + "=" + std::to_string(size), kWhy});
}

}  // namespace gradloom
