// Recipes as JSON: reading, writing and the schema, each by the rows of recipe_settings.def. What is more
// than one value (PART) has its three functions here.
#include <cmath>
#include <limits>
#include <optional>
#include <nlohmann/json.hpp>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "sessions/json_schema.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

using json = nlohmann::json;
using ordered = nlohmann::ordered_json;
constexpr std::size_t kLongestText = 4096, kLongestName = 256;

// 1.0 stands for 1, as in JSON Schema; ranges were validated.
template <class Int>
Int integer_of(const json& value) {
  return value.is_number_float() ? static_cast<Int>(value.get<double>()) : value.get<Int>();
}

template <class T>
void read_value(const json& from, const char* key, T& to) {
  if (!from.contains(key)) return;
  if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::uint64_t>)
    to = integer_of<T>(from[key]);
  else
    to = from[key].get<T>();
}

// ---- model ----

void read_model(const json& from, Recipe& recipe) {
  read_value(from, "path", recipe.model);
  read_value(from, "hash", recipe.model_hash);
}

ordered write_model(const Recipe& recipe) {
  ordered out = {{"path", recipe.model}};
  if (!recipe.model_hash.empty()) out["hash"] = recipe.model_hash;
  return out;
}

constexpr const char* model_schema = R"({
  "type": "object",
  "required": ["path"],
  "additionalProperties": false,
  "properties": {
    "path": {"type": "string", "minLength": 1, "maxLength": 4096},
    "hash": {"type": "string", "pattern": "^[0-9a-f]{32}$", "maxLength": 32, "description": "XXH3-128 of the file."}
  }
})";

// ---- dims ----

void read_dims(const json& from, Recipe& recipe) {
  for (const auto& [name, value] : from.items()) recipe.dims[name] = integer_of<std::int64_t>(value);
}

ordered write_dims(const Recipe& recipe) {
  ordered out = ordered::object();
  for (const auto& [name, value] : recipe.dims) out[name] = value;
  return out;
}

constexpr const char* dims_schema = R"({
  "type": "object",
  "maxProperties": 256,
  "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 4294967296}
})";

// ---- passes ----

// Option texts that are JSON numbers or booleans are written as such, so that recipes read naturally.
ordered option_value(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  const std::optional<std::int64_t> integer = parse_number<std::int64_t>(text);
  if (integer && std::to_string(*integer) == text) return *integer;
  const std::optional<double> real = parse_number<double>(text);
  if (real && std::isfinite(*real) && number_text(*real) == text &&
      text.find_first_of(".eE") != std::string::npos) {
    return *real;
  }
  return text;
}

std::string option_text(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_unsigned()) return std::to_string(value.get<std::uint64_t>());
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  if (value.is_number()) return number_text(value.get<double>());
  return value.get<std::string>();
}

// A line of the text each, as people read them.
void read_rules(const json& from, Recipe& recipe) {
  for (const json& line : from)
    recipe.rules += (&line == &from.front() ? "" : "\n") + line.get<std::string>();
}

ordered write_rules(const Recipe& recipe) {
  if (recipe.rules.empty()) return {};
  ordered lines = ordered::array();
  for (std::size_t at = 0; at < recipe.rules.size();) {
    const std::size_t end = std::min(recipe.rules.find('\n', at), recipe.rules.size());
    lines.push_back(recipe.rules.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

constexpr const char* rules_schema = R"({
  "type": "array", "maxItems": 65536, "items": {"type": "string", "maxLength": 4096}
})";

void read_passes(const json& from, Recipe& recipe) {
  for (const json& item : from) {
    RecipePass pass;
    read_value(item, "name", pass.name);
    const json options = item.value("options", json::object());
    for (const auto& [name, value] : options.items()) pass.options.emplace_back(name, option_text(value));
    read_value(item, "exclude", pass.sites.except);
    read_value(item, "only", pass.sites.only);
    recipe.passes.push_back(std::move(pass));
  }
}

ordered write_passes(const Recipe& recipe) {
  ordered out = ordered::array();
  for (const RecipePass& pass : recipe.passes) {
    ordered item = {{"name", pass.name}};
    for (const auto& [name, value] : pass.options) item["options"][name] = option_value(value);
    if (!pass.sites.except.empty()) item["exclude"] = pass.sites.except;
    if (!pass.sites.only.empty()) item["only"] = pass.sites.only;
    out.push_back(std::move(item));
  }
  return out;
}

constexpr const char* passes_schema = R"({
  "type": "array",
  "maxItems": 256,
  "items": {
    "type": "object",
    "required": ["name"],
    "additionalProperties": false,
    "properties": {
      "name": {"type": "string", "minLength": 1, "maxLength": 256},
      "options": {
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": ["string", "number", "boolean"], "maxLength": 4096}
      },
      "exclude": {
        "description": "Instances that are switched off: names of nodes, globs over them, or fingerprints.",
        "type": "array", "maxItems": 65536, "items": {"type": "string", "maxLength": 4096}
      },
      "only": {
        "description": "Instances but for which the pass is switched off; none: it is not.",
        "type": "array", "maxItems": 65536, "items": {"type": "string", "maxLength": 4096}
      }
    }
  }
})";

// ---- algorithms ----

void read_algorithms(const json& from, Recipe& recipe) { from.get_to(recipe.algorithms); }
ordered write_algorithms(const Recipe& recipe) {
  return recipe.algorithms.empty() ? ordered() : ordered(recipe.algorithms);
}

constexpr const char* algorithms_schema = R"({
  "type": "object",
  "maxProperties": 4096,
  "additionalProperties": {"type": "string", "maxLength": 128}
})";

// ---- kernel_times ----

void read_kernel_times(const json& from, Recipe& recipe) {
  for (const json& item : from) {
    KernelTime& time = recipe.kernel_times.emplace_back();
    read_value(item, "kernel", time.kernel);
    read_value(item, "op", time.op);
    read_value(item, "types", time.types);
    read_value(item, "flops", time.flops);
    read_value(item, "bytes_read", time.bytes_read);
    read_value(item, "bytes_written", time.bytes_written);
    read_value(item, "ns", time.ns);
  }
}

ordered write_kernel_times(const Recipe& recipe) {
  if (recipe.kernel_times.empty()) return {};
  ordered out = ordered::array();
  for (const KernelTime& time : recipe.kernel_times)
    out.push_back({{"kernel", time.kernel},
                   {"op", time.op},
                   {"types", time.types},
                   {"flops", time.flops},
                   {"bytes_read", time.bytes_read},
                   {"bytes_written", time.bytes_written},
                   {"ns", time.ns}});
  return out;
}

constexpr const char* kernel_times_schema = R"({
  "type": "array",
  "maxItems": 8192,
  "items": {
    "type": "object",
    "required": ["kernel", "op", "types", "flops", "bytes_read", "bytes_written", "ns"],
    "additionalProperties": false,
    "properties": {
      "kernel": {"type": "string", "maxLength": 4096},
      "op": {"type": "string", "maxLength": 256},
      "types": {"type": "string", "maxLength": 256, "description": "Of the results; long ones as their XXH3-128."},
      "flops": {"type": "number", "minimum": 0, "maximum": 1e30},
      "bytes_read": {"type": "number", "minimum": 0, "maximum": 1e30},
      "bytes_written": {"type": "number", "minimum": 0, "maximum": 1e30},
      "ns": {"type": "number", "minimum": 1, "maximum": 1e18, "description": "Median."}
    }
  }
})";

// ---- expect ----

void read_expect(const json& from, Recipe& recipe) {
  RecipeExpect& expect = recipe.expect.emplace();
  if (from.contains("step_ns")) {
    read_value(from["step_ns"], "median", expect.step_ns);
    read_value(from["step_ns"], "low", expect.step_ns_low);
    read_value(from["step_ns"], "high", expect.step_ns_high);
  }
  read_value(from, "peak_bytes", expect.peak_bytes);
  read_value(from, "plan_hash", expect.plan_hash);
  read_value(from, "graph_hash", expect.graph_hash);
  read_value(from, "losses", expect.losses);
  if (from.contains("last_loss")) {
    read_value(from["last_loss"], "step", expect.last_step);
    read_value(from["last_loss"], "loss", expect.last_loss);
  }
  read_value(from, "hardware", expect.hardware);
}

ordered write_expect(const Recipe& recipe) {
  if (!recipe.expect) return {};
  const RecipeExpect& expect = *recipe.expect;
  ordered out = ordered::object();
  if (expect.step_ns > 0)
    out["step_ns"] = {{"median", expect.step_ns}, {"low", expect.step_ns_low}, {"high", expect.step_ns_high}};
  if (expect.peak_bytes > 0) out["peak_bytes"] = expect.peak_bytes;
  if (!expect.plan_hash.empty()) out["plan_hash"] = expect.plan_hash;
  if (!expect.graph_hash.empty()) out["graph_hash"] = expect.graph_hash;
  // JSON has no NaN: a run that diverged promises only what came before.
  std::vector<double> losses;
  for (const double loss : expect.losses) {
    if (!std::isfinite(loss)) break;
    losses.push_back(loss);
  }
  if (!losses.empty()) out["losses"] = losses;
  if (expect.last_step > 0 && std::isfinite(expect.last_loss))
    out["last_loss"] = {{"step", expect.last_step}, {"loss", expect.last_loss}};
  if (!expect.hardware.empty()) out["hardware"] = expect.hardware;
  return out;
}

constexpr const char* expect_schema = R"({
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "step_ns": {
      "description": "Median step time and its 95 % interval; judged only on equal hardware.",
      "type": "object",
      "required": ["median", "low", "high"],
      "additionalProperties": false,
      "properties": {
        "median": {"type": "number", "minimum": 0, "maximum": 1e18},
        "low": {"type": "number", "minimum": 0, "maximum": 1e18},
        "high": {"type": "number", "minimum": 0, "maximum": 1e18}
      }
    },
    "peak_bytes": {"type": "integer", "minimum": 0, "maximum": 9007199254740992},
    "plan_hash": {"type": "string", "maxLength": 64},
    "graph_hash": {"type": "string", "maxLength": 64},
    "losses": {
      "description": "Of the first steps.",
      "type": "array", "maxItems": 10000, "items": {"type": "number"}
    },
    "last_loss": {
      "type": "object",
      "required": ["step", "loss"],
      "additionalProperties": false,
      "properties": {
        "step": {"type": "integer", "minimum": 1, "maximum": 1000000000000},
        "loss": {"type": "number"}
      }
    },
    "hardware": {"type": "string", "maxLength": 1024}
  }
})";

// ---- Rows ----

struct Part {
  const char* key;
  void (*read)(const json& from, Recipe& recipe);
  ordered (*write)(const Recipe& recipe);  // null: left out
  const char* schema;
};
constexpr Part kParts[] = {
#define PART(key, ...) {#key, read_##key, write_##key, key##_schema},
#include "sessions/recipe_settings.def"
};

const Part& part_of(const RecipeSetting& setting) {
  for (const Part& part : kParts)
    if (std::string(part.key) == setting.key) return part;
  CHECK(false, "a part that recipe_settings.def does not list");
  return kParts[0];
}

struct Writer {
  const RecipeSetting& setting;
  const Recipe& recipe;
  ordered operator()(std::monostate) const { return part_of(setting).write(recipe); }
  template <class T>
  ordered operator()(T Recipe::*member) const {
    return recipe.*member;
  }
};

struct Reader {
  const RecipeSetting& setting;
  const json& from;
  Recipe& recipe;
  void operator()(std::monostate) const {
    if (from.contains(setting.key)) part_of(setting).read(from[setting.key], recipe);
  }
  template <class T>
  void operator()(T Recipe::*member) const {
    read_value(from, setting.key, recipe.*member);
  }
};

ordered text_schema(std::size_t longest) { return {{"type", "string"}, {"maxLength", longest}}; }

// What may stand at a setting's key.
ordered value_schema(const RecipeSetting& setting) {
  switch (setting.kind) {
    case SettingKind::text: return text_schema(kLongestText);
    case SettingKind::name: return {{"type", "string"}, {"minLength", 1}, {"maxLength", kLongestName}};
    case SettingKind::choice: return {{"enum", split_top_level(setting.choices, ' ')}};
    case SettingKind::switched: return {{"type", "boolean"}};
    case SettingKind::integer:
      return {{"type", "integer"},
              {"minimum", static_cast<std::int64_t>(setting.least)},
              {"maximum", static_cast<std::int64_t>(setting.most)}};
    case SettingKind::seed:
      return {{"type", "integer"}, {"minimum", 0}, {"maximum", std::numeric_limits<std::uint64_t>::max()}};
    case SettingKind::number:
      return {{"type", "number"}, {"minimum", setting.least}, {"maximum", setting.most}};
    case SettingKind::list:
      return {{"type", "array"}, {"maxItems", kLongestText}, {"items", text_schema(kLongestText)}};
    case SettingKind::part: return ordered::parse(part_of(setting).schema);
  }
  return {};
}

std::string schema_text() {
  ordered properties;
  properties["$schema"] = text_schema(kLongestText);
  properties["gradloom_recipe"] = {{"const", 1}, {"description", "version of this format"}};
  for (const RecipeSetting& setting : recipe_settings()) {
    ordered& row = properties[setting.key];
    row["description"] = setting.forms != nullptr ? setting.help + (": " + setting.forms()) : setting.help;
    row.update(value_schema(setting));
  }
  const ordered schema = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", "Gradloom recipe"},
      {"description",
       "One training run, replayable with `gradloom train --recipe FILE`. Paths are relative to the recipe's "
       "folder."},
      {"type", "object"},
      {"required", {"gradloom_recipe", "model", "passes"}},
      {"additionalProperties", false},
      {"properties", properties}};
  return schema.dump(2) + "\n";
}

}  // namespace

const std::string& recipe_schema_json() {
  static const std::string text = schema_text();
  return text;
}

std::string recipe_json(const Recipe& recipe) {
  ordered out;
  out["gradloom_recipe"] = 1;
  for (const RecipeSetting& setting : recipe_settings()) {
    if (setting.optional && at_default(recipe, setting)) continue;
    ordered value = std::visit(Writer{setting, recipe}, setting.member);
    if (!value.is_null()) out[setting.key] = std::move(value);
  }
  return out.dump(2, ' ', false, ordered::error_handler_t::replace) + "\n";
}

Result<Recipe> parse_recipe(const std::string& text) {
  const json parsed = TRY(parse_json_strict(text, kMaxRecipeBytes));
  static const json schema = json::parse(recipe_schema_json());
  if (parsed.is_object() && parsed.contains("gradloom_recipe")) {
    const json& version = parsed["gradloom_recipe"];
    if (version.is_number_integer() && version > 1) {
      return Error{Errc::bad_input, "/gradloom_recipe: written by a newer Gradloom (recipe format " +
                                        version.dump() + ", this one knows 1)"};
    }
  }
  TRY(validate_json(parsed, schema));
  Recipe recipe;
  for (const RecipeSetting& setting : recipe_settings())
    std::visit(Reader{setting, parsed, recipe}, setting.member);
  return recipe;
}

}  // namespace gradloom
