// The table of settings, and what a setting is as text.
#include "sessions/recipe_settings.h"

#include <limits>
#include <optional>
#include <type_traits>

#include "engine/base/file.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/train/early_stop.h"
#include "engine/train/loss_scaling.h"
#include "engine/train/losses.h"
#include "engine/train/optimizers.h"
#include "engine/train/parameter_groups.h"
#include "engine/train/schedules.h"
#include "passes/planners.h"
#include "passes/precision.h"
#include "passes/rules.h"
#include "sessions/data.h"

namespace gradloom {
namespace {

constexpr const char* kOr = " | ";

std::string joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

// ---- What texts may say ----

std::string loss_syntax() {
  std::vector<std::string> forms{"OUTPUT"};
  for (const LossDef& def : all_losses()) {
    std::string options;
    for (const LossOption& option : def.options)
      options += (options.empty() ? "" : ",") + std::string(option.name) + "=N";
    const std::string tensors = std::string(":") + def.prediction + "," + def.target;
    forms.push_back(def.name + tensors);
    if (!options.empty()) forms.push_back(std::string(def.name) + "{" + options + "}" + tensors);
  }
  return joined(forms, kOr);
}

std::string optimizer_syntax() {
  std::vector<std::string> forms;
  for (const OptimizerDef& def : all_optimizers())
    forms.push_back(std::string(def.name) + "{" + def.start + "}");
  return joined(forms, kOr);
}

std::string schedule_syntax() {
  std::vector<std::string> forms;
  for (const ScheduleDef& def : all_schedules()) {
    ScheduleSpec spec;
    spec.name = def.name;
    std::string options;
    for (const FieldRow& row : list_fields([&](FieldVisitor& v) { spec.fields(v); }))
      options += (options.empty() ? "" : ",") + row.name + "=";
    forms.push_back(std::string(def.name) + "{" + options + "}");
  }
  return joined(forms, kOr);
}

std::string loss_scale_syntax() {
  LossScaleSpec fixed;
  fixed.dynamic = false;
  return print_loss_scale(LossScaleSpec()) + kOr + print_loss_scale(fixed);
}
std::string data_syntax() {
  return "synthetic | npz:FILE | npz:FOLDER | npy:INPUT=FILE,INPUT=FILE | tokens:FILE | tokens{bytes=2}:FILE";
}
std::string rules_syntax() { return "FILE | rule NAME { PATTERN -> REPLACEMENT where CONDITIONS } .."; }
std::string passes_syntax() {
  return "default | none | name,name{option=value} | default,-name | default,name{except=SITE|@FINGERPRINT} (or only=)";
}
std::string device_syntax() {
  return "cpu | cuda:N | hip:N | host-gpu (see gradloom devices; cuda is cuda:0, of several ranks the one of LOCAL_RANK)";
}

std::string planner_syntax() {
  std::vector<std::string> names;
  for (const PlannerDef& def : all_planners()) names.emplace_back(def.name);
  return joined(names, kOr);
}

Status check_optimizer(const std::string& text) {
  TRY(parse_optimizer(text));
  return {};
}
Status check_group(const std::string& text) {
  TRY(parse_group(text));
  return {};
}
Status check_schedule(const std::string& text) {
  TRY(parse_schedule(text));
  return {};
}
Status check_loss_scale(const std::string& text) {
  TRY(parse_loss_scale(text));
  return {};
}
std::string memory_syntax() { return "2GiB | 800MB | a number of bytes"; }
Status check_memory_budget(const std::string& text) {
  if (text.empty() || parse_bytes(text).value_or(0) > 0) return {};
  return Error{Errc::usage, "'" + escaped(text) + "' is no size of memory (for example 2GiB)"};
}
std::string costs_syntax() { return "SESSION | SESSION#RUN"; }
Status check_costs(const std::string& text) {
  const CostsRun run = costs_run(text);
  const bool whole = text.empty() || (!run.session.empty() && (run.session == text || !run.run.empty()));
  if (whole) return {};
  return Error{Errc::usage, "'" + escaped(text) + "' is not SESSION#RUN (for example runs.gls#3)"};
}
Status check_held_out(const std::string& text) { return text.empty() ? Status() : check_data(text); }
Status check_early_stop(const std::string& text) {
  TRY(parse_early_stop(text));
  return {};
}
Status check_precision(const std::string& text) {
  TRY(parse_precision(text));
  return {};
}
Status check_planner(const std::string& text) {
  TRY(known_planner(text));
  return {};
}

// The rules that were there go, those that come are switched on. Every rule has an arrow, the name of a file has none.
Status set_rules(Recipe& recipe, const std::string& text) {
  const bool is_text = text.empty() || text.find("->") != std::string::npos;
  const std::string rules = is_text ? text : TRY(read_file_limited(text, kMostRulesBytes));
  const Rules come = TRY(parse_rules(rules, is_text ? "rules" : text)), go = TRY(recipe_rules(recipe));
  std::erase_if(recipe.passes, [&](const RecipePass& pass) { return find_rule(go, pass.name) != nullptr; });
  recipe.rules = rules.substr(0, rules.find_last_not_of(" \t\r\n") + 1);
  std::vector<RecipePass> passes;
  for (const auto& rule : come) passes.push_back({rule->name, {}, {}});
  recipe.passes.insert(recipe.passes.begin(), passes.begin(), passes.end());
  return {};
}

Status set_passes(Recipe& recipe, const std::string& text) {
  set_pipeline(recipe, TRY(parse_pipeline(text, TRY(recipe_rules(recipe)))));
  return {};
}

// ---- The table ----

constexpr double kMostInteger = 1.8446744073709551615e19;  // for help alone; a SEED takes every unsigned one

#define ROW(key_, kind_, effect_, label_, help_) \
  .key = #key_, .kind = SettingKind::kind_, .effect = SettingEffect::effect_, .label = label_, .help = help_
#define TEXT(key, fallback, effect, label, help, ...) \
  {ROW(key, text, effect, label, help), .member = &Recipe::key __VA_OPT__(, ) __VA_ARGS__},
#define NAME(key, fallback, effect, label, help, ...) \
  {ROW(key, name, effect, label, help), .member = &Recipe::key __VA_OPT__(, ) __VA_ARGS__},
#define CHOICE(key, fallback, choices_, effect, label, help, ...) \
  {ROW(key, choice, effect, label, help), .member = &Recipe::key, \
   .choices = choices_ __VA_OPT__(, ) __VA_ARGS__},
#define SWITCH(key, fallback, effect, label, help, ...)             \
  {ROW(key, switched, effect, label, help), .member = &Recipe::key, \
   .choices = "on off" __VA_OPT__(, ) __VA_ARGS__},
#define INTEGER(key, fallback, least_, most_, effect, label, help, ...)             \
  {ROW(key, integer, effect, label, help), .member = &Recipe::key, .least = least_, \
   .most = most_ __VA_OPT__(, ) __VA_ARGS__},
#define SEED(key, fallback, effect, label, help, ...)           \
  {ROW(key, seed, effect, label, help), .member = &Recipe::key, \
   .most = kMostInteger __VA_OPT__(, ) __VA_ARGS__},
#define NUMBER(key, fallback, least_, most_, effect, label, help, ...)             \
  {ROW(key, number, effect, label, help), .member = &Recipe::key, .least = least_, \
   .most = most_ __VA_OPT__(, ) __VA_ARGS__},
#define LIST(key, effect, label, help, ...) \
  {ROW(key, list, effect, label, help), .member = &Recipe::key __VA_OPT__(, ) __VA_ARGS__},
#define PART(key, effect, help, ...) {ROW(key, part, effect, "", help) __VA_OPT__(, ) __VA_ARGS__},
constexpr RecipeSetting kSettings[] = {
#include "sessions/recipe_settings.def"
};
#undef ROW

// ---- Values ----

template <class T>
Status read_number(const std::string& text, const std::string& called, T& value) {
  const std::optional<T> parsed = parse_number<T>(text);
  const char* const wanted = std::is_floating_point_v<T> ? "a number"
                             : std::is_signed_v<T>       ? "an integer"
                                                         : "an integer of at least 0";
  if (!parsed) return Error{Errc::usage, called + " expects " + wanted + ", got '" + escaped(text) + "'"};
  value = *parsed;
  return {};
}

Status one_of_choices(const std::string& text, const RecipeSetting& setting, const std::string& called) {
  const std::vector<std::string> known = split_top_level(setting.choices, ' ');
  for (const std::string& choice : known)
    if (text == choice) return {};
  if (setting.kind == SettingKind::choice) return Error{Errc::usage, unknown_name(setting.key, text, known)};
  return Error{Errc::usage, called + " " + escaped(text) + ": expected one of " + joined(known, ", ")};
}

std::string bound_text(const RecipeSetting& setting, double bound) {
  return setting.kind == SettingKind::integer ? std::to_string(static_cast<std::int64_t>(bound))
                                              : number_text(bound);
}

Status check_range(double value, const RecipeSetting& setting, const std::string& called) {
  const double most = setting.most_here > 0 ? setting.most_here : setting.most;
  if (value < setting.least)
    return Error{Errc::usage, called + " must be at least " + bound_text(setting, setting.least)};
  if (!(value <= most)) return Error{Errc::usage, called + " must be at most " + bound_text(setting, most)};
  return {};
}

struct Reader {
  const RecipeSetting& setting;
  const std::string &text, &called;
  Recipe& recipe;
  Status operator()(std::monostate) const { return setting.set_text(recipe, text); }
  Status operator()(std::string Recipe::*member) const {
    if (*setting.choices != 0) TRY(one_of_choices(text, setting, called));
    recipe.*member = text;
    if (setting.set != nullptr) setting.set(recipe, text);
    return {};
  }
  Status operator()(bool Recipe::*member) const {
    TRY(one_of_choices(text, setting, called));
    recipe.*member = text == "on";
    return {};
  }
  Status operator()(std::vector<std::string> Recipe::*member) const {
    (recipe.*member).clear();
    for (const std::string& part : split_top_level(text, ' '))
      if (!part.empty()) (recipe.*member).push_back(part);
    return {};
  }
  template <class T>
  Status operator()(T Recipe::*member) const {
    return read_number(text, called, recipe.*member);
  }
};

struct Checker {
  const RecipeSetting& setting;
  const std::string& called;
  const Recipe& recipe;
  Status operator()(std::string Recipe::*member) const {
    if (*setting.choices != 0) TRY(one_of_choices(recipe.*member, setting, called));
    return setting.check != nullptr ? setting.check(recipe.*member) : Status();
  }
  Status operator()(std::int64_t Recipe::*member) const {
    return check_range(static_cast<double>(recipe.*member), setting, called);
  }
  Status operator()(double Recipe::*member) const { return check_range(recipe.*member, setting, called); }
  Status operator()(std::vector<std::string> Recipe::*member) const {
    if (setting.check != nullptr)
      for (const std::string& text : recipe.*member) TRY(setting.check(text));
    return {};
  }
  template <class T>
  Status operator()(T) const {
    return {};
  }
};

struct Printer {
  const Recipe& recipe;
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(std::string Recipe::*member) const { return recipe.*member; }
  std::string operator()(bool Recipe::*member) const { return recipe.*member ? "on" : "off"; }
  std::string operator()(double Recipe::*member) const { return number_text(recipe.*member); }
  std::string operator()(std::vector<std::string> Recipe::*member) const {
    return joined(recipe.*member, " ");
  }
  template <class T>
  std::string operator()(T Recipe::*member) const {
    return std::to_string(recipe.*member);
  }
};

struct Resetter {
  Recipe& recipe;
  void operator()(std::monostate) const {}
  template <class T>
  void operator()(T Recipe::*member) const {
    recipe.*member = Recipe().*member;
  }
};

std::string range_text(const RecipeSetting& setting) {
  return bound_text(setting, setting.least) + " to " + bound_text(setting, setting.most);
}

}  // namespace

std::span<const RecipeSetting> recipe_settings() { return kSettings; }

const RecipeSetting* find_setting(const std::string& key) {
  for (const RecipeSetting& setting : kSettings)
    if (key == setting.key) return &setting;
  return nullptr;
}

std::string flag_of(const RecipeSetting& setting) {
  if (setting.flag != nullptr) return setting.flag;
  std::string flag = std::string("--") + setting.key;
  for (char& c : flag)
    if (c == '_') c = '-';
  return flag;
}

std::string type_of(const RecipeSetting& setting) {
  switch (setting.kind) {
    case SettingKind::text:
    case SettingKind::name: return "text";
    case SettingKind::choice:
    case SettingKind::switched: return joined(split_top_level(setting.choices, ' '), kOr);
    case SettingKind::integer: return "integer, " + range_text(setting);
    case SettingKind::seed: return "integer, 0 to 18446744073709551615";
    case SettingKind::number: return "number, " + range_text(setting);
    case SettingKind::list: return "list of texts";
    case SettingKind::part: return "structure";
  }
  return "";
}

std::string help_of(const RecipeSetting& setting) {
  std::string text = setting.help;
  if (setting.forms != nullptr) text += ": " + setting.forms();
  if (setting.kind == SettingKind::choice || setting.kind == SettingKind::switched)
    text = joined(split_top_level(setting.choices, ' '), kOr) + ": " + text;
  return text;
}

std::string setting_text(const Recipe& recipe, const RecipeSetting& setting) {
  return std::visit(Printer{recipe}, setting.member);
}

bool at_default(const Recipe& recipe, const RecipeSetting& setting) {
  return setting_text(recipe, setting) == setting_text(Recipe(), setting);
}

void reset_setting(Recipe& recipe, const RecipeSetting& setting) {
  std::visit(Resetter{recipe}, setting.member);
}

Status read_setting(Recipe& recipe, const RecipeSetting& setting, const std::string& text,
                    const std::string& called) {
  CHECK(setting.kind != SettingKind::part || setting.set_text != nullptr, "a part without text");
  return std::visit(Reader{setting, text, called, recipe}, setting.member);
}

Status check_setting(const Recipe& recipe, const RecipeSetting& setting, const std::string& called) {
  return std::visit(Checker{setting, called, recipe}, setting.member);
}

}  // namespace gradloom
