// Recipe: a run as a small JSON file that replays anywhere. Format: recipe.schema.json (JSON Schema 2020-12),
// which is also what the reader validates against: unknown keys, wrong types and values out of range are
// errors that name the JSON path.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "passes/compile.h"
#include "passes/pass.h"

namespace gradloom {

const char* recipe_schema_json();  // the published JSON Schema

struct RecipePass {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<std::string> excluded_sites;
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

struct Recipe {
  std::string model, model_hash;
  std::map<std::string, std::int64_t> dims;
  std::string loss;                 // as --loss; empty: the first output
  std::vector<std::string> freeze;  // globs over parameter names
  std::string optimizer = "sgd{lr=0.01}", schedule = "constant";
  double clip_norm = 0;
  std::int64_t accumulate = 1;
  std::string precision = "f32";
  std::string loss_scale = "dynamic";  // of precision f16: dynamic{initial=,growth=,backoff=,interval=}
  std::string data = "synthetic";
  std::uint64_t seed = 0;
  std::int64_t steps = 10;
  std::int64_t threads = 0;  // 0: all
  std::vector<RecipePass> passes;
  std::string planner = "best-fit";
  bool in_place = true;
  bool record = true;  // GPUs: the launches of a step are recorded once and run as one graph
  // GPUs: algorithms of a library to try per product before the first step; 0: its own suggestion.
  std::int64_t search = 0;
  // Those found, by problem (Algorithms in engine/device/device.h)
  std::map<std::string, std::string> algorithms;
  std::string device = "cpu", profile = "sampled";
  std::optional<RecipeExpect> expect;
  // Limits of the model's file that differ from the defaults, by name. Not part of recipe files: what a file
  // may cost is for who runs it to say, not for who wrote it.
  std::map<std::string, std::int64_t> import_limits;
  bool operator==(const Recipe&) const = default;
};

// Sorted as in the schema, two-space indent, newline at the end.
std::string recipe_json(const Recipe& recipe);
Result<Recipe> parse_recipe(const std::string& json);  // paths as they stand in the text

// Files. In a file the paths of model and data are relative to the file's folder where possible; in memory,
// usable as they are.
Result<Recipe> read_recipe(const std::string& path);
Status write_recipe(const Recipe& recipe, const std::string& path);  // atomic

void set_pipeline(Recipe& recipe, const Pipeline& pipeline);
// Settings of passes that the precision switches go when it switches them off.
void set_precision(Recipe& recipe, const std::string& precision);
// What the model is imported in: f64 for f64; f32 for f32, and for bf16 and f16, where pass mixed-precision
// casts. Usage error: unknown ones.
Result<DType> precision_type(const std::string& precision);
Result<Pipeline> recipe_pipeline(const Recipe& recipe);  // unknown pass or option: names the JSON path
Result<CompileOptions> recipe_compile_options(const Recipe& recipe);

// Replay against `expect`: one line per promise, and whether all that could be judged were kept.
struct ReplayResult {
  std::string plan_hash, graph_hash, hardware;
  std::vector<double> losses;  // from step 1
  double step_ns = 0, step_ns_low = 0, step_ns_high = 0;
  std::int64_t peak_bytes = 0;
};
struct ReplayLine {
  std::string what;     // "plan hash", "losses", "peak bytes", "speed"
  std::string outcome;  // "agrees", "differs", "not judged"
  std::string detail;
};
std::vector<ReplayLine> check_replay(const RecipeExpect& expect, const ReplayResult& result);
bool replay_agrees(const std::vector<ReplayLine>& lines);  // no line "differs"

}  // namespace gradloom
