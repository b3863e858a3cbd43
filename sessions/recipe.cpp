// Recipes: files, conversion to a pipeline and compile options, verdict of a replay.
#include "sessions/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/device/device.h"
#include "engine/train/schedules.h"
#include "passes/planners.h"
#include "passes/precision.h"
#include "sessions/data.h"
#include "sessions/find_model.h"
#include "passes/rules.h"

namespace gradloom {
namespace {

// Options of the passes that a precision of 16 bits switches, which say what it says.
constexpr const char *kMixedType = "type", *kMixedList = "list", *kMixedFull = "full", *kMixedLow = "low",
                     *kMixedWithin = "within", *kMixedWeights = "weights";

bool is_mixed(const std::string& precision) {
  const std::string type = precision_type_name(precision);
  return type == "bf16" || type == "f16";
}

std::string from_folder(const std::filesystem::path& folder, const std::string& path) {
  if (path.empty() || folder.empty()) return path;
  return normal_path(folder / path);  // an absolute path stays as it is
}

std::string to_folder(const std::filesystem::path& folder, const std::string& path) {
  if (path.empty()) return path;
  std::error_code failed;
  const auto base = std::filesystem::weakly_canonical(folder.empty() ? "." : folder, failed);
  if (failed) return path;
  const auto target = std::filesystem::weakly_canonical(path, failed);
  if (failed) return path;
  const auto relative = target.lexically_relative(base);
  return relative.empty() ? target.string() : relative.string();
}

// The files that training and evaluation read, and the libraries of operators.
template <class Move>
void move_data(Recipe& recipe, Move move) {
  for (std::string& library : recipe.ops) library = move(library);
  for (std::string* data : {&recipe.data, &recipe.eval_data}) *data = move_data_files(*data, move);
}

}  // namespace

Result<Recipe> read_recipe(const std::string& path) {
  const std::string text = TRY(read_file_limited(path, static_cast<std::int64_t>(kMaxRecipeBytes)));
  Result<Recipe> recipe = parse_recipe(text);
  if (!recipe.ok()) return with_context(recipe.error(), path);
  const auto folder = std::filesystem::path(path).parent_path();
  recipe->model = from_folder(folder, recipe->model);
  recipe->load_params = from_folder(folder, recipe->load_params);
  recipe->load_optimizer = from_folder(folder, recipe->load_optimizer);
  recipe->costs = from_folder(folder, recipe->costs);
  move_data(*recipe, [&](const std::string& file) { return from_folder(folder, file); });
  return recipe;
}

Status write_recipe(const Recipe& recipe, const std::string& path) {
  Recipe moved = recipe;
  const auto folder = std::filesystem::path(path).parent_path();
  moved.model = to_folder(folder, recipe.model);
  moved.load_params = to_folder(folder, recipe.load_params);
  moved.load_optimizer = to_folder(folder, recipe.load_optimizer);
  moved.costs = to_folder(folder, recipe.costs);
  move_data(moved, [&](const std::string& file) { return to_folder(folder, file); });
  return atomic_write_file(path, recipe_json(moved));
}

Recipe with_absolute_paths(const Recipe& recipe) {
  std::error_code failed;
  const std::filesystem::path here = std::filesystem::current_path(failed);
  Recipe moved = recipe;
  moved.model = from_folder(here, recipe.model);
  moved.load_params = from_folder(here, recipe.load_params);
  moved.load_optimizer = from_folder(here, recipe.load_optimizer);
  moved.costs = from_folder(here, recipe.costs);
  move_data(moved, [&](const std::string& file) { return from_folder(here, file); });
  return moved;
}

Result<Rules> recipe_rules(const Recipe& recipe) { return parse_rules(recipe.rules, "rules"); }

void set_pipeline(Recipe& recipe, const Pipeline& pipeline) {
  recipe.passes.clear();
  for (const PassConfig& pass : pipeline.passes) {
    RecipePass row{pass.def->name, pass.options, pass.sites};
    std::sort(row.options.begin(), row.options.end());  // JSON objects have no order
    recipe.passes.push_back(std::move(row));
  }
}

void set_costs(Recipe& recipe, const std::string& text) {
  recipe.costs = text;
  recipe.kernel_times.clear();
}

CostsRun costs_run(const std::string& costs) {
  const std::size_t mark = costs.rfind('#');
  if (mark == std::string::npos) return {costs, ""};
  return {costs.substr(0, mark), costs.substr(mark + 1)};
}

void set_precision(Recipe& recipe, const std::string& precision) {
  recipe.precision = precision;
  if (is_mixed(precision)) return;
  std::erase_if(recipe.passes, [](const RecipePass& pass) {
    const PassDef* def = find_pass(pass.name);
    return def != nullptr && def->by_precision;
  });
}

Result<DType> precision_type(const std::string& precision) {
  const PrecisionSpec spec = TRY(parse_precision(precision));
  return spec.type == "f64" ? DType::f64 : DType::f32;
}

Result<Pipeline> recipe_pipeline(const Recipe& recipe) {
  Pipeline pipeline;
  const auto rules = recipe_rules(recipe);
  if (!rules) return Error{Errc::bad_input, "/rules: " + rules.error().message};
  for (std::size_t i = 0; i < recipe.passes.size(); ++i) {
    const RecipePass& pass = recipe.passes[i];
    const std::string path = fmt::format("/passes/{}", i);
    const auto rule = find_rule(*rules, pass.name);
    const PassDef* def = rule != nullptr ? rule.get() : find_pass(pass.name);
    if (def == nullptr)
      return Error{Errc::bad_input, path + "/name: " + unknown_pass(pass.name, PassWords::passes, *rules)};
    auto config = configure_pass(*def, pass.options, pass.sites);
    if (!config) return Error{Errc::bad_input, path + "/options: " + config.error().message};
    config->rule = rule;
    pipeline.passes.push_back(std::move(config).value());
  }
  return pipeline;
}

namespace {

std::string joined_by(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

// The passes that the precision switches, with the settings that the pipeline has for them.
Status switch_by_precision(Pipeline& pipeline, const std::string& precision) {
  for (const PassDef* def : all_passes()) {
    if (!def->by_precision) continue;
    const auto named = std::find_if(pipeline.passes.begin(), pipeline.passes.end(),
                                    [&](const PassConfig& config) { return config.def == def; });
    if (!is_mixed(precision)) {
      if (named == pipeline.passes.end()) continue;
      return Error{Errc::usage, std::string("pass ") + def->name +
                                    " is switched on by precision bf16 or f16, the precision is " +
                                    escaped(precision)};
    }
    PassConfig& config = named != pipeline.passes.end() ? *named : pipeline.passes.emplace_back();
    const PrecisionSpec spec = TRY(parse_precision(precision));
    std::vector<std::pair<std::string, std::string>> options = config.options;
    const auto set = [&](const char* name, const std::string& value, bool replaces) {
      if (!replaces && value.empty()) return;
      std::erase_if(options, [&](const auto& option) { return option.first == name; });
      if (!value.empty()) options.emplace_back(name, value);
    };
    set(kMixedType, spec.type == "bf16" ? "" : spec.type, true);  // bf16 is its default
    set(kMixedList, spec.list, false);
    set(kMixedFull, joined_by(spec.full, ";"), false);
    set(kMixedWeights, spec.low_weights ? "low" : "", false);
    set(kMixedLow, joined_by(spec.low, ";"), false);
    set(kMixedWithin, joined_by(spec.within, ";"), false);
    config = TRY(configure_pass(*def, std::move(options), config.sites));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<BatchSource>> recipe_batches(const Recipe& recipe,
                                                    const std::vector<InputSpec>& inputs) {
  auto batches = TRY(make_batches(recipe.data, inputs, recipe.seed,
                                  {.epochs = recipe.epochs > 0, .shuffle = recipe.shuffle}));
  if (recipe.epochs > 0 && batches->count() == 0)
    return Error{Errc::usage, "--epochs needs data with an end, " + escaped(recipe.data) + " have none"};
  return batches;
}

namespace {

// Bytes per ns of the fastest copy between a GPU and the host that was timed; 0: none was.
double measured_link(const std::vector<KernelTime>& times) {
  double link = 0;
  for (const KernelTime& time : times)
    if ((time.op == "CopyToHost" || time.op == "CopyFromHost") && time.ns > 0)
      link = std::max(link, time.bytes_written / time.ns);
  return link;
}

}  // namespace

Result<CompileOptions> recipe_compile_options(const Recipe& recipe) {
  CompileOptions options;
  options.train.loss = recipe.loss;
  Result<OptimizerSpec> optimizer = parse_optimizer(recipe.optimizer);
  if (!optimizer.ok()) return Error{Errc::bad_input, "/optimizer: " + optimizer.error().message};
  options.train.optimizer = *optimizer;
  options.train.freeze = recipe.freeze;
  options.train.train = recipe.train;
  for (std::size_t i = 0; i < recipe.group.size(); ++i) {
    Result<ParameterGroup> group = parse_group(recipe.group[i]);
    if (!group.ok())
      return Error{Errc::bad_input, "/group/" + std::to_string(i) + ": " + group.error().message};
    options.train.groups.push_back(std::move(group).value());
  }
  options.train.clip_norm = recipe.clip_norm;
  options.train.clip_value = recipe.clip_value;
  options.train.accumulate = recipe.accumulate;
  options.train.ranks = recipe.ranks;
  options.train.ema = recipe.ema;
  options.recompute = recipe.recompute;
  options.offload = recipe.offload;
  if (!recipe.memory_budget.empty()) {
    const std::optional<std::int64_t> budget = parse_bytes(recipe.memory_budget);
    if (!budget || *budget <= 0)
      return Error{Errc::bad_input,
                   "/memory_budget: '" + escaped(recipe.memory_budget) + "' is no size of memory"};
    options.memory_budget_bytes = *budget;
  }
  options.link_bytes_per_ns = measured_link(recipe.kernel_times);
  if (!recipe.kernel_times.empty())
    options.kernel_ns = [model = CostModel(recipe.kernel_times)](const Graph& graph, const Plan& plan) {
      std::vector<double> ns;
      for (const KernelInfo& kernel : kernel_infos(graph, plan)) ns.push_back(model.ns(kernel));
      return ns;
    };
  const Result<LossScaleSpec> loss_scale = parse_loss_scale(recipe.loss_scale);
  if (!loss_scale.ok()) return Error{Errc::bad_input, "/loss_scale: " + loss_scale.error().message};
  if (precision_type_name(recipe.precision) == "f16") options.train.loss_scale = *loss_scale;
  options.train.low_weights = TRY(parse_precision(recipe.precision)).low_weights;
  const Result<ScheduleSpec> schedule = parse_schedule(recipe.schedule);
  if (!schedule.ok()) return Error{Errc::bad_input, "/schedule: " + schedule.error().message};
  options.pipeline = TRY(recipe_pipeline(recipe));
  TRY(switch_by_precision(options.pipeline, recipe.precision));
  if (const auto planner = known_planner(recipe.planner); !planner)
    return Error{Errc::bad_input, "/planner: " + planner.error().message};
  options.planner = recipe.planner;
  options.in_place = recipe.in_place;
  options.pieces = recipe.pieces;
  options.target = TRY(device_target(recipe.device));
  options.dnn_library = device_has_dnn_library(recipe.device);
  return options;
}

namespace {

ReplayLine check_losses(const RecipeExpect& expect, const ReplayResult& result) {
  constexpr double kTolerance = 1e-4;  // f32 across machines, 100 steps
  std::vector<std::pair<double, double>> pairs;
  const std::size_t common = std::min(expect.losses.size(), result.losses.size());
  for (std::size_t i = 0; i < common; ++i) pairs.emplace_back(expect.losses[i], result.losses[i]);
  if (expect.last_step > 0 && static_cast<std::size_t>(expect.last_step) <= result.losses.size()) {
    pairs.emplace_back(expect.last_loss, result.losses[static_cast<std::size_t>(expect.last_step) - 1]);
  }
  if (pairs.empty()) return {"losses", "not judged", "no common steps"};
  double largest = 0;
  bool equal = true;
  for (const auto& [a, b] : pairs) {
    const double difference = std::abs(a - b) / std::max(std::abs(a), 1e-12);
    equal = equal && a == b;
    largest = std::isnan(difference) ? HUGE_VAL : std::max(largest, difference);
  }
  if (equal) return {"losses", "agrees", fmt::format("{} losses equal bit for bit", pairs.size())};
  return {"losses", largest <= kTolerance ? "agrees" : "differs",
          fmt::format("largest relative difference {:.3g} over {} losses (allowed {:g})", largest,
                      pairs.size(), kTolerance)};
}

ReplayLine check_speed(const RecipeExpect& expect, const ReplayResult& result) {
  constexpr double kTolerance =
      0.10;  // runs at different times of day on a shared machine differ by this much
  std::string times =
      fmt::format("{} expected, {} measured", duration_text(expect.step_ns), duration_text(result.step_ns));
  if (expect.hardware != result.hardware)
    return {"speed", "not judged", times + "; recorded on " + escaped(expect.hardware)};
  if (result.step_ns <= 0) return {"speed", "not judged", "no timings"};
  const bool overlap = result.step_ns_low <= expect.step_ns_high && expect.step_ns_low <= result.step_ns_high;
  if (overlap || result.step_ns <= (1 + kTolerance) * expect.step_ns) return {"speed", "agrees", times};
  const double slow_ns = (1 + kTolerance) * std::max(expect.step_ns, expect.step_ns_high);
  const double undisturbed_ns = result.step_ns_low * (1 - std::clamp(result.waited, 0.0, 1.0));
  const bool clear = undisturbed_ns > slow_ns && (result.fastest_ns <= 0 || result.fastest_ns > slow_ns);
  if (result.waited >= 0.01)
    times +=
        fmt::format("; the threads waited for a processor for {:.0f} % of the time", result.waited * 100);
  return {"speed", clear ? "differs" : "unsure", times};
}

}  // namespace

std::vector<ReplayLine> check_replay(const RecipeExpect& expect, const ReplayResult& result) {
  std::vector<ReplayLine> lines;
  const bool same_hardware = expect.hardware.empty() || expect.hardware == result.hardware;
  const auto equal = [&](const char* what, const std::string& a, const std::string& b) {
    if (a.empty() || b.empty()) return;
    // Another machine may have other kernels, hence another plan.
    const char* otherwise = same_hardware ? "differs" : "not judged";
    lines.push_back({what, a == b ? "agrees" : otherwise,
                     a == b ? escaped(a) : escaped(a) + " expected, " + escaped(b) + " here"});
  };
  equal("graph hash", expect.graph_hash, result.graph_hash);
  equal("plan hash", expect.plan_hash, result.plan_hash);
  if (expect.peak_bytes > 0 && result.peak_bytes > 0) {
    const bool same = expect.peak_bytes == result.peak_bytes;
    lines.push_back({"peak bytes",
                     same            ? "agrees"
                     : same_hardware ? "differs"
                                     : "not judged",
                     same ? std::to_string(expect.peak_bytes)
                          : fmt::format("{} expected, {} here", expect.peak_bytes, result.peak_bytes)});
  }
  if (!expect.losses.empty() || expect.last_step > 0) lines.push_back(check_losses(expect, result));
  if (expect.step_ns > 0) lines.push_back(check_speed(expect, result));
  return lines;
}

bool replay_agrees(const std::vector<ReplayLine>& lines) {
  return std::none_of(lines.begin(), lines.end(),
                      [](const ReplayLine& line) { return line.outcome == "differs"; });
}

}  // namespace gradloom
