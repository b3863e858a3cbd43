// What the window fills in when a model is opened without settings: a loss, sizes for symbolic dims; and what
// is wrong with a recipe's fields, field by field, before anything is started.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "sessions/recipe.h"

namespace gradloom {

// Loss texts that fit the model, the likeliest first: a scalar output (named "loss" before others),
// "ce:OUTPUT,labels" for float outputs with a class axis, "mse:OUTPUT,target" for the others. A fitting graph
// input is used as the target when there is one.
std::vector<std::string> loss_choices(const Graph& graph);

// batch-like names: 8; sequence-like names: 64; others: 8.
std::int64_t suggested_dim(const std::string& name);

// So many steps a model opened without settings starts with: a first look needs more than a first run. All
// else is the recipe's default, as on the command line.
constexpr std::int64_t kFirstSteps = 50;

// Optimizers with options that are sensible to start from.
std::string default_optimizer(const std::string& name);

// Errors by field: the key of a setting, or "dim.batch".
std::map<std::string, std::string> field_problems(const Recipe& recipe,
                                                  const std::vector<std::string>& symbols);

// Where a dropped or named file leads.
enum class FileKind : std::uint8_t { model, session, recipe, unknown };
FileKind file_kind(const std::string& path);
// Of a folder the job in it, as gradloom.torch.capture writes it: its recipe, else its model; else the path as it is.
std::string file_to_open(const std::string& path);

}  // namespace gradloom
