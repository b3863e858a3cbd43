// Recipe: a run as a small JSON file that replays anywhere. Its settings are the rows of recipe_settings.def,
// from which the JSON Schema (2020-12) comes that the reader validates against and that recipe.schema.json
// publishes: unknown keys, wrong types and values out of range are errors that name the JSON path.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "passes/compile.h"
#include "passes/pass.h"
#include "profiler/cost_model.h"
#include "sessions/data.h"

namespace gradloom {

const std::string& recipe_schema_json();  // the published JSON Schema

struct RecipePass {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;
  InstanceChoice sites;
  bool operator==(const RecipePass&) const = default;
};

// What an exported recipe promises of its replay; members that are 0 or empty promise nothing.
struct RecipeExpect {
  double step_ns = 0, step_ns_low = 0, step_ns_high = 0;  // median and 95 % interval
  std::int64_t peak_bytes = 0;
  std::string plan_hash, graph_hash;
  std::vector<double> losses;  // of the first steps, in order
  double last_loss = 0;        // at step `last_step`
  std::int64_t last_step = 0;
  std::string hardware;  // hardware_text(); step_ns is judged only on equal hardware
  bool operator==(const RecipeExpect&) const = default;
};

// The settings of one value are declared, with their defaults, in recipe_settings.def.
struct Recipe {
  std::string model, model_hash;
  std::map<std::string, std::int64_t> dims;
#define TEXT(key, fallback, ...) std::string key = fallback;
#define NAME(key, fallback, ...) std::string key = fallback;
#define CHOICE(key, fallback, ...) std::string key = fallback;
#define SWITCH(key, fallback, ...) bool key = fallback;
#define INTEGER(key, fallback, ...) std::int64_t key = fallback;
#define SEED(key, fallback, ...) std::uint64_t key = fallback;
#define NUMBER(key, fallback, ...) double key = fallback;
#define LIST(key, ...) std::vector<std::string> key;
#include "sessions/recipe_settings.def"
  std::string rules;  // the text of the user's rules (passes/rules.h)
  std::vector<RecipePass> passes;
  // Those that a search found, by problem (Algorithms in engine/device/device.h)
  std::map<std::string, std::string> algorithms;
  std::vector<KernelTime> kernel_times;  // of the run that `costs` names (app/measured_costs.h)
  std::optional<RecipeExpect> expect;
  // Limits of the model's file that differ from the defaults, by name. Not part of recipe files: what a file
  // may cost is for who runs it to say, not for who wrote it.
  std::map<std::string, std::int64_t> import_limits;
  bool operator==(const Recipe&) const = default;
};

constexpr std::size_t kMostKernelTimes = 8192;

// Sorted as in the schema, two-space indent, newline at the end.
std::string recipe_json(const Recipe& recipe);
constexpr std::size_t kMaxRecipeBytes = 4 << 20;
Result<Recipe> parse_recipe(const std::string& json);  // paths as they stand in the text

// Files. In a file the paths of model, parameters and data are relative to the file's folder where possible; in
// memory, usable as they are.
Result<Recipe> read_recipe(const std::string& path);
Status write_recipe(const Recipe& recipe, const std::string& path);  // atomic

Recipe with_absolute_paths(const Recipe& recipe);  // usable from every folder

Result<Rules> recipe_rules(const Recipe& recipe);  // errors: those of parse_rules
void set_pipeline(Recipe& recipe, const Pipeline& pipeline);
// Of another run: times that the recipe holds of an earlier one go.
void set_costs(Recipe& recipe, const std::string& text);
struct CostsRun {
  std::string session, run;  // run: as Store::find_run takes it; empty: none is named
};
CostsRun costs_run(const std::string& costs);  // SESSION or SESSION#RUN
// Settings of passes that the precision switches go when it switches them off.
void set_precision(Recipe& recipe, const std::string& precision);
// What the model is imported in: f64 for f64; f32 for f32, and for bf16 and f16, where pass mixed-precision
// casts. Usage error: unknown ones.
Result<DType> precision_type(const std::string& precision);
Result<Pipeline> recipe_pipeline(const Recipe& recipe);  // unknown pass or option: names the JSON path
Result<CompileOptions> recipe_compile_options(const Recipe& recipe);
// The batches that a recipe trains on, as make_batches has them; Errc::usage too: epochs of data without an end.
Result<std::unique_ptr<BatchSource>> recipe_batches(const Recipe& recipe,
                                                    const std::vector<InputSpec>& inputs);

// Replay against `expect`: one line per promise, and whether all that could be judged were kept.
struct ReplayResult {
  std::string plan_hash, graph_hash, hardware;
  std::vector<double> losses;  // from step 1
  double step_ns = 0, step_ns_low = 0, step_ns_high = 0;
  double fastest_ns = 0;  // a tenth of the steps took no longer; 0: unknown
  double waited = 0;      // part of the time in which threads had no processor (processor_wait.h)
  std::int64_t peak_bytes = 0;
};
struct ReplayLine {
  std::string what;     // "plan hash", "losses", "peak bytes", "speed"
  std::string outcome;  // "agrees", "differs", "unsure" (the data do not decide), "not judged"
  std::string detail;
};
// Speed agrees when the two intervals of the median overlap or the replay's median is at most 10 % longer. It
// differs only when it is clearly slower: by more than those 10 % over the promised interval even without the
// time in which the machine gave the threads no processor, and in the fastest tenth of the steps too. Between
// them it is unsure.
std::vector<ReplayLine> check_replay(const RecipeExpect& expect, const ReplayResult& result);
bool replay_agrees(const std::vector<ReplayLine>& lines);  // no line "differs"

}  // namespace gradloom
