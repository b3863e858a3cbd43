// gradloom recipe: the settings of a recipe, from their declarations; and a recipe made from other programs' configurations.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/conversion_notes.h"
#include "app/job.h"
#include "app/recipe_flags.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "sessions/deepspeed.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

struct RecipeOptions {
  std::string name, deepspeed, output;
  bool markdown = false;
  RecipeFlags flags;
  Status write(const Recipe& recipe, const std::vector<ConversionNote>& notes, CommandContext& context) const;
};

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

// What the command line says holds, whatever the file says.
void keep_flags(const RecipeFlags& flags, const Recipe& own, FromDeepSpeed& made) {
  for (const RecipeSetting& setting : recipe_settings()) {
    const std::string key = setting.key, theirs = setting_text(made.recipe, setting);
    const bool same =
        key == "passes" ? own.passes == made.recipe.passes : setting_text(own, setting) == theirs;
    if (same || !flags.given(key)) continue;
    made.notes.push_back({flag_of(setting), theirs, "the command line says otherwise"});
    if (key == "passes") {
      made.recipe.passes = own.passes;
      continue;
    }
    const Status kept = read_setting(made.recipe, setting, setting_text(own, setting), key);
    CHECK(kept.ok(), "a setting's own text cannot be read");
  }
}

// Into the file that was asked for, or as JSON to stdout.
Status RecipeOptions::write(const Recipe& recipe, const std::vector<ConversionNote>& notes,
                            CommandContext& context) const {
  if (output.empty()) {
    context.out.document(Json::parse(recipe_json(recipe)).dump(2, ' ', true) + "\n");
    return {};
  }
  TRY(write_recipe(recipe, output));
  context.out.object({{"recipe", output}, {"notes", notes_json(notes)}});
  context.out.text("wrote " + output + " (train: gradloom train --recipe " + shell_quoted(output) + ")");
  return {};
}

Status convert(const RecipeOptions& options, CommandContext& context) {
  const Recipe own = TRY(options.flags.resolve());
  DeepSpeedGiven given{.batch = options.flags.given("dims")};
  if (options.flags.given("ranks")) given.ranks = own.ranks;
  const std::string text = TRY(read_file_limited(options.deepspeed, kMaxDeepSpeedBytes));
  given.free_dims = TRY(load_model(own, true)).unbound_dims;
  Result<FromDeepSpeed> made = recipe_from_deepspeed(text, own, given);
  if (!made.ok()) return with_context(made.error(), escaped(options.deepspeed));
  keep_flags(options.flags, own, *made);
  TRY(options.write(made->recipe, made->notes, context));
  tell_notes(context.out, made->notes, options.output.empty());
  return {};
}

}  // namespace

CommandRun declare_recipe(CLI::App& app) {
  auto options = std::make_shared<RecipeOptions>();
  app.add_option(
      "NAME", options->name,
      "one setting in detail: optimizer lists the optimizers with their options; with --from-deepspeed the model");
  app.add_flag("--markdown", options->markdown,
               "the reference of settings, losses, optimizers and schedules as a Markdown page");
  app.add_option(
      "--from-deepspeed", options->deepspeed,
      "make a recipe of DeepSpeed's ds_config.json, the model and these flags, and list what has no counterpart");
  app.add_option("-o,--output", options->output, "recipe file to write (default: stdout)");
  options->flags.declare(app, false);
  return [options](CommandContext& context) -> Status {
    if (!options->deepspeed.empty()) {
      options->flags.set_model(options->name);
      return convert(*options, context);
    }
    if (options->name.empty() && !options->markdown && options->flags.given("recipe"))
      return options->write(TRY(options->flags.resolve()), {}, context);
    if (!options->output.empty() || options->flags.any_given())
      return Error{Errc::usage, "--output and flags of settings are for --recipe and --from-deepspeed"};
    const RecipeSetting* const setting = find_setting(options->name);
    if (!options->name.empty() && setting == nullptr) {
      std::vector<std::string> known;
      for (const RecipeSetting& s : recipe_settings()) known.emplace_back(s.key);
      return Error{Errc::usage, unknown_name("setting", options->name, known)};
    }
    if (options->markdown)
      context.out.document(recipe_page() + "\n");
    else
      list_settings(context.out, setting);
    return {};
  };
}

}  // namespace gradloom
