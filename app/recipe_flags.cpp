#include "app/recipe_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "engine/base/text.h"
#include "engine/onnx/import.h"
#include "passes/planners.h"

namespace gradloom {
namespace {

template <class T>
Status parse_into(T& target, const std::string& text, const char* what) {
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size())
    return Error{Errc::usage, std::string(what) + " expects a number, got '" + escaped(text) + "'"};
  target = value;
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

Status check_choice(const std::string& value, const char* flag, std::initializer_list<const char*> choices) {
  std::string known;
  for (const char* c : choices) {
    if (value == c) return {};
    known += (known.empty() ? "" : ", ") + std::string(c);
  }
  return Error{Errc::usage, std::string("--") + flag + " " + escaped(value) + ": expected one of " + known};
}

// Sets one key of a recipe from its flag's text.
Status set_key(Recipe& recipe, const std::string& key, const std::string& value) {
  if (key == "model")
    recipe.model = value;
  else if (key == "loss")
    recipe.loss = value;
  else if (key == "optimizer") {
    TRY(parse_optimizer(value));
    recipe.optimizer = value;
  } else if (key == "schedule") {
    TRY(parse_schedule(value));
    recipe.schedule = value;
  } else if (key == "clip-norm")
    TRY(parse_into(recipe.clip_norm, value, "--clip-norm"));
  else if (key == "accumulate")
    TRY(parse_into(recipe.accumulate, value, "--accumulate"));
  else if (key == "precision") {
    TRY(precision_type(value));
    set_precision(recipe, value);
  } else if (key == "loss-scale") {
    TRY(parse_loss_scale(value));
    recipe.loss_scale = value;
  } else if (key == "passes")
    set_pipeline(recipe, TRY(parse_pipeline(value)));
  else if (key == "planner")
    recipe.planner = TRY(known_planner(value))->name;
  else if (key == "in-place") {
    TRY(check_choice(value, "in-place", {"on", "off"}));
    recipe.in_place = value == "on";
  } else if (key == "record") {
    TRY(check_choice(value, "record", {"on", "off"}));
    recipe.record = value == "on";
  } else if (key == "search") {
    TRY(parse_into(recipe.search, value, "--search"));
  } else if (key == "device")
    recipe.device = value;
  else if (key == "seed")
    TRY(parse_into(recipe.seed, value, "--seed"));
  else if (key == "steps")
    TRY(parse_into(recipe.steps, value, "--steps"));
  else if (key == "data")
    recipe.data = value;
  else if (key == "threads")
    TRY(parse_into(recipe.threads, value, "--threads"));
  else if (key == "profile") {
    TRY(check_choice(value, "profile", {"step", "sampled", "all"}));
    recipe.profile = value;
  } else
    return Error{Errc::usage, "unknown setting '" + escaped(key) + "'"};
  return {};
}

// "default,-fuse-gelu" when that says it, else the passes one by one.
std::string short_pipeline(const Pipeline& pipeline) {
  const std::string whole = pipeline.text();
  std::string shorter = "default";
  for (const PassConfig& p : default_pipeline().passes) {
    const bool kept = std::any_of(pipeline.passes.begin(), pipeline.passes.end(),
                                  [&](const PassConfig& c) { return c.def == p.def; });
    if (!kept) shorter += std::string(",-") + p.def->name;
  }
  const auto parsed = parse_pipeline(shorter);
  const bool same = parsed && parsed->text() == whole;
  return whole.empty() ? "none" : same && shorter.size() < whole.size() ? shorter : whole;
}

}  // namespace

void RecipeFlags::declare(CLI::App& app, bool model_positional) {
  if (model_positional) app.add_option("MODEL", model_, "ONNX file (may come from --recipe)");
  app.add_option("--recipe", recipe_path_, "recipe file; other flags override it");
  app.add_option("--dim", dims_, "bind a symbolic dimension, NAME=N (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--freeze", freeze_, "parameters not to train, glob (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--exclude", exclude_, "switch one instance of a pass off, PASS:SITE (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  declare_import_limits(app, import_limits_);
  const auto flag = [&](const char* name, const char* key, std::string& value, const char* help) {
    flags_.push_back({app.add_option(name, value, help), key, &value});
  };
  flag("--loss", "loss", loss_,
       "scalar output, or ce:LOGITS,LABELS | ce{axis=1}:... | mse:PRED,TARGET | l1:... | bce:...");
  flag("--optimizer", "optimizer", optimizer_, "sgd{lr=0.1,momentum=0.9} | adam | adamw | lamb");
  flag("--schedule", "schedule", schedule_, "constant{warmup=} | linear{warmup=,total=,end=} | cosine{...}");
  flag("--clip-norm", "clip-norm", clip_norm_, "clip gradients by their global norm");
  flag("--accumulate", "accumulate", accumulate_, "batches per optimizer step");
  flag("--precision", "precision", precision_,
       "f32 | bf16, f16 (mixed: f32 parameters and sums) | f64 (reference runs)");
  flag("--loss-scale", "loss-scale", loss_scale_,
       "precision f16: dynamic{initial=65536,growth=2,backoff=0.5,interval=2000}");
  flag("--passes", "passes", passes_, "default | none | name,name{option=value} | default,-name");
  flag("--planner", "planner", planner_, "memory planner: none | reuse | best-fit");
  flag("--in-place", "in-place", in_place_, "let results overwrite dead inputs: on | off");
  flag("--record", "record", record_,
       "GPUs: record the step's launches once and run them as one graph: on | off");
  flag("--search", "search", search_,
       "GPUs: algorithms of its library that each matrix product is tried with before the first step; the "
       "session and the recipe keep the fastest; 0 or 1: the library's first suggestion");
  flag("--device", "device", device_, "cpu | cuda:N | hip:N (see gradloom devices)");
  flag("--seed", "seed", seed_, "of data and random operators");
  flag("--steps", "steps", steps_, "optimizer steps");
  flag("--data", "data", data_, "synthetic | npz:FILE | tokens:FILE");
  flag("--threads", "threads", threads_, "CPU threads; 0 = all");
  flag("--profile", "profile", profile_,
       "which steps are timed kernel by kernel: step (none) | sampled | all");
}

bool RecipeFlags::given(const std::string& key) const {
  if (key == "recipe") return !recipe_path_.empty();
  for (const Flag& f : flags_)
    if (key == f.key) return f.option->count() > 0;
  return false;
}

Result<Recipe> RecipeFlags::resolve() const {
  Recipe recipe;
  if (!recipe_path_.empty())
    recipe = TRY(read_recipe(recipe_path_));
  else
    set_pipeline(recipe, default_pipeline());
  if (!model_.empty()) {
    recipe.model = model_;
    recipe.model_hash.clear();
  }
  if (recipe.model.empty()) return Error{Errc::usage, "no model: give MODEL or --recipe FILE"};
  for (const std::string& d : dims_) TRY(add_dim(recipe, d));
  recipe.import_limits = TRY(read_import_limits(import_limits_));
  if (!freeze_.empty()) recipe.freeze = freeze_;
  for (const Flag& f : flags_)
    if (f.option->count() > 0) TRY(set_key(recipe, f.key, *f.value));
  for (const std::string& e : exclude_) {
    const std::size_t colon = e.find(':');
    bool found = false;
    for (RecipePass& p : recipe.passes)
      if (colon != std::string::npos && p.name == e.substr(0, colon)) {
        p.excluded_sites.push_back(e.substr(colon + 1));
        found = true;
      }
    const PassDef* def = found || colon == std::string::npos ? nullptr : find_pass(e.substr(0, colon));
    if (def != nullptr && def->by_precision) {  // recipe_compile_options refuses it at other precisions
      recipe.passes.push_back({def->name, {}, {e.substr(colon + 1)}});
      found = true;
    }
    if (!found)
      return Error{Errc::usage,
                   "--exclude " + escaped(e) + ": expected PASS:SITE with a pass that is switched on"};
  }
  if (recipe.accumulate < 1) return Error{Errc::usage, "--accumulate must be at least 1"};
  if (recipe.steps < 1) return Error{Errc::usage, "--steps must be at least 1"};
  if (recipe.clip_norm < 0) return Error{Errc::usage, "--clip-norm must not be negative"};
  if (recipe.search < 0 || recipe.search > 32) return Error{Errc::usage, "--search must be between 0 and 32"};
  if (recipe.threads < 0 || recipe.threads > 1024)
    return Error{Errc::usage, "--threads must be between 0 and 1024"};
  return recipe;
}

Status RecipeFlags::override_with(Recipe& recipe, const std::string& text) {
  for (const std::string& part : split_top_level(text, ';')) {
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos)
      return Error{Errc::usage, "expected setting=value, got '" + escaped(part) + "'"};
    if (part.substr(0, equals) == "dim")
      TRY(add_dim(recipe, part.substr(equals + 1)));
    else
      TRY(set_key(recipe, part.substr(0, equals), part.substr(equals + 1)));
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

std::string command_line(const Recipe& recipe, const std::string& session_path) {
  const Recipe defaults;
  std::string line = "gradloom train " + shell_quoted(recipe.model);
  const auto add = [&](const char* flag, const std::string& value) {
    line += std::string(" ") + flag + " " + shell_quoted(value);
  };
  for (const auto& [name, n] : recipe.dims) add("--dim", name + "=" + std::to_string(n));
  for (const auto& [name, n] : recipe.import_limits) add("--import-limit", name + "=" + std::to_string(n));
  if (!recipe.loss.empty()) add("--loss", recipe.loss);
  add("--optimizer", recipe.optimizer);
  if (recipe.schedule != defaults.schedule) add("--schedule", recipe.schedule);
  for (const std::string& f : recipe.freeze) add("--freeze", f);
  if (recipe.clip_norm > 0) add("--clip-norm", number_text(recipe.clip_norm));
  if (recipe.accumulate != 1) add("--accumulate", std::to_string(recipe.accumulate));
  if (recipe.precision != defaults.precision) add("--precision", recipe.precision);
  if (recipe.loss_scale != defaults.loss_scale) add("--loss-scale", recipe.loss_scale);
  if (const auto pipeline = recipe_pipeline(recipe);
      pipeline && pipeline->text() != default_pipeline().text()) {
    Pipeline plain = *pipeline;
    for (PassConfig& p : plain.passes) p.excluded_sites.clear();
    std::erase_if(plain.passes, [](const PassConfig& p) { return p.def->by_precision && p.options.empty(); });
    const std::string text = plain.text();
    if (text != default_pipeline().text()) add("--passes", short_pipeline(plain));
  }
  for (const RecipePass& p : recipe.passes)
    for (const std::string& site : p.excluded_sites) add("--exclude", p.name + ":" + site);
  if (recipe.planner != defaults.planner) add("--planner", recipe.planner);
  if (!recipe.in_place) add("--in-place", "off");
  if (!recipe.record) add("--record", "off");
  if (recipe.search != defaults.search) add("--search", std::to_string(recipe.search));
  if (recipe.device != defaults.device) add("--device", recipe.device);
  if (recipe.data != defaults.data) add("--data", recipe.data);
  if (recipe.seed != 0) add("--seed", std::to_string(recipe.seed));
  add("--steps", std::to_string(recipe.steps));
  if (recipe.threads != 0) add("--threads", std::to_string(recipe.threads));
  if (recipe.profile != defaults.profile) add("--profile", recipe.profile);
  if (!session_path.empty()) add("--session", session_path);
  return line;
}

}  // namespace gradloom
