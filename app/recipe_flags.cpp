#include "app/recipe_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <optional>

#include "app/op_libraries.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/onnx/import.h"
#include "sessions/recipe_settings.h"

namespace gradloom {

constexpr std::int64_t kMostSteps = 1'000'000'000'000;  // that a recipe may ask for

namespace {

Status parse_into(std::int64_t& target, const std::string& text, const char* what) {
  const auto value = parse_number<std::int64_t>(text);
  if (!value)
    return Error{Errc::usage, std::string(what) + " expects an integer, got '" + escaped(text) + "'"};
  target = *value;
  return {};
}

Status add_dim(Recipe& recipe, const std::string& text) {
  const std::size_t equals = text.find('=');
  std::int64_t n = 0;
  if (equals == std::string::npos || equals == 0)
    return Error{Errc::usage, "--dim expects NAME=N, got '" + escaped(text) + "'"};
  TRY(parse_into(n, text.substr(equals + 1), "--dim"));
  if (n < 1) return Error{Errc::usage, "--dim " + escaped(text) + ": must be at least 1"};
  recipe.dims[text.substr(0, equals)] = n;
  return {};
}

// Sets a recipe from the text of one flag, and checks it.
Status set_flag(Recipe& recipe, const RecipeSetting& setting, const std::string& text) {
  const std::string flag = flag_of(setting);
  TRY(read_setting(recipe, setting, text, flag));
  TRY(check_setting(recipe, setting, flag));
  return {};
}

// The setting that the changes of one side of a comparison call `name`: its flag without the dashes.
const RecipeSetting* setting_called(const std::string& name) {
  for (const RecipeSetting& setting : recipe_settings())
    if (flag_of(setting) == "--" + name) return &setting;
  return nullptr;
}

std::vector<std::string> override_names() {
  std::vector<std::string> names{"model"};
  for (const RecipeSetting& setting : recipe_settings())
    if (const std::string flag = flag_of(setting); !flag.empty()) names.push_back(flag.substr(2));
  return names;
}

// Repeated flags: each adds one.
void add_repeated(CLI::App& app, const std::string& flag, std::vector<std::string>& given,
                  const std::string& help) {
  app.add_option(flag, given, help + " (repeatable)")->take_all()->allow_extra_args(false);
}

Status exclude_site(Recipe& recipe, const std::string& text) {
  const std::size_t colon = text.find(':');
  bool found = false;
  for (RecipePass& p : recipe.passes)
    if (colon != std::string::npos && p.name == text.substr(0, colon)) {
      p.sites.except.insert(text.substr(colon + 1));
      found = true;
    }
  const std::string refused = "--exclude " + escaped(text) + ": ";
  if (colon == std::string::npos) return Error{Errc::usage, refused + "expected PASS:SITE"};
  if (found) return {};
  const PassDef* def = find_pass(text.substr(0, colon));
  if (def == nullptr) return Error{Errc::usage, refused + unknown_pass(text.substr(0, colon))};
  if (!def->by_precision) return Error{Errc::usage, refused + "the pass is switched off"};
  // recipe_compile_options refuses it at other precisions.
  recipe.passes.push_back({def->name, {}, {{text.substr(colon + 1)}}});
  return {};
}

// The text of --passes that makes the recipe's passes; empty: the default makes them.
std::string passes_flag(const Recipe& recipe) {
  const auto pipeline = recipe_pipeline(recipe);
  const auto rules = recipe_rules(recipe);
  if (!pipeline || !rules || pipeline->text() == default_pipeline(*rules).text()) return "";
  Pipeline plain = *pipeline;
  for (PassConfig& p : plain.passes) p.sites.except.clear();
  std::erase_if(plain.passes, [](const PassConfig& p) {
    return p.def->by_precision && p.options.empty() && p.sites.only.empty();
  });
  return plain.text() == default_pipeline(*rules).text() ? "" : pipeline_flag(plain, *rules);
}

}  // namespace

std::string pipeline_flag(const Pipeline& pipeline, const Rules& rules) {
  const std::string whole = pipeline.text();
  const Pipeline usual = default_pipeline(rules);
  std::string shorter = "default";
  for (const PassConfig& one : usual.passes) {
    const std::string name = one.def->name;
    const PassConfig* const kept = pipeline.find(name);
    if (kept == nullptr)
      shorter += ",-" + name;
    else if (const std::string text = Pipeline{{*kept}}.text(); text != name)
      shorter += "," + text;
  }
  for (const PassConfig& more : pipeline.passes)
    if (usual.find(more.def->name) == nullptr) shorter += "," + Pipeline{{more}}.text();
  const auto parsed = parse_pipeline(shorter, rules);
  const bool same = parsed && parsed->text() == whole;
  return whole.empty() ? "none" : same && shorter.size() < whole.size() ? shorter : whole;
}

void RecipeFlags::declare(CLI::App& app, bool model_positional) {
  if (model_positional)
    app.add_option("MODEL", model_, "ONNX file, or a folder that verify wrote (may come from --recipe)");
  app.add_option("--recipe", recipe_path_,
                 "a recipe's file, or a run of a session as SESSION#RUN; other flags override it");
  flags_ = std::make_shared<std::vector<Flag>>(recipe_settings().size());
  for (std::size_t i = 0; i < flags_->size(); ++i) {
    Flag& flag = (*flags_)[i];
    flag.setting = &recipe_settings()[i];
    const std::string name = flag_of(*flag.setting);
    if (name == "--dim")
      add_repeated(app, name, dims_, "bind a symbolic dimension, NAME=N");
    else if (flag.setting->kind == SettingKind::list)
      add_repeated(app, name, flag.list, help_of(*flag.setting));
    else if (!name.empty())
      flag.option = app.add_option(name, flag.text, help_of(*flag.setting));
    if (name == "--passes")
      add_repeated(app, "--exclude", exclude_, "switch one instance of a pass off, PASS:SITE");
  }
  declare_import_limits(app, import_limits_);
}

bool RecipeFlags::given(const std::string& key) const {
  if (key == "recipe") return !recipe_path_.empty();
  if (key == "dims") return !dims_.empty();
  return std::any_of(flags_->begin(), flags_->end(), [&](const Flag& f) {
    return key == f.setting->key && (f.option != nullptr ? f.option->count() > 0 : !f.list.empty());
  });
}

bool RecipeFlags::any_given(const std::string& but) const {
  for (const RecipeSetting& setting : recipe_settings())
    if (setting.key != but && given(setting.key)) return true;
  return given("recipe");
}

Status RecipeFlags::load_ops() const {
  TRY(load_op_libraries(named_ops()));
  return {};
}

const std::vector<std::string>& RecipeFlags::named_ops() const {
  return std::find_if(flags_->begin(), flags_->end(),
                      [](const Flag& f) { return std::string_view(f.setting->key) == "ops"; })
      ->list;
}

std::string RecipeFlags::recipe_of_folder() const {
  std::error_code ignored;
  const std::string in_folder = model_ + "/recipe.json";
  return !model_.empty() && std::filesystem::is_regular_file(in_folder, ignored) ? in_folder : "";
}

Result<std::optional<JobSource>> RecipeFlags::source() const {
  const std::string in_folder = recipe_of_folder();
  if (!in_folder.empty() && !recipe_path_.empty())
    return Error{Errc::usage,
                 "two recipes: --recipe " + escaped(recipe_path_) + " and " + escaped(in_folder)};
  if (in_folder.empty() && recipe_path_.empty()) return std::optional<JobSource>();
  return std::optional(TRY(read_job_source(in_folder.empty() ? recipe_path_ : in_folder)));
}

Result<Recipe> RecipeFlags::resolve(const Recipe* base) const {
  if (std::optional<JobSource> named = TRY(source())) return over(std::move(named->recipe));
  if (base != nullptr) return over(*base);
  Recipe recipe;
  set_pipeline(recipe, default_pipeline());
  return over(std::move(recipe));
}

Result<Recipe> RecipeFlags::over(Recipe recipe) const {
  const std::vector<std::string> libraries = TRY(load_op_libraries(named_ops()));
  if (!model_.empty() && recipe_of_folder().empty()) {
    recipe.model = model_;
    recipe.model_hash.clear();
  }
  if (recipe.model.empty()) return Error{Errc::usage, "no model: give MODEL or --recipe FILE"};
  TRY(check_op_libraries(recipe.ops));
  for (const std::string& d : dims_) TRY(add_dim(recipe, d));
  recipe.import_limits = TRY(read_import_limits(import_limits_));
  for (const Flag& f : *flags_) {
    if (!f.list.empty()) {
      auto& list = recipe.*std::get<std::vector<std::string> Recipe::*>(f.setting->member);
      list = f.list;
      std::erase(list, "");  // an empty text alone: none, whatever the recipe has
      TRY(check_setting(recipe, *f.setting, flag_of(*f.setting)));
    }
    if (f.option != nullptr && f.option->count() > 0) TRY(set_flag(recipe, *f.setting, f.text));
  }
  if (!libraries.empty()) recipe.ops = libraries;
  // Without --steps the epochs alone say when training ends.
  if (given("epochs") && !given("steps") && recipe.epochs > 0) recipe.steps = kMostSteps;
  for (const std::string& e : exclude_) TRY(exclude_site(recipe, e));
  for (const RecipeSetting& setting : recipe_settings())  // a file may ask for more than this program takes
    if (setting.most_here > 0) TRY(check_setting(recipe, setting, flag_of(setting)));
  return recipe;
}

Status RecipeFlags::override_with(Recipe& recipe, const std::string& text) {
  for (const std::string& part : split_top_level(text, ';')) {
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos)
      return Error{Errc::usage, "expected setting=value, got '" + escaped(part) + "'"};
    const std::string name = part.substr(0, equals), value = part.substr(equals + 1);
    const RecipeSetting* const setting = setting_called(name);
    if (name == "dim") {
      TRY(add_dim(recipe, value));
    } else if (name == "model") {
      if (value != recipe.model) recipe.model_hash.clear();  // which was the other's
      recipe.model = value;
    } else if (setting != nullptr) {
      TRY(set_flag(recipe, *setting, value));
    } else {
      return Error{Errc::usage, unknown_name("setting", name, override_names())};
    }
  }
  return {};
}

std::string shell_quoted(const std::string& text) {
  const bool plain =
      !text.empty() &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=@%+") ==
          std::string::npos;
  if (plain) return text;
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

void declare_import_limits(CLI::App& app, std::vector<std::string>& given) {
  app.add_option("--import-limit", given,
                 "raise or lower a limit of files, NAME=N (inspect --limits; repeatable)")
      ->take_all()
      ->allow_extra_args(false);
}

Result<std::map<std::string, std::int64_t>> read_import_limits(const std::vector<std::string>& given) {
  std::map<std::string, std::int64_t> limits;
  for (const std::string& text : given) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos)
      return Error{Errc::usage, "--import-limit expects NAME=N, got '" + escaped(text) + "'"};
    const std::string name = text.substr(0, equals);
    TRY(parse_into(limits[name], text.substr(equals + 1), "--import-limit"));
    Limits checked;
    TRY(set_limit(checked, name, limits[name]));
  }
  return limits;
}

std::vector<std::string> command_words(const Recipe& recipe, const RunFlags& flags) {
  std::vector<std::string> words{"gradloom", "train"};
  const auto add = [&](const std::string& flag, const std::string& value) {
    words.push_back(flag);
    words.push_back(value);
  };
  const Recipe defaults;
  const Recipe& base = flags.resumed != nullptr  ? *flags.resumed
                       : flags.source != nullptr ? flags.source->recipe
                                                 : defaults;
  const bool resumed = flags.resumed != nullptr || flags.source != nullptr;
  if (flags.source == nullptr || recipe.model != base.model) words.push_back(recipe.model);
  if (flags.source != nullptr) add("--recipe", flags.source->name);
  for (const auto& [name, n] : recipe.dims)
    if (flags.source == nullptr || !base.dims.contains(name) || base.dims.at(name) != n)
      add("--dim", name + "=" + std::to_string(n));
  for (const auto& [name, n] : recipe.import_limits) add("--import-limit", name + "=" + std::to_string(n));
  for (const RecipeSetting& setting : recipe_settings()) {
    const std::string flag = flag_of(setting);
    if (flag == "--rules") {
      if (recipe.rules != base.rules) add(flag, recipe.rules);
    } else if (flag == "--passes") {
      if (resumed && recipe.passes == base.passes && recipe.rules == base.rules) continue;
      const std::string passes = passes_flag(recipe);
      if (!passes.empty() || resumed) add(flag, passes.empty() ? "default" : passes);
      for (const RecipePass& p : recipe.passes)
        for (const std::string& site : p.sites.except) add("--exclude", p.name + ":" + site);
    } else if (flag == "--ops") {
      for (const std::string& library : loaded_of(recipe.ops)) add(flag, library);
    } else if (setting.kind == SettingKind::list) {
      const auto member = std::get<std::vector<std::string> Recipe::*>(setting.member);
      if (recipe.*member == base.*member) continue;
      for (const std::string& text : recipe.*member) add(flag, text);
      if ((recipe.*member).empty()) add(flag, "");
    } else if (setting.kind != SettingKind::part &&
               ((setting.always_told && flags.source == nullptr) ||
                setting_text(recipe, setting) != setting_text(base, setting))) {
      add(flag, setting_text(recipe, setting));
    }
  }
  const CheckpointOptions &checkpoints = flags.checkpoints, usual;
  if (!flags.resume.empty()) add("--resume", flags.resume);
  if (!checkpoints.folder.empty()) {
    add("--checkpoint", checkpoints.folder);
    if (checkpoints.every != usual.every) add("--checkpoint-every", std::to_string(checkpoints.every));
    if (checkpoints.keep != usual.keep) add("--checkpoint-keep", std::to_string(checkpoints.keep));
  }
  if (!flags.session.empty()) add("--session", flags.session);
  return words;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

std::string command_line(const Recipe& recipe, const RunFlags& flags) {
  return shell_line(command_words(recipe, flags));
}

}  // namespace gradloom
