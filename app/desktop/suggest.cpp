#include "app/desktop/suggest.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "app/evaluation.h"
#include "engine/base/text.h"
#include "engine/train/losses.h"
#include "engine/train/optimizers.h"
#include "sessions/data.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

std::string lowered(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool contains(const std::string& name, std::initializer_list<const char*> words) {
  const std::string low = lowered(name);
  return std::any_of(words.begin(), words.end(),
                     [&](const char* w) { return low.find(w) != std::string::npos; });
}

bool is_scalar(const Value& v) {
  return v.has_type && is_float(v.type.dtype) &&
         std::all_of(v.type.shape.begin(), v.type.shape.end(), [](std::int64_t d) { return d == 1; });
}

// A graph input named like a target with the wanted kind of numbers, else `fallback`.
std::string target_input(const Graph& graph, bool integer, const char* fallback) {
  for (ValueId id : graph.inputs) {
    const Value& v = graph.values[id];
    if (v.has_type && is_float(v.type.dtype) != integer && contains(v.name, {"label", "target"}))
      return v.name;
  }
  return fallback;
}

}  // namespace

std::vector<std::string> loss_choices(const Graph& graph) {
  std::vector<std::string> scalars, of_classes, losses;
  for (ValueId id : graph.outputs) {
    const Value& v = graph.values[id];
    if (is_scalar(v)) scalars.push_back(v.name);
  }
  std::stable_partition(scalars.begin(), scalars.end(),
                        [](const std::string& name) { return contains(name, {"loss"}); });
  for (ValueId id : graph.outputs) {
    const Value& v = graph.values[id];
    if (!v.has_type || is_scalar(v) || !is_float(v.type.dtype)) continue;
    const bool classes = v.type.shape.size() >= 2 && v.type.shape.back() > 1;
    for (const LossDef& def : all_losses()) {
      const bool labels = def.compared == LossTarget::labels;
      if (!def.suggested || (labels && !classes)) continue;
      const std::string target = target_input(graph, labels, labels ? "labels" : "target");
      (labels ? of_classes : losses).push_back(std::string(def.name) + ":" + v.name + "," + target);
    }
  }
  scalars.insert(scalars.end(), of_classes.begin(), of_classes.end());
  scalars.insert(scalars.end(), losses.begin(), losses.end());
  return scalars;
}

std::int64_t suggested_dim(const std::string& name) {
  return contains(name, {"seq", "len", "time", "token", "ctx"}) ? 64 : 8;
}

std::string default_optimizer(const std::string& name) {
  for (const OptimizerDef& def : all_optimizers())
    if (name == def.name) return name + "{" + def.start + "}";
  return name;
}

std::map<std::string, std::string> field_problems(const Recipe& recipe,
                                                  const std::vector<std::string>& symbols) {
  std::map<std::string, std::string> problems;
  for (const std::string& s : symbols) {
    const auto it = recipe.dims.find(s);
    if (it == recipe.dims.end())
      problems["dim." + s] = "needs a size";
    else if (it->second < 1)
      problems["dim." + s] = "must be at least 1";
  }
  if (recipe.loss.empty()) problems["loss"] = "choose what is to be lowered";
  for (const RecipeSetting& setting : recipe_settings())
    if (const Status fits = check_setting(recipe, setting, setting.label); !fits)
      problems[setting.key] = fits.error().message;
  for (const auto& [key, data] : {std::pair("data", recipe.data), std::pair("eval_data", recipe.eval_data)})
    if (const auto [kind, file] = split_data(data); kind.ends_with(":") && file.empty())
      problems[key] = "choose a file";
  if (const Status fits = check_evaluation(recipe); !fits) problems["eval_data"] = fits.error().message;
  return problems;
}

FileKind file_kind(const std::string& path) {
  const std::string extension = lowered(std::filesystem::path(path).extension().string());
  if (extension == ".onnx") return FileKind::model;
  if (extension == ".db" || extension == ".sqlite" || extension == ".gradloom") return FileKind::session;
  if (extension == ".json") return FileKind::recipe;
  return FileKind::unknown;
}

std::string file_to_open(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const char* name : {"recipe.json", "model.onnx"})
    if (const fs::path inside = fs::path(path) / name; fs::is_regular_file(inside, error))
      return inside.string();
  return path;
}

}  // namespace gradloom
